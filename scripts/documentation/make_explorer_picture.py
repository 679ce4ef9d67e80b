"""Write docs/model-explorer.png: the placement of `nnbridge report` over a model in Model Explorer, drawn by Chromium.

python scripts/documentation/make_explorer_picture.py MODEL.tflite [--device NAME] [-o FILE.png] \
        [--explorer PROGRAM] [--chromium PROGRAM]

It needs Model Explorer (pip install '.[explorer]') and Playwright (in '.[dev]'). The picture in the tree shows
mobilenet_v2_1.0_224_quant.tflite (TensorFlow's list of hosted models) on arm-nn-18.05. A .nnapi or ONNX file needs
--more=--extensions=nnbridge.explorer.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, argument_parser

WIDTH, HEIGHT = 1200, 700
GRAPHICS = ["--no-sandbox", "--enable-unsafe-swiftshader", "--use-gl=angle", "--use-angle=swiftshader", "--ignore-gpu-blocklist"]
"""The viewer draws with WebGL."""
EXPAND = "[mattooltip='Expand all layers'], .expand-all-layers, mat-icon:text-is('unfold_more_double')"
ZOOMED = 6
"""Steps of the wheel by which names can be read."""
DRAWN = 6000
"""Milliseconds until the viewer has laid out and drawn a graph of this size on two cores."""


def main() -> None:
    """Write the overlay, serve it, open all layers, take the picture."""
    parser = argument_parser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="arm-nn-18.05")
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "docs" / "model-explorer.png")
    parser.add_argument("--explorer", default="model-explorer")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument(
        "--more", action="append", default=[], help="another argument of model-explorer, as --more=--extensions=…"
    )
    arguments = parser.parse_args()
    programs = [shutil.which(name) for name in (arguments.explorer, arguments.chromium)]
    for name, found in zip((arguments.explorer, arguments.chromium), programs, strict=True):
        if found is None:
            sys.exit(f"{name}: expected an installed program, found none")
    explorer, chromium = map(str, programs)
    with tempfile.TemporaryDirectory() as folder:
        overlay = Path(folder) / "placement.json"
        command = [sys.executable, "-c", "from nnbridge.cli import main; main()", "report", str(arguments.model)]
        subprocess.run([*command, "--device", arguments.device, "-o", str(overlay)], check=True, stdout=subprocess.DEVNULL)
        typed = [str(arguments.model), f"--node_data_paths={overlay}", "--no_open_in_browser", f"--port={_free_port()}"]
        with subprocess.Popen([explorer, *typed, *arguments.more], stdout=subprocess.PIPE, text=True) as server:
            try:
                _picture(_address(server), chromium, Path(folder) / "shot.png")
            finally:
                server.terminate()
        from PIL import Image

        Image.open(Path(folder) / "shot.png").convert("RGB").quantize(64).save(arguments.output, optimize=True)
    print(f"{arguments.output}: {arguments.output.stat().st_size:,} bytes")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _address(server: subprocess.Popen[str]) -> str:
    """The address that the server prints when it answers."""
    printed = []
    for line in server.stdout or ():
        printed.append(line)
        if found := re.search(r"http://\S+", line):
            return found[0]
    sys.exit(f"model-explorer: expected the address of its server, found {''.join(printed)[-300:]!r}")


def _picture(address: str, chromium: str, shot: Path) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=GRAPHICS)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(address, wait_until="networkidle")
        page.wait_for_timeout(DRAWN)
        page.locator(EXPAND).first.click()
        page.wait_for_timeout(DRAWN)
        page.mouse.move(415, 150)  # the first layers, in the middle of the graph's pane
        page.keyboard.down("Control")
        for _ in range(ZOOMED):
            page.mouse.wheel(0, -100)
            page.wait_for_timeout(100)
        page.keyboard.up("Control")
        page.mouse.move(5, HEIGHT - 5)  # no tooltip in the picture
        page.wait_for_timeout(1000)
        page.screenshot(path=shot)
        browser.close()


if __name__ == "__main__":
    main()

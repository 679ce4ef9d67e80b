"""Write docs/images/report.png: the head of a page of `nnbridge report`, as headless Chromium draws it.

python scripts/documentation/make_screenshot.py MODEL.tflite [--device NAME] [-o FILE.png] [--chromium chromium]

The one in the tree shows mobilenet_v2_1.0_224_quant.tflite (TensorFlow's list of hosted models) on arm-nn-18.05.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, argument_parser

SIZE = (1340, 880)
MOST_BYTES = 150_000


def main() -> None:
    """Write the page, draw it, reduce the colours."""
    parser = argument_parser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--device", default="arm-nn-18.05")
    parser.add_argument("-o", "--output", type=Path, default=REPOSITORY / "docs" / "images" / "report.png")
    parser.add_argument("--chromium", default="chromium")
    arguments = parser.parse_args()
    browser = shutil.which(arguments.chromium)
    if browser is None:
        sys.exit(f"{arguments.chromium}: expected an installed Chromium, found none")
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        page, shot = Path(folder) / "report.html", Path(folder) / "report.png"
        options = ["--device", arguments.device, "--max-partitions", "0", "--reference", "litert", "--seeds", "0"]
        command = [sys.executable, "-c", "from nnbridge.cli import main; main()", "report", str(arguments.model), *options]
        subprocess.run([*command, "-o", str(page)], check=True, stdout=subprocess.DEVNULL)
        window = f"--window-size={SIZE[0]},{SIZE[1]}"
        switches = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", window, f"--screenshot={shot}"]
        subprocess.run([browser, *switches, page.as_uri()], check=True, capture_output=True, timeout=60)
        picture = Image.open(shot).convert("RGB").quantize(160)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    picture.save(arguments.output, optimize=True)
    size = arguments.output.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"{arguments.output}: expected at most {MOST_BYTES:,} bytes, found {size:,}")
    print(f"{arguments.output}: {size:,} bytes")


if __name__ == "__main__":
    main()

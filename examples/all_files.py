"""All files of folders on all profiles: a table, a comparison, a report. ``python examples/all_files.py FOLDER...``"""

import sys
from itertools import product
from pathlib import Path

import pandas

import nnbridge


def row(file: Path, device: str) -> dict[str, object]:
    try:
        planned = nnbridge.plan(file, device=device, android="13", prepare=False)
        return {"file": file.name, "device": device, "accepted": planned.summary.accepted}
    except nnbridge.NnbridgeError as error:
        return {"file": file.name, "device": device, "error": str(error)}


files = [path for folder in sys.argv[1:] for path in sorted(Path(folder).glob("*.tflite"))]
profiles = [profile.name for profile in (*nnbridge.devices.shipped(), *nnbridge.devices.shipped_at_source())]
table = pandas.DataFrame(row(*pair) for pair in product(files, profiles))
table.to_csv("all_files.csv", index=False)
print(table.pivot_table("accepted", "device", "file").to_string(max_cols=6))
print(nnbridge.report(files[0], "report.html", device="arm-nn-21.11", reference="litert").comparison.sentence)

"""All files of folders on all profiles: a table, a comparison, a report. ``python examples/all_files.py FOLDER...``"""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import pandas

import nnbridge


def row(pair: tuple[Path, str]) -> dict[str, object]:
    try:
        planned = nnbridge.plan(pair[0], device=pair[1], android="13", prepare=False)
        return {"file": pair[0].name, "device": pair[1], "accepted": planned.summary.accepted}
    except nnbridge.NnbridgeError as error:
        return {"file": pair[0].name, "device": pair[1], "error": str(error)}


if __name__ == "__main__":
    files = [path for folder in sys.argv[1:] for path in sorted(Path(folder).glob("*.tflite"))]
    profiles = [profile.name for profile in (*nnbridge.devices.shipped(), *nnbridge.devices.shipped_at_source())]
    with ProcessPoolExecutor() as pool:
        table = pandas.DataFrame(pool.map(row, product(files, profiles), chunksize=20))
    table.to_csv("all_files.csv", index=False)
    print(table.pivot_table("accepted", "device", "file").to_string(max_cols=6))
    print(nnbridge.compare(files[0], reference="litert", device="arm-nn-21.11").sentence)
    nnbridge.report(files[0], "report.html", device="arm-nn-21.11", reference="litert")

"""Write converters/nnbridge_onnx/runtime_kernels.json: the kernels that the installed ONNX Runtime has on its CPU.

    python scripts/documentation/make_runtime_kernels.py

Of each operator, by domain and name: the first and the last version of the operator's definition that a kernel is for, and the
element types that it has for each type constraint of the definition. Of com.microsoft's operators, their inputs' constraints and
the numbers of operands that they may have. ONNX Runtime states all of it itself.

Each release has other kernels: the file is that of one version, which it names, and ``--check`` compares with the installed one.
Continuous integration installs the newest one, so it does not check this file.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # scripts/

from script_support import REPOSITORY, one_line_errors, write_or_check

with one_line_errors():
    import onnx
    from onnxruntime.capi import _pybind_state as runtime

PATH = REPOSITORY / "converters/nnbridge_onnx/runtime_kernels.json"
LAST = 1 << 30
DOMAINS = ("", "ai.onnx.ml", "com.microsoft")


def kernels() -> dict[str, dict[str, list[Any]]]:
    """Domain → operator → [first version, last version, constraint → types]."""
    found: dict[str, dict[str, list[Any]]] = {domain: defaultdict(list) for domain in DOMAINS}
    for kernel in runtime.get_all_opkernel_def():
        if kernel.provider == "CPUExecutionProvider" and kernel.domain in found:
            first, last = kernel.version_range
            types = {name: " ".join(sorted(_short(one) for one in listed)) for name, listed in kernel.type_constraints.items()}
            found[kernel.domain][kernel.op_name].append([first, min(last, LAST), dict(sorted(types.items()))])
    return {domain: {name: _joined(listed) for name, listed in sorted(by_name.items())} for domain, by_name in found.items()}


def _joined(listed: list[Any]) -> list[Any]:
    """Kernels for one type each as one for all of them."""
    single: dict[tuple[int, int, str], set[str]] = defaultdict(set)
    rest = []
    for first, last, types in listed:
        if len(types) == 1:
            ((name, words),) = types.items()
            single[first, last, name].update(words.split())
        else:
            rest.append([first, last, types])
    joined = [[first, last, {name: " ".join(sorted(words))}] for (first, last, name), words in single.items()]
    return sorted([*joined, *rest], key=lambda one: (one[0], one[1], json.dumps(one[2])))


def _short(name: str) -> str:
    return name[7:-1] if name.startswith("tensor(") else name.replace(" ", "")


def _only(formal: Any) -> str:
    """The type of an operand that has no other; empty for operands of several."""
    return next(iter(formal.types)) if len(formal.types) == 1 else ""


def _is_onnx(schema: Any) -> bool:
    """True if the onnx package has the definition, too."""
    try:
        return bool(onnx.defs.get_schema(schema.name, schema.since_version, "").since_version == schema.since_version)
    except onnx.defs.SchemaError:
        return schema.since_version > onnx.defs.onnx_opset_version()


def document() -> str:
    """The file."""
    schemas = sorted(runtime.get_all_operator_schema(), key=lambda one: (one.name, one.since_version))
    own: dict[str, dict[str, list[Any]]] = {"": {}, "com.microsoft": {}}
    for one in schemas:
        if one.domain == "com.microsoft" or (one.domain == "" and not _is_onnx(one)):
            own[one.domain][one.name] = [
                [formal.typeStr for formal in one.inputs],
                [_only(formal) or formal.typeStr for formal in one.outputs],
                *(one.min_input, one.max_input, one.min_output, one.max_output),
                {name: one.attributes[name].type.name for name in sorted(one.attributes)},
                [i for i, formal in enumerate(one.inputs) if formal.option.name != "Single"],
            ]
    newest = {one.name: one.since_version for one in schemas if one.domain == ""}
    versions = {domain: max(one.since_version for one in schemas if one.domain == domain) for domain in DOMAINS}
    data = {"runtime": version("onnxruntime"), "versions": versions, "newest": newest, "own": own, "kernels": kernels()}
    return json.dumps(data, separators=(",", ":")).replace('],"', '],\n"') + "\n"


if __name__ == "__main__":
    write_or_check(PATH, document)

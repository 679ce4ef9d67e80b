"""A stand-in for AOSP's ``test_generator.py``: what exported specs and small ones use of it, without variations."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar


class SymmPerChannelQuantParams:
    def __init__(self, channelDim: int, scales: list[float], hide: bool = False) -> None:
        self.channelDim, self.scales, self.hide = channelDim, scales, hide


class Operand:
    lifetime = "TEMPORARY_VARIABLE"

    def __init__(self, name: str, declared: tuple[Any, ...], value: Any = None, extraParams: Any = None) -> None:
        code, dims, scale, point = (*declared, *(0.0, 0)[len(declared) - 2 :])
        self.type = SimpleNamespace(type=code, dimensions=dims, scale=scale, zeroPoint=point, extraParams=extraParams)
        self.value, self.model_index = value, -1


class Internal(Operand):
    pass


class Input(Operand):
    lifetime = "SUBGRAPH_INPUT"


class Output(Operand):
    lifetime = "SUBGRAPH_OUTPUT"


class IgnoredOutput(Output):
    pass


class Parameter(Operand):
    def __init__(self, name: str, declared: tuple[Any, ...], value: Any, extraParams: Any = None) -> None:
        super().__init__(name, declared, value, extraParams)
        self.lifetime = "NO_VALUE" if value is None else "CONSTANT_COPY"


class SubgraphReference(Operand):
    lifetime = "SUBGRAPH"

    def __init__(self, model: Model) -> None:
        super().__init__("", ("SUBGRAPH", []))
        self.model = model


class Model:
    version: str | None = None
    isRelaxed = False

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.operations: list[SimpleNamespace] = []

    def _add(self, *operands: Operand) -> Model:
        for operand in operands:
            if operand not in self.operands:
                operand.model_index = len(self.operands)
                self.operands.append(operand)
        return self

    IdentifyInputs = IdentifyOutputs = _add

    def Operation(self, optype: str, *arguments: Operand | Model) -> Model:
        ins = [SubgraphReference(a) if isinstance(a, Model) else a for a in arguments]
        self.operations.append(SimpleNamespace(optype=optype, ins=ins, outs=[]))
        return self._add(*ins)

    def To(self, outs: Any) -> Model:
        self.operations[-1].outs = outs if isinstance(outs, list) else [outs]
        return self._add(*self.operations[-1].outs)

    def RelaxedExecution(self, relaxed: bool) -> Model:
        self.isRelaxed = relaxed
        return self

    def IntroducedIn(self, version: str) -> Model:
        self.version = version
        return self

    def GetInputs(self) -> list[Operand]:
        return [o for o in self.operands if isinstance(o, Input)]

    def GetOutputs(self) -> list[Operand]:
        return [o for o in self.operands if isinstance(o, Output)]

    def GetReferencedModels(self) -> list[Model]:
        found: list[Model] = []

        def visit(model: Model) -> None:
            for operand in model.operands:
                if isinstance(operand, SubgraphReference):
                    operand.value = [len(found)]
                    found.append(operand.model)
                    visit(operand.model)

        visit(self)
        return found


class Example:
    examples: ClassVar[list[Example]] = []
    expectFailure = False
    expectedMultinomialDistributionTolerance = 0

    def __init__(self, values: dict[Operand, Any], model: Model) -> None:
        self.model, self.values, self.testName = model, values, FileNames.specName
        Example.examples.append(self)

    def ExpectFailure(self) -> None:
        self.expectFailure = True

    @staticmethod
    def DumpAllExamples(DumpExample: Callable[[Example, Any], None], example_fd: Any) -> None:
        for example in Example.examples:
            for operand, value in example.values.items():
                operand.value = value
            DumpExample(example, example_fd)


class FileNames:
    fileIndex = 0
    specName = ""

    @staticmethod
    def InitializeFileLists(spec: str, example: None) -> None:
        FileNames.specName = os.path.basename(spec).split(".")[0]

    @staticmethod
    def NextFile() -> bool:
        Example.examples = []
        return True


def GetExecScope() -> dict[str, Any]:
    kinds = (Input, Output, IgnoredOutput, Internal, Parameter, Model, Example, SymmPerChannelQuantParams)
    return {kind.__name__: kind for kind in kinds}

"""The one place that puts a file and a phone together: what would happen to this file on this phone.

Everything that people use (commands, ``nnbridge.plan`` and its siblings, matrix, searches, advice, the explorer, benchmarks)
asks here and gets the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from nnbridge import devices as device_list
from nnbridge.ahead import in_order
from nnbridge.converters.delegation import (
    CLIENTS,
    HALVES_RULE,
    DelegateTarget,
    PhoneVerdict,
    Refusal,
    refusal_of,
    verdict_of,
    whole_or_nothing,
)
from nnbridge.converters.inspection import Mapped, mapped_as_dict
from nnbridge.converters.mapping import MappingKind
from nnbridge.cost import cost_of
from nnbridge.devices.device import Device, cache_files_needed
from nnbridge.devices.hardware import androids_of
from nnbridge.devices.source_profiles import BoundDevice, SourceProfile
from nnbridge.engines import host_for
from nnbridge.engines.loading import Loading, LoadingQuestion, question_of
from nnbridge.errors import ConversionError, InputError, NnapiError, OptionError, Reason, Stage, Why, cannot_read
from nnbridge.escaping import element
from nnbridge.file import ModelFile
from nnbridge.json_data import document
from nnbridge.model import Model
from nnbridge.plan_data import plan_as_dict, refusals_as_dict
from nnbridge.platforms import available_cores
from nnbridge.records import dataclass
from nnbridge.releases import NEWEST, RUNTIMES
from nnbridge.runtime.compilation import Compilation, PartitioningMode, supported_operations
from nnbridge.runtime.feature_level_slices import Slices
from nnbridge.runtime.partition_limits import undelegated
from nnbridge.runtime.placement import Answer, ask
from nnbridge.storage import checksum
from nnbridge.summary import Summary, summarise, summarise_claims
from nnbridge.target import PARTITIONING, PREFERENCES, Fallback, Target
from nnbridge.types import ANDROID_LEVELS

if TYPE_CHECKING:
    import pandas

_TURN = 64
"""Samples at most that a thread of :meth:`Planned.map` takes at a time."""


def plan(file: ModelFile, target: Target, *, prepare: bool = True, asks: bool = False) -> Planned:
    """The plan of a file for a phone.

    ``asks``: LiteRT or ONNX Runtime, if installed, is asked beside it whether it loads the file (:attr:`Planned.disagreement`);
    every door does, searches over edited files do not. Without ``prepare`` nothing can run, and steps that a device would fail to
    prepare are not noticed. ConversionError for what
    is wrong with the file, InputError for options, NnapiError where devices refuse and nothing may fall back; the error's
    ``planned`` is then the plan as far as it came.
    """
    return draft(file, target, asks=asks).finish(prepare=prepare)


def draft(file: ModelFile, target: Target, *, asks: bool = False, begun: Loading | None = None) -> Planned:
    """The plan before devices are asked (:meth:`Planned.finish`). ``begun``: a reference that reads the same file already."""
    asked = question_of(file.path, file.format if file.mapping in CLIENTS else "", begun) if asks else None
    file = file.with_(feature_level=target.level) if "feature_level" in file.importer.options else file
    devices, of_devices = opened_devices(file, target)
    fallback = target.fallback_for(file.mapping, file.asked.tflite)
    limit = target.partition_limit(file.mapping, of_devices, file.asked.tflite)
    in_force = limit
    if fallback is Fallback.APP:
        file, devices, in_force = *_left_to_app(file, devices, limit), 0
    found = Planned(file, target, _compilation(file, target, devices, fallback), fallback, limit, asked)
    found.compilation.not_run = found.not_loaded
    found.compilation.refused = frozenset(found.left or ())
    with found.naming_file():
        found.compilation.set_max_partitions(in_force)
    return found


def opened_devices(file: ModelFile, target: Target) -> tuple[list[Device], int | None]:
    """The devices, those that look at a file's operators with their answers for this file; and their limit on partitions.

    A compiler has no limit, a delegate its own; None where no such device is among them.
    """
    named = [device_list.device(one) if isinstance(one, str) else one for one in target.devices]
    found = [one.bound(file.source_graph) if isinstance(one, SourceProfile) else one for one in named]
    limits = [one.profile.max_partitions for one in found if isinstance(one, BoundDevice)]
    return found, min(limits) if limits else None


def _compilation(file: ModelFile, target: Target, devices: Sequence[Device], fallback: Fallback) -> Compilation:
    chosen = [*devices, *host_for(target.host, file)]
    settings: dict[str, Any] = {"kernels": target.kernels, "threads": target.threads}
    if fallback is Fallback.CPU:
        mode = PartitioningMode(PARTITIONING.index(target.partitioning))
        compilation = Compilation.create(file.model, chosen, mode, **settings)
    else:
        compilation = Compilation.create_for_devices(file.model, chosen, **settings)
    compilation.set_preference(PREFERENCES[target.preference])
    if target.cache_dir is not None:
        if any(cache_files_needed(device) != (0, 0) for device in chosen if device.kind == "device"):
            try:
                target.cache_dir.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InputError(Reason("a folder that can be created", cannot_read(error), operand="cache_dir")) from error
        compilation.set_caching(target.cache_dir, checksum(file.model))
    return compilation


def _left_to_app(file: ModelFile, devices: Sequence[Device], limit: int) -> tuple[ModelFile, list[Device]]:
    """The file and the devices as TFLite's delegate has them without NNAPI's CPU.

    Operators that the devices refuse, and those of partitions beyond ``limit`` (0: none), stay with the app's own runtime, as
    operations of the host. The lowest feature level of the devices counts. OptionError for other mappings than the delegate's.
    """
    if file.mapping != MappingKind.DELEGATE:
        rule = "the mapping of TFLite's delegate, which leaves operators to the app's TFLite"
        raise OptionError(Reason(rule, file.mapping, operand="fallback", file=str(file.path)))
    levels = [int(device.level) for device in devices if device.kind == "device"]
    offered = file.with_(feature_level=min(file.asked.feature_level, *levels, 8), accelerated=bool(levels))
    slices = Slices(offered.model)
    answers = zip(*(ask(device, offered.model, slices) for device in devices), strict=True)
    refusals = [None if any(answer.supported for answer in several) else _named(several[0]) for several in answers]
    left = undelegated(offered.model.main, refusals, limit)
    beyond = {index: why for index, why in left.items() if why.kind is Why.PARTITIONS}
    handed = {one.index for one in offered.mapped if one.mapping == MappingKind.DELEGATE}
    left = {index: why for index, why in left.items() if index in handed}
    if offered.model.states and not any(isinstance(device, BoundDevice) for device in devices):
        # Operators on variables are no operations of the model, and cut TFLite's partitions all the same.
        verdict = delegate_verdict(offered, devices, limit)
        graph = None if verdict is None else next((one for one in verdict.graphs if one.subgraph == 0), None)
        if graph is not None:
            kept = {node for group in graph.groups for node in group}
            left = {index: why for index, why in left.items() if why.kind is not Why.PARTITIONS}
            rule = f"one of the {limit} largest delegated partitions, which operators on variables cut (--max-partitions {limit})"
            left |= {i: Reason(rule, kind=Why.PARTITIONS) for i in handed - kept - set(left)}
    refused = [why for why in left.values() if why.kind is not Why.PARTITIONS]
    if refused and levels and whole_or_nothing(offered.mapped):
        left = dict.fromkeys(handed, replace(refused[0], rule=HALVES_RULE, found=str(refused[0])))
    # Devices before NNAPI take operators that NNAPI has not, too.
    limited = [device.without(beyond) if beyond and isinstance(device, BoundDevice) else device for device in devices]
    found = offered.with_(left=left)
    if not left and all(operation.source is not None for operation in offered.model.main.operations):
        found.converts_as(offered)  # Only copies of outputs, which no operator of the file is, would be the host's.
    return found, limited


def _named(answer: Answer) -> Reason | None:
    return None if answer.reason is None else replace(answer.reason, device=answer.device)


def _has_several_graphs(file: ModelFile) -> bool:
    found = file.importer.delegation()
    return found is not None and len(found.graphs()) > 1


def delegate_target(file: ModelFile, drivers: Sequence[Device]) -> DelegateTarget:
    """The settings that TFLite's delegate compiles for."""
    level = min([file.asked.feature_level, *(int(device.level) for device in drivers)])
    return DelegateTarget(level, bool(drivers), file.asked.tflite)


def delegate_verdict(file: ModelFile, devices: Sequence[Device], limit: int) -> PhoneVerdict | None:
    """The verdict of TFLite's delegate on each graph of a file; None for formats that it does not read.

    ``devices``: those that it compiles for without NNAPI's CPU; with none, that CPU computes what is handed over. The lowest
    feature level counts. ``limit``: of partitions of each graph, 0 for none.
    """
    delegation = file.importer.delegation()
    if delegation is None:
        return None
    drivers = [device for device in devices if device.kind == "device"]
    return verdict_of(
        delegation,
        delegate_target(file, drivers),
        supported=partial(supported_operations, devices=drivers) if drivers else None,
        limit=limit,
        allow_dynamic_dimensions=file.asked.allow_dynamic_dimensions,
    )


@dataclass(frozen=True, repr=False)
class Planned:
    """A file on a phone: what is handed over, which device runs what and why no other, and the means to run it."""

    file: ModelFile
    """The file as it was converted for the phone."""
    target: Target
    compilation: Compilation
    fallback: Fallback
    """The place of what devices do not get."""
    max_partitions: int
    """The limit on partitions that held; 0 for none."""
    asked: LoadingQuestion | None = None
    """The installed runtime, asked whether it loads the file."""

    def finish(self, *, prepare: bool = True) -> Planned:
        """Ask the devices and prepare the steps; once. Errors as :func:`plan`."""
        with self.naming_file():
            self.compilation.finish(prepare=prepare)
        return self

    @contextmanager
    def naming_file(self) -> Iterator[None]:
        """NNAPI's errors with the model's file in front, and with this plan."""
        try:
            yield
        except NnapiError as error:
            reason = error.reason
            found = type(error)(replace(reason, file=str(self.file.path)))
            found.planned = self
            raise found from error

    @property
    def model(self) -> Model:
        """The NNAPI model that is compiled."""
        return self.compilation.model

    @property
    def mapping(self) -> str:
        """``delegate``, ``provider`` or ``wide``."""
        return self.file.mapping

    @property
    def mapped(self) -> tuple[Mapped, ...]:
        """The outcome of each operator's conversion; empty for saved models."""
        return self.file.mapped

    @property
    def left(self) -> Mapping[int, Reason] | None:
        """Operators of the main graph that stay with the app's runtime as the devices do not get them; None without that."""
        return self.file.options.left

    @property
    def drivers(self) -> tuple[Device, ...]:
        """The devices that the model is offered to, without NNAPI's CPU and the host."""
        return tuple(device for device in self.compilation.devices if device.kind == "device")

    @property
    def bound(self) -> list[BoundDevice]:
        """The devices before NNAPI, with their answers, if all devices are such; else none."""
        found = [device for device in self.drivers if isinstance(device, BoundDevice)]
        return found if len(found) == len(self.drivers) else []

    @cached_property
    def summary(self) -> Summary:
        """The plan in counts, and in a sentence."""
        android = self.target.android_name
        if self.bound:
            claims = {device.name: [claim.accepted for claim in device.claims] for device in self.bound}
            graph = self.bound[0].graph
            foreign = {index for subgraph, index in self.file.importer.foreign if subgraph == graph.subgraph}
            failures = {device.name: device.failure for device in self.bound if device.failure is not None}
            refusal = self._loading_refusal
            return summarise_claims(self.compilation, graph.operators, claims, android, foreign, failures, refusal)
        foreign_keys = self.file.importer.foreign
        found = summarise(self.compilation, self.mapped, self.mapping, android, self.left, self.verdict, foreign_keys)
        found = replace(found, release="".join(release for release in self.releases.values() if release != NEWEST))
        if not any(reason.kind is Why.DYNAMIC_GRAPH for one in self.mapped for reason in one.reasons):
            return found
        allowed = draft(self.file.with_(allow_dynamic_dimensions=True, left=None), self.target).finish(prepare=False)
        return replace(found, otherwise=allowed.summary.handed_over)

    @cached_property
    def verdict(self) -> PhoneVerdict | None:
        """The verdict on each graph of a file that has several: TFLite offers them to its delegate one by one. Else None."""
        if self.mapping != MappingKind.DELEGATE or self.bound or not _has_several_graphs(self.file):
            return None
        return delegate_verdict(self.file, self.drivers if self.fallback is Fallback.APP else (), self.max_partitions)

    @property
    def not_loaded(self) -> ConversionError | None:
        """The reason why the file's own runtime does not load it: nothing of it runs; None for files that it loads.

        Executions of :attr:`compilation` raise it.
        """
        refusal = self._loading_refusal
        if refusal is None:
            return None
        rule = f"a file that {refusal.client.runtime} loads, with {refusal.reason.rule} (the wide mapping computes others, too)"
        return ConversionError(replace(refusal.reason, rule=rule, file=str(self.file.path)))

    @cached_property
    def _loading_refusal(self) -> Refusal | None:
        """The refusal of the file's own runtime, unless another one runs what the device's compiler makes of the file."""
        elsewhere = self.bound and all(device.profile.app for device in self.bound)
        return None if elsewhere else self._refusal_to_load

    @cached_property
    def _refusal_to_load(self) -> Refusal | None:
        refusal = refusal_of(self.mapped, self.mapping)
        return None if refusal is None or refusal.stage is not Stage.LOADING else refusal

    @property
    def loads(self) -> bool | None:
        """True if the app's runtime loads the file by nnbridge's rules; None where these say nothing: custom operators, and
        releases that are not installed."""
        older = any(release != NEWEST for release in self.releases.values())
        if self.mapping not in CLIENTS or self.bound or self.file.importer.foreign or older:
            return None
        return self.not_loaded is None

    def require_loaded(self) -> None:
        """:attr:`not_loaded`, before parts of the model are compiled and run, or other devices run it; also where only the
        installed runtime does not load the file."""
        if self.compilation.not_run is not None:
            raise self.compilation.not_run
        if self.loads and self.disagreement and self.asked is not None and self.asked.answer():
            rule = f"a file that {CLIENTS[self.mapping].runtime} loads"
            raise ConversionError(Reason(rule, self.asked.answer(), file=str(self.file.path), stage=Stage.LOADING))

    @property
    def disagreement(self) -> str:
        """A sentence where the installed runtime, which was asked, does not load a file that nnbridge's rules say it loads, or
        the other way round; waits for its answer. Empty where they agree, or none was asked."""
        return "" if self.asked is None else self.asked.disagreement(self.loads)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the file and the target that a reader of the plan must know."""
        profiles = [device.name for device in self.drivers if device.is_profile]
        mixture = f"No phone is known to offer a model to {' and '.join(profiles)}: this is a mixture of devices."
        refusal, apps = self._refusal_to_load, {device.profile.app for device in self.bound}
        compiled = f"{refusal.judgement}; what the compiler makes of it runs on {' and '.join(apps)}." if refusal else ""
        others = [compiled] if compiled and apps and all(apps) else []
        said = [mixture] * (len(profiles) > 1) + [self.disagreement] * bool(self.disagreement)
        said += self.of_other_androids
        return (*self.file.importer.remarks, *others, *said)

    @property
    def of_other_androids(self) -> list[str]:
        """A sentence for each release of a driver that belongs to other Android versions than the target."""
        target, found = self.target, []
        for driver in self.drivers:
            stated = androids_of(driver.name.partition("@")[0])
            same = target.android in stated if target.android else target.level in {ANDROID_LEVELS[one] for one in stated}
            if stated and not same:
                versions, own = " and ".join(stated), f"--android {stated[-1]} is the driver's"
                found.append(f"{driver.name} belongs to Android {versions}, this plan to {target.android_name}: {own}.")
        return found

    @property
    def releases(self) -> dict[str, str]:
        """The release of the app's runtime, under the name of its option; empty for formats that no runtime delegates."""
        return {name: getattr(self.file.options, name) for name in RUNTIMES if name in self.file.importer.options}

    @property
    def refusals(self) -> list[dict[str, Any]]:
        """Operations that no device supports, with each device's reason, after a finish that failed."""
        return refusals_as_dict(self.compilation)

    def run(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """The outputs by name for one set of inputs: arrays by name, or in the model's order.

        Shapes and types are the model's; what can be converted without loss is. A sequence or an optional value is a list of
        arrays, text an array of strings. States begin as the file has them. InputError for inputs that do not fit,
        ConversionError for a file that the app's runtime does not load.
        """
        from nnbridge.extensions import codec_of
        from nnbridge.runtime.execution import Execution

        outputs: dict[str, Any] = Execution(self.compilation).run(inputs)
        main = self.compilation.model.main
        for name, i in zip(outputs, main.outputs, strict=False):
            if (codec := codec_of(main.operands[i])) is not None:
                values = codec.unpack(outputs[name])
                outputs[name] = values if codec.several else values[0]
        return outputs

    def map(self, samples: Iterable[Any], *, threads: int | None = None) -> Iterator[dict[str, Any]]:
        """The outputs as of :meth:`run` for each of many sets of inputs, in their order.

        ``threads`` compute at the same time, each by the plan's own threads; default: as the process has cores. They ask a
        sequence for its samples (a list, a :class:`~nnbridge.inputs.Dataset`, what has ``len`` and ``[k]``), so that reading
        and preparing take all cores as well; of other iterables one thread at a time takes the next. Two turns for each thread
        are taken ahead, no more. What a sample raises comes in its place, and ends the iterator.
        """
        count = threads or max(1, available_cores() // self.compilation.threads)

        def inputs_of(sample: Any) -> Any:
            return getattr(sample, "inputs", sample)

        if isinstance(samples, Sized) and hasattr(samples, "__getitem__"):
            indexed: Any = samples
            return in_order(lambda k: self.run(inputs_of(indexed[k])), range(len(samples)), count, most=_TURN)
        return in_order(lambda sample: self.run(inputs_of(sample)), samples, count, most=_TURN)

    def to_dict(self) -> dict[str, Any]:
        """The object that ``nnbridge plan --json`` prints, without the additions of its options."""
        cost = cost_of(self.compilation.plan)
        data = {
            **plan_as_dict(self.compilation),
            "model": str(self.file.path),
            "max_partitions": self.max_partitions,
            "fallback_to": self.fallback.value,
            **self.releases,
            "summary": self.summary.as_dict(),
            "notes": list(self.notes),
            "cost": cost.as_dict(),
            "conversion": {self.mapping: mapped_as_dict(self.mapped)},
        }
        return document("plan", data)

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each operation: its type, name, operator of the file, place, device and why not elsewhere.

        ImportError without pandas.
        """
        import pandas

        rows = [
            {
                **{key: row[key] for key in ("index", "within", "type", "name", "mapping", "place", "device")},
                "operator": (row["operator"] or {}).get("operator", ""),
                "operator_index": (row["operator"] or {}).get("index"),
                "reasons": "; ".join(f"{why['device']}: {why.get('rule', '')}" for why in row["reasons"]),
            }
            for row in plan_as_dict(self.compilation)["operations"]
        ]
        return pandas.DataFrame(rows)

    def __str__(self) -> str:
        return "\n".join(self.summary.lines)

    def __repr__(self) -> str:
        return (
            f"Planned({self.file.path.name!r}: {self.summary.judgement or self.summary.sentence})"
            if self.is_finished
            else f"Planned({self.file!r})"
        )

    @property
    def is_finished(self) -> bool:
        """True once the devices were asked."""
        return self.compilation.placements != () or self.compilation.is_ready

    def _repr_html_(self) -> str:
        """The sentence and the steps, for notebooks."""
        rows = [("step", "device", "operations")]
        for number, step in enumerate(plan_as_dict(self.compilation)["steps"]):
            rows.append((str(number), step["device"], str(len(step["operations"]))))
        cells = (element("tr", *(element("td" if k else "th", text) for text in row)) for k, row in enumerate(rows))
        lines = (part for line in str(self).split("\n") for part in (element("br"), line))
        return element("p", *list(lines)[1:]).html + element("table", *cells).html

    def __reduce__(self) -> tuple[Any, ...]:
        return plan, (ModelFile(self.file.path, self.file.asked), self.target)

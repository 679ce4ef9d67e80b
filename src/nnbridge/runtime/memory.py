"""Memories: what executions read from and write to, besides buffers of the caller.

``Memory`` is plain shared memory: a mapped descriptor, a buffer, or bytes of its own. ``MemoryDesc`` describes a memory by
the roles that it plays in compilations; what is allocated from one is a *device memory*: it has a type and dimensions, is
uninitialised at first and serves in its roles only (feature level 4). nnbridge's devices all see the host's memory, so that
what a device allocates can be read by everybody; who allocates it, and what happens where that fails, is as on Android.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nnbridge.devices.device import BufferRole, Device, PreparedModel
from nnbridge.errors import BadDataError, BadStateError, NnapiError, OpFailedError, OutOfMemoryError, Reason, UnmappableError
from nnbridge.extensions import value_size
from nnbridge.model import Operand, Pool, known
from nnbridge.operations.validation import MAX_TENSOR_BYTES
from nnbridge.records import dataclass
from nnbridge.runtime.compilation import Compilation
from nnbridge.runtime.driver_calls import called
from nnbridge.runtime.partitioner import StepRole
from nnbridge.types import FeatureLevel, is_extension

Bytes = npt.NDArray[np.uint8]
INPUT, OUTPUT = "input", "output"
_READ, _WRITE = 1, 2
"""mmap's PROT_READ and PROT_WRITE, which Python has not on Windows."""


@dataclass(frozen=True)
class Role:
    """An input or output of a compilation."""

    compilation: Compilation
    direction: str
    index: int

    @property
    def operand(self) -> Operand:
        """The model operand of the role."""
        main = self.compilation.model.main
        return main.operands[self._place]

    @property
    def _place(self) -> int:
        main = self.compilation.model.main
        return (main.inputs if self.direction == INPUT else main.outputs)[self.index]

    def uses(self) -> list[tuple[Device, tuple[PreparedModel, StepRole]]]:
        """The steps of the compilation's plan that read or write the memory: their devices and prepared models."""
        plan = self.compilation.plan
        roles = sorted(plan.partition.roles((0, self._place)), key=lambda use: (use.step, use.direction, use.index))
        return [(plan.devices[plan.steps[use.step].device], (plan.prepared[use.step], use)) for use in roles]


class Memory:
    """``ANeuralNetworksMemory``: plain memory. Offsets and lengths are bytes."""

    def __init__(self, size: int, content: Bytes | None = None, pool: Pool | None = None) -> None:
        self.size = size
        self._content = content
        self._pool = pool

    @classmethod
    def of(cls, buffer: object) -> Memory:
        """A memory over anything with the buffer protocol; nothing is copied."""
        view = np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]  # NumPy's stubs know no plain buffers
        return cls(view.nbytes, view)

    @classmethod
    def shared(cls, size: int) -> Memory:
        """Anonymous memory that forked processes share."""
        if size <= 0:
            raise BadDataError(Reason("a size above 0", str(size), "Memory"))
        return cls(size, np.frombuffer(mmap.mmap(-1, size), np.uint8))

    @classmethod
    def from_fd(cls, size: int, protection: int, fd: int, offset: int = 0) -> Memory:
        """``createFromFd``: ``size`` bytes of a descriptor from ``offset`` on; the descriptor is duplicated (fact Y1).

        ``protection`` holds mmap's PROT_READ and PROT_WRITE. OP_FAILED for a descriptor that cannot be duplicated; wrong
        sizes and protections are found when the memory is used.
        """
        try:
            duplicate = os.dup(fd)
        except (OSError, OverflowError) as error:
            raise OpFailedError(Reason("a descriptor that can be duplicated", f"{fd}: {error}", "createFromFd")) from error
        return _MappedMemory(size, protection, duplicate, offset)

    # -- use --------------------------------------------------------------------------------------------------------

    @property
    def content(self) -> Bytes:
        """All bytes; UNMAPPABLE if they cannot be had."""
        assert self._content is not None
        return self._content

    def part(self, offset: int, length: int, role: Role | None = None, call: str = "") -> Bytes:
        """The bytes of one use; BAD_DATA outside the memory (fact Y4)."""
        if (offset == 0 and length == 0) or offset < 0 or length < 0 or offset + length > self.size:
            raise BadDataError(Reason(f"a place inside {self.size} bytes", f"{offset}+{length}", call))
        return self.content[offset : offset + length]

    def as_pool(self) -> Pool:
        """The memory as a pool that holds constants."""
        if self._pool is None:
            self._pool = Pool.of(self.content)
        return self._pool

    def check_input(self, dims: tuple[int, ...]) -> None:
        """Plain memories are always initialised."""

    def written(self, dims: tuple[int, ...] | None) -> None:
        """An execution wrote the memory: its dimensions, or None if it failed."""

    def combined(self, dims: tuple[int, ...], call: str) -> tuple[int, ...]:
        """The dimensions of a use."""
        return dims

    @property
    def initialised(self) -> bool:
        """True if there is something to read."""
        return True

    def copy_to(self, target: Memory) -> None:
        """``Memory_copy``: BAD_DATA unless this memory is initialised and fits the target (facts Y26 to Y31)."""
        if target is self:
            return
        try:
            if not self.initialised:
                raise BadDataError(Reason("an initialised source", "one that is not", "Memory_copy"))
            dims = self._fitting(target)
            if not target.content.flags.writeable:
                raise BadDataError(Reason("memory that can be written", "another", "Memory_copy"))
            size = min(self.size, target.size)
            target.content[:size] = self.content[:size]
        except NnapiError:
            target.written(None)
            raise
        target.written(dims)

    def _fitting(self, target: Memory) -> tuple[int, ...]:
        """Dimensions that the target gets; BAD_DATA if the two do not fit."""
        if isinstance(target, DeviceMemory):
            return target.accepts_plain(self.size)
        if self.size != target.size:
            raise BadDataError(Reason(f"a target of {self.size} bytes", str(target.size), "Memory_copy"))
        return ()

    def close(self) -> None:
        """Release the memory; what still uses it holds its mapping."""
        self._content = None


class _MappedMemory(Memory):
    """Memory of a descriptor, mapped at first use."""

    def __init__(self, size: int, protection: int, fd: int, offset: int) -> None:
        super().__init__(size)
        self._protection = protection
        self._fd = fd
        self._offset = offset

    @property
    def content(self) -> Bytes:
        if self._content is None:
            self._content = self._mapped()
        return self._content

    def _mapped(self) -> Bytes:
        if self.size <= 0 or self._protection & ~(_READ | _WRITE) or self._fd < 0:
            rule = "a size above 0 and no protection but PROT_READ and PROT_WRITE"
            raise BadDataError(Reason(rule, f"{self.size}, {self._protection}", "createFromFd"))
        start = self._offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        try:
            access = mmap.ACCESS_WRITE if self._protection & _WRITE else mmap.ACCESS_READ
            mapped = mmap.mmap(self._fd, self._offset - start + self.size, access=access, offset=start)
        except (OSError, ValueError, OverflowError) as error:
            raise UnmappableError(Reason(f"{self.size} bytes at {self._offset} of a descriptor", str(error))) from error
        return np.frombuffer(mapped, np.uint8)[self._offset - start :]

    def close(self) -> None:
        super().close()
        self._close_fd()

    def _close_fd(self, close: Callable[[int], None] = os.close) -> None:
        # Bound above, as ``os`` may be gone when the interpreter ends.
        if self._fd >= 0:
            close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self._close_fd()


class DeviceMemory(Memory):
    """A memory allocated from a descriptor: typed, for its roles only, uninitialised until something writes it."""

    def __init__(self, operand: Operand, roles: frozenset[Role], content: Bytes, allocator: str) -> None:
        super().__init__(len(content), content)
        self._operand = operand
        self._declared = operand.dims
        self._roles = roles
        self.allocator = allocator
        """The device that allocated it; empty for the runtime's own memory."""
        self.dims = operand.dims
        """The dimensions of what is in it."""
        self._initialised = False

    @property
    def initialised(self) -> bool:
        return self._initialised

    def part(self, offset: int, length: int, role: Role | None = None, call: str = "") -> Bytes:
        """Fact Y22: whole, and in a role of its descriptor."""
        if (offset, length) != (0, 0):
            raise BadDataError(Reason("offset 0 and length 0 for a device memory", f"{offset}+{length}", call))
        if role not in self._roles:
            raise BadDataError(Reason("a role of the memory's descriptor", "another use", call))
        return self.content

    def as_pool(self) -> Pool:
        raise BadDataError(Reason("a plain memory for constants", "a device memory", "setOperandValueFromMemory"))

    def check_input(self, dims: tuple[int, ...]) -> None:
        """Facts E23, Y21, Y23."""
        if not self._initialised:
            raise OpFailedError(Reason("an initialised memory as input", "one that is not", "compute"))
        if dims != self.dims:
            raise OpFailedError(Reason(f"an input of {list(self.dims)} as in the memory", str(list(dims)), "compute"))

    def written(self, dims: tuple[int, ...] | None) -> None:
        """Fact Y24."""
        self._initialised = dims is not None
        if dims is not None:
            self.dims = dims
            self.size = value_size(replace(self._operand, dims=dims)) if known(dims) else len(self.content)

    def combined(self, dims: tuple[int, ...], call: str) -> tuple[int, ...]:
        found = combine_dims(self._declared, dims)
        if found is None:
            raise BadDataError(Reason(f"dimensions that fit the memory's {list(self._declared)}", str(list(dims)), call))
        return found

    def accepts_plain(self, size: int) -> tuple[int, ...]:
        """Plain bytes of exactly the memory's size."""
        if size != self.size:
            raise BadDataError(Reason(f"{self.size} bytes", str(size), "Memory_copy"))
        return self._declared

    def _fitting(self, target: Memory) -> tuple[int, ...]:
        if not isinstance(target, DeviceMemory):
            return super()._fitting(target)
        if not _alike(self._operand, target._operand) or combine_dims(target._declared, self.dims) is None:
            raise BadDataError(Reason("a target of the same type, parameters and dimensions", "another", "Memory_copy"))
        return self.dims


class MemoryDesc:
    """``ANeuralNetworksMemoryDesc``: add roles, maybe dimensions, finish, then make memories of it."""

    def __init__(self) -> None:
        self._roles: dict[Role, float] = {}
        self._operand: Operand | None = None
        self._dims: tuple[int, ...] = ()
        self._finished = False

    def add_input_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """``addInputRole``: the memory will be this input; BAD_DATA if that does not fit (facts Y9 to Y13)."""
        self._add(Role(compilation, INPUT, index), frequency)

    def add_output_role(self, compilation: Compilation, index: int, frequency: float) -> None:
        """``addOutputRole``."""
        self._add(Role(compilation, OUTPUT, index), frequency)

    def _add(self, role: Role, frequency: float) -> None:
        call = f"add{role.direction.capitalize()}Role"
        self._require_open(call)
        if not 0 < frequency <= 1:
            raise BadDataError(Reason("a frequency above 0, 1 at most", str(frequency), call))
        if not role.compilation.is_ready:
            raise BadDataError(Reason("a compilation that finished", "one that did not", call))
        main = role.compilation.model.main
        count = len(main.inputs if role.direction == INPUT else main.outputs)
        if not 0 <= role.index < count:
            raise BadDataError(Reason(f"an index below {count}", str(role.index), call))
        if role in self._roles:
            raise BadDataError(Reason("each role once", f"{role.direction} {role.index} again", call))
        operand = role.operand
        dims = combine_dims(self._dims, operand.dims)
        if dims is None or (dims and _is_scalar(operand)) or (self._operand is not None and not _alike(self._operand, operand)):
            raise BadDataError(Reason("roles of one type, with the same parameters and dimensions", str(operand), call))
        self._roles[role] = frequency
        self._operand, self._dims = operand, dims

    def set_dimensions(self, dims: Sequence[int]) -> None:
        """``setDimensions``: fill in what the roles leave open; BAD_DATA for dimensions of a scalar (fact Y14)."""
        self._require_open("setDimensions")
        if dims and self._operand is not None and _is_scalar(self._operand):
            raise BadDataError(Reason("no dimensions for a scalar", str(list(dims)), "setDimensions"))
        combined = combine_dims(self._dims, tuple(dims))
        if combined is None:
            raise BadDataError(Reason(f"dimensions that fit {list(self._dims)}", str(list(dims)), "setDimensions"))
        self._dims = combined

    def finish(self) -> None:
        """``finish``: BAD_DATA without a role."""
        self._require_open("finish")
        if not self._roles:
            raise BadDataError(Reason("at least one role", "none", "MemoryDesc_finish"))
        self._finished = True

    def create(self) -> DeviceMemory:
        """``createFromDesc``: allocated by the one device that uses it, else the runtime's own memory (facts Y17 to Y20).

        The runtime's is for known sizes, and not for compilations with an explicit list of devices: OP_FAILED or the driver's
        error there.
        """
        if not self._finished:
            raise BadStateError(Reason("a descriptor that finished", "one that did not", "createFromDesc"))
        assert self._operand is not None
        operand, roles = replace(self._operand, dims=self._dims), frozenset(self._roles)
        unknown = operand.is_tensor and not known(self._dims)
        if not unknown and value_size(operand) > MAX_TENSOR_BYTES:
            raise OpFailedError(Reason(f"at most {MAX_TENSOR_BYTES} bytes", str(value_size(operand)), "createFromDesc"))
        try:
            device = self._allocator()
            return DeviceMemory(operand, roles, self._allocated(device, operand), device.name)
        except NnapiError:
            if unknown or any(role.compilation.explicit for role in roles):
                raise
        try:
            return DeviceMemory(operand, roles, np.empty(value_size(operand), np.uint8), "")
        except MemoryError as error:
            raise OutOfMemoryError(Reason(f"{value_size(operand)} bytes of memory", str(error), "createFromDesc")) from error

    def _allocator(self) -> Device:
        """The device of all steps that the roles stand for (fact Y17)."""
        users = {id(device): device for role in self._roles for device, _ in role.uses()}
        if len(users) != 1:
            found = ", ".join(sorted(device.name for device in users.values())) or "none"
            raise OpFailedError(Reason("one device that uses the memory", found, "createFromDesc"))
        (device,) = users.values()
        if device.kind == "device" and device.level < FeatureLevel.LEVEL_4:
            raise OpFailedError(Reason("a device of feature level 4", f"{device.name} of {int(device.level)}", "createFromDesc"))
        return device

    def _allocated(self, device: Device, operand: Operand) -> Bytes:
        """The memory that a device allocates, checked."""
        roles = [
            BufferRole(prepared, use.direction, use.index, frequency)
            for role, frequency in self._roles.items()
            for _, (prepared, use) in role.uses()
        ]
        content = called(lambda: device.allocate(operand, roles), "allocate", device.name)
        least = value_size(operand) if known(operand.dims) or not operand.is_tensor else 1
        right = isinstance(content, np.ndarray) and content.dtype == np.uint8 and content.ndim == 1 and content.flags.writeable
        if not right or len(content) < least:
            raise OpFailedError(Reason(f"{least} writable bytes", type(content).__name__, device.name, "allocate"))
        return content[:least] if known(operand.dims) or not operand.is_tensor else content

    def _require_open(self, call: str) -> None:
        if self._finished:
            raise BadStateError(Reason("a descriptor that is not finished", "finished", call))


def combine_dims(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...] | None:
    """Fact Y13: dimensions of two uses, unknown ones filled in; None if the two contradict."""
    if not a or not b:
        return a or b
    if len(a) != len(b):
        return None
    combined = tuple(x or y for x, y in zip(a, b, strict=True))
    fits = all(x in (0, z) and y in (0, z) for x, y, z in zip(a, b, combined, strict=True))
    return combined if fits else None


def _is_scalar(operand: Operand) -> bool:
    return not operand.is_tensor and not is_extension(operand.type)


def _alike(a: Operand, b: Operand) -> bool:
    """Same type, scale, zero point and extra parameters."""
    fields: tuple[Any, ...] = (a.type, a.scale, a.zero_point, a.channel_quant, a.extension_data)
    return fields == (b.type, b.scale, b.zero_point, b.channel_quant, b.extension_data)

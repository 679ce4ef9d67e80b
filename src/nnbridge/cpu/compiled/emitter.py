"""Emission of kernels: loads and stores by address, vectors, loops with carried values.

Addresses are 64-bit integers, so that kernels compute them like other numbers. Loops are written with their
carried values, which leaves nothing for LLVM's optimisation passes to do: none is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from nnbridge.cpu.compiled.instructions import InstructionSet
from nnbridge.cpu.compiled.values import (
    F16,
    F32,
    I1,
    I8,
    I16,
    I32,
    I64,
    VOID,
    IrValue,
    Operand,
    Type,
    element_of,
    mangled,
    size_of,
    vector,
)


class Emitter:
    """Emits one kernel's function."""

    def __init__(self, builder: Any, instructions: InstructionSet) -> None:
        self.builder = builder
        self.instructions = instructions
        self._spill: dict[int, IrValue] = {}
        self._vectors: dict[str, Any] = {}

    # -- constants and vectors ---------------------------------------------------------------------------------------

    def constant(self, kind: Type, value: float | Sequence[float]) -> IrValue:
        """A number, repeated in every lane of a vector type, or one number for each lane."""
        if not isinstance(kind, ir.VectorType):
            return IrValue(self, ir.Constant(kind, value))
        values = tuple(value) if isinstance(value, Sequence) else (value,) * kind.count
        return IrValue(self, self._vector(kind, values))

    def _vector(self, kind: Type, values: tuple[float, ...]) -> Any:
        """A constant vector. Equal ones are one object, whose text is made once: it takes most of the time of printing."""
        key = f"{kind} {values}"
        if key not in self._vectors:
            self._vectors[key] = ir.Constant(kind, [ir.Constant(kind.element, v) for v in values])
        return self._vectors[key]

    def number(self, value: int) -> IrValue:
        """A 64-bit integer."""
        return self.constant(I64, value)

    def undefined(self, kind: Type) -> IrValue:
        """Any value of a type."""
        return IrValue(self, ir.Constant(kind, ir.Undefined))

    def splat(self, value: IrValue, count: int) -> IrValue:
        """A scalar in every lane."""
        empty = ir.Constant(vector(value.type, count), ir.Undefined)
        first = IrValue(self, self.builder.insert_element(empty, value.raw, ir.Constant(I32, 0)))
        return self.shuffle(first, [0] * count)

    def splat_real(self, bits: IrValue, count: int) -> IrValue:
        """The float32 that an argument holds in its low half, in every lane."""
        return self.splat(bits.truncated(I32).bits(F32), count)

    def shuffle(self, a: IrValue, order: Sequence[int], b: IrValue | None = None) -> IrValue:
        """Lanes of ``a``, then of ``b``, by number."""
        other = self.undefined(a.type) if b is None else b
        mask = self._vector(vector(I32, len(order)), tuple(order))
        return IrValue(self, self.builder.shuffle_vector(a.raw, other.raw, mask))

    def join(self, a: IrValue, b: IrValue) -> IrValue:
        """The lanes of two vectors one after the other."""
        return self.shuffle(a, range(2 * a.count), b)

    def lane(self, value: IrValue, index: int) -> IrValue:
        """One element."""
        return IrValue(self, self.builder.extract_element(value.raw, ir.Constant(I32, index)))

    def insert(self, value: IrValue, element: IrValue, index: int) -> IrValue:
        """A vector with another element."""
        return IrValue(self, self.builder.insert_element(value.raw, element.raw, ir.Constant(I32, index)))

    def select(self, condition: IrValue, a: Operand, b: Operand) -> IrValue:
        """``a`` where the condition holds, else ``b``; one of them is a value."""
        kind = next(x.type for x in (a, b) if isinstance(x, IrValue))
        first, second = (x if isinstance(x, IrValue) else self.constant(kind, x) for x in (a, b))
        return IrValue(self, self.builder.select(condition.raw, first.raw, second.raw))

    # -- calls -------------------------------------------------------------------------------------------------------

    def call(self, name: str, result: Type, *arguments: IrValue) -> IrValue:
        """A function or intrinsic by its name."""
        module = self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return IrValue(self, self.builder.call(function, [a.raw for a in arguments]))

    def invoke(self, address: IrValue, *arguments: IrValue) -> None:
        """A function without a result, of 64-bit integers, by its address."""
        kind = ir.FunctionType(VOID, [a.type for a in arguments])
        self.builder.call(self.builder.inttoptr(address.raw, kind.as_pointer()), [a.raw for a in arguments])

    def _intrinsic(self, name: str, *arguments: IrValue) -> IrValue:
        return self.call(f"llvm.{name}.{mangled(arguments[0].type)}", arguments[0].type, *arguments)

    def _pair(self, a: IrValue, b: Operand) -> tuple[IrValue, IrValue]:
        return a, b if isinstance(b, IrValue) else self.constant(a.type, b)

    def smax(self, a: IrValue, b: Operand) -> IrValue:
        """The larger signed integer."""
        return self._intrinsic("smax", *self._pair(a, b))

    def smin(self, a: IrValue, b: Operand) -> IrValue:
        """The smaller signed integer."""
        return self._intrinsic("smin", *self._pair(a, b))

    def umax(self, a: IrValue, b: Operand) -> IrValue:
        """The larger unsigned integer."""
        return self._intrinsic("umax", *self._pair(a, b))

    def umin(self, a: IrValue, b: Operand) -> IrValue:
        """The smaller unsigned integer."""
        return self._intrinsic("umin", *self._pair(a, b))

    def clamp_real(self, x: IrValue, low: IrValue | None, high: IrValue | None) -> IrValue:
        """Real numbers within bounds; NaN stays NaN."""
        if low is not None:
            x = self.select(x < low, low, x)
        return x if high is None else self.select(x > high, high, x)

    def add_saturated(self, a: IrValue, b: IrValue) -> IrValue:
        """The sum of signed integers, limited to their range."""
        return self._intrinsic("sadd.sat", a, b)

    def fma(self, a: IrValue, b: IrValue, c: IrValue) -> IrValue:
        """``a * b + c`` rounded once where the processor can; ``a * b`` is rounded first with the plain instruction set."""
        if self.instructions.name == "plain":
            return a * b + c
        return self._intrinsic("fma", a, b, c)

    def sqrt(self, x: IrValue) -> IrValue:
        """Square roots."""
        return self._intrinsic("sqrt", x)

    def floor(self, x: IrValue) -> IrValue:
        """Largest integers not above."""
        return self._intrinsic("floor", x)

    def magnitude(self, x: IrValue) -> IrValue:
        """Absolute values of real numbers."""
        return self._intrinsic("fabs", x)

    def with_sign(self, x: IrValue, sign: IrValue) -> IrValue:
        """The magnitude of real numbers with the sign of others, of 0 too."""
        return self._intrinsic("copysign", x, sign)

    def total(self, x: IrValue) -> IrValue:
        """The sum of an integer vector's lanes."""
        return self.call(f"llvm.vector.reduce.add.{mangled(x.type)}", element_of(x.type), x)

    # -- memory ------------------------------------------------------------------------------------------------------

    def _pointer(self, address: IrValue, kind: Type) -> Any:
        return self.builder.inttoptr(address.raw, kind.as_pointer())

    def load(self, address: IrValue, kind: Type = I64, offset: int = 0) -> IrValue:
        """Load the value ``offset`` bytes after an address, which need not be aligned."""
        instruction = self.builder.load(self._pointer(address + offset, kind))
        instruction.align = 1
        return IrValue(self, instruction)

    def store(self, value: IrValue, address: IrValue, offset: int = 0) -> None:
        """Write a value to an address, which need not be aligned."""
        self.builder.store(value.raw, self._pointer(address + offset, value.type)).align = 1

    def store_first(self, value: IrValue, address: IrValue, count: IrValue) -> None:
        """Write the first ``count`` elements of a vector; none if it is negative, all if it is more than there are."""
        limit = self.smin(self.smax(count, 0), value.count)
        if not self.instructions.masks:
            # Through the stack: one copy of as many bytes.
            scratch = self.stack(64)
            self.store(value, scratch)
            self.copy(address, scratch, limit * size_of(element_of(value.type)))
            return
        lanes = self.constant(vector(I8, value.count), list(range(value.count)))
        mask = lanes.below(self.splat(limit.truncated(I8), value.count))
        pointer = self._pointer(address, value.type)
        name = f"llvm.masked.store.{mangled(value.type)}.p0"
        function = self.builder.module.globals.get(name)
        if function is None:
            kind = ir.FunctionType(VOID, [value.type, pointer.type, I32, mask.type])
            function = ir.Function(self.builder.module, kind, name)
        self.builder.call(function, [value.raw, pointer, ir.Constant(I32, 1), mask.raw])

    def store_rest(self, value: IrValue, address: IrValue, remaining: IrValue) -> None:
        """Write a vector where at least as many elements remain as it has, else the first ones."""
        self.when(
            remaining < value.count,
            lambda: self.store_first(value, address, remaining),
            lambda: self.store(value, address),
        )

    def store_rows(self, rows: Sequence[Sequence[IrValue]], addresses: Sequence[IrValue], columns: IrValue) -> None:
        """Write rows of vectors, each to its address: whole where that are all columns, otherwise as many as there are."""
        first = rows[0][0]
        placed = [(x, address, v) for row, address in zip(rows, addresses, strict=True) for v, x in enumerate(row)]

        def whole() -> None:
            for x, address, v in placed:
                self.store(x, address, v * size_of(first.type))

        def some() -> None:
            for x, address, v in placed:
                self.store_first(x, address + v * size_of(first.type), columns - v * first.count)

        self.when(columns.is_(first.count * len(rows[0])), whole, some)

    def stack(self, size: int) -> IrValue:
        """A block of the function's own stack."""
        if size not in self._spill:
            with self.builder.goto_entry_block():
                pointer = self.builder.alloca(ir.ArrayType(I8, size))
                pointer.align = 64
                self._spill[size] = IrValue(self, self.builder.ptrtoint(pointer, I64))
        return self._spill[size]

    def copy(self, target: IrValue, source: IrValue, size: IrValue) -> None:
        """Copy bytes that do not overlap."""
        byte = I8.as_pointer()
        function = self.builder.module.declare_intrinsic("llvm.memcpy", [byte, byte, I64])
        arguments = [self._pointer(target, I8), self._pointer(source, I8), size.raw, ir.Constant(I1, 0)]
        self.builder.call(function, arguments)

    def fill(self, target: IrValue, byte: IrValue, size: IrValue) -> None:
        """Fill memory with one byte."""
        function = self.builder.module.declare_intrinsic("llvm.memset", [I8.as_pointer(), I64])
        self.builder.call(function, [self._pointer(target, I8), byte.truncated(I8).raw, size.raw, ir.Constant(I1, 0)])

    # -- atomic memory -----------------------------------------------------------------------------------------------

    def load_atomic(self, address: IrValue) -> IrValue:
        """A 64-bit integer that other threads write."""
        return IrValue(self, self.builder.load_atomic(self._pointer(address, I64), "seq_cst", 8))

    def store_atomic(self, value: IrValue, address: IrValue) -> None:
        """Write a 64-bit integer that other threads read."""
        self.builder.store_atomic(value.raw, self._pointer(address, I64), "seq_cst", 8)

    def add_atomic(self, address: IrValue, value: IrValue) -> IrValue:
        """Add to a 64-bit integer; returns what it was before."""
        return IrValue(self, self.builder.atomic_rmw("add", self._pointer(address, I64), value.raw, "seq_cst"))

    def exchange(self, address: IrValue, old: int, new: int) -> IrValue:
        """Replace a 64-bit integer if it is ``old``; returns whether it was."""
        before, after = self.number(old), self.number(new)
        result = self.builder.cmpxchg(self._pointer(address, I64), before.raw, after.raw, "seq_cst", "seq_cst")
        return IrValue(self, self.builder.extract_value(result, 1))

    @property
    def is_x86(self) -> bool:
        """True for code of x86 processors."""
        return str(self.builder.module.triple).startswith(("x86_64", "i386", "i686"))

    def offer_processor(self) -> None:
        """Let other threads run, where the system has a function for it."""
        import llvmlite.binding as llvm  # loads the compiler

        if llvm.address_of_symbol("sched_yield") is not None:
            self.call("sched_yield", I32)

    @property
    def has_semaphores(self) -> bool:
        """True for code of systems whose POSIX semaphores may lie in any memory; macOS has named ones only."""
        return "linux" in str(self.builder.module.triple)

    def current_core(self) -> IrValue:
        """The core that runs this, -1 where the system has no function that says it."""
        import llvmlite.binding as llvm  # loads the compiler

        if llvm.address_of_symbol("sched_getcpu") is None:
            return self.number(-1)
        return self.call("sched_getcpu", I32).signed(I64)

    # -- control flow ------------------------------------------------------------------------------------------------

    def loop(
        self,
        start: Operand,
        stop: IrValue,
        body: Callable[..., Sequence[IrValue] | None],
        *,
        step: int = 1,
        carried: Sequence[IrValue] = (),
    ) -> list[IrValue]:
        """``for i in range(start, stop, step): carried = body(i, *carried)``; returns what is carried out of it."""
        b = self.builder
        first = start if isinstance(start, IrValue) else self.number(int(start))
        before = b.block
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        index, values = self._phis(first, carried, before)
        b.cbranch((index < stop).raw, inside, after)
        b.position_at_end(inside)
        results = body(index, *values) or ()
        self._feed(index, index + step, values, results)
        b.branch(head)
        b.position_at_end(after)
        return values

    def repeat(self, times: IrValue, body: Callable[..., Sequence[IrValue]], carried: Sequence[IrValue]) -> list[IrValue]:
        """``for i in range(times): carried = body(i, *carried)`` for a number of at least 1: the test comes last."""
        b = self.builder
        before = b.block
        inside, after = b.append_basic_block(), b.append_basic_block()
        b.branch(inside)
        b.position_at_end(inside)
        index, values = self._phis(self.number(0), carried, before)
        results = list(body(index, *values))
        following = index + 1
        again = following < times
        self._feed(index, following, values, results)
        b.cbranch(again.raw, inside, after)
        b.position_at_end(after)
        return results

    def while_(
        self, condition: Callable[..., IrValue], body: Callable[..., Sequence[IrValue]], carried: Sequence[IrValue]
    ) -> list[IrValue]:
        """``while condition(*carried): carried = body(*carried)``."""
        b = self.builder
        before = b.block
        head, inside, after = (b.append_basic_block() for _ in range(3))
        b.branch(head)
        b.position_at_end(head)
        _, values = self._phis(self.number(0), carried, before)
        b.cbranch(condition(*values).raw, inside, after)
        b.position_at_end(inside)
        results = body(*values)
        self._feed(_, _, values, results)
        b.branch(head)
        b.position_at_end(after)
        return values

    def until(self, condition: Callable[[], IrValue], body: Callable[[IrValue], object]) -> None:
        """``while not condition(): body(round)``."""

        def once(round_: IrValue) -> list[IrValue]:
            body(round_)
            return [round_ + 1]

        self.while_(lambda _: condition().is_(0), once, [self.number(0)])

    def _phis(self, first: IrValue, carried: Sequence[IrValue], before: Any) -> tuple[IrValue, list[IrValue]]:
        made = []
        for value in (first, *carried):
            phi = self.builder.phi(value.type)
            phi.add_incoming(value.raw, before)
            made.append(IrValue(self, phi))
        return made[0], made[1:]

    def _feed(self, index: IrValue, following: IrValue, values: Sequence[IrValue], results: Sequence[IrValue]) -> None:
        block = self.builder.block
        index.raw.add_incoming(following.raw, block)
        for value, result in zip(values, results, strict=True):
            value.raw.add_incoming(result.raw, block)

    def when(self, condition: IrValue, then: Callable[[], object], otherwise: Callable[[], object] | None = None) -> None:
        """``if condition: then() else: otherwise()``."""
        if otherwise is None:
            with self.builder.if_then(condition.raw):
                then()
            return
        with self.builder.if_else(condition.raw) as (first, second):
            with first:
                then()
            with second:
                otherwise()

    def share(self, count: IrValue, part: IrValue, parts: IrValue) -> tuple[IrValue, IrValue]:
        """First and last + 1 of ``count`` pieces of work that belong to one part."""
        return count * part // parts, count * (part + 1) // parts

    def share_vectors(self, count: IrValue, part: IrValue, parts: IrValue) -> tuple[IrValue, IrValue]:
        """The same of the vectors that hold ``count`` elements of 32 bits."""
        lanes = self.instructions.lanes
        return self.share((count + (lanes - 1)) // lanes, part, parts)

    # -- half precision ----------------------------------------------------------------------------------------------

    def from_half(self, bits: IrValue) -> IrValue:
        """Float32 values of half precision's bits, which are 16-bit integers."""
        if self.instructions.name != "plain":
            return bits.bits(vector(F16, bits.count)).widened()
        kind, wide = vector(F32, bits.count), bits.unsigned(I32)
        size = (wide & 0x7FFF) << 13
        # The exponent's bias is less by 112; what is no finite number has all of its bits.
        finite = (size.bits(kind) * 2.0**112).bits(size.type)
        found = self.select(size < 0x0F800000, finite, size | 0x7F800000)
        return (found | ((wide & 0x8000) << 16)).bits(kind)

    def to_half(self, x: IrValue) -> IrValue:
        """The bits of the nearest numbers of half precision, ties to even."""
        if self.instructions.name != "plain":
            return x.rounded().bits(vector(I16, x.count))
        bits = x.bits(vector(I32, x.count))
        size = bits & 0x7FFFFFFF
        normal = (size + 0xFFF + ((size >> 13) & 1) - 0x38000000) >> 13
        # A sum with 1/2 has the last place of the smallest numbers.
        small = (size.bits(x.type) + 0.5).bits(size.type) - 0x3F000000
        found = self.select(size < 0x38800000, small, self.smin(normal, 0x7C00))
        found = self.select(size > 0x7F800000, 0x7E00, found)
        return (found | (bits.logical_shift(16) & 0x8000)).truncated(I16)

    # -- 8-bit products and narrowing --------------------------------------------------------------------------------

    def dot(self, total: IrValue, unsigned: IrValue, signed: IrValue) -> IrValue:
        """``total`` plus the products of each lane's elements: four bytes (unsigned x signed) or two signed 16-bit numbers."""
        n = total.count
        if self.instructions.quads:
            name = {16: "512", 8: "256", 4: "128"}[n]
            return self.call(f"llvm.x86.avx512.vpdpbusd.{name}", total.type, total, unsigned, signed)
        pairs = vector(I16, 2 * n)
        a, b = unsigned.bits(pairs), signed.bits(pairs)
        if self.instructions.name == "avx2":
            name = {8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}[n]
            return total + self.call(name, total.type, a, b)
        products = [
            self.shuffle(a, range(k, 2 * n, 2)).signed(I32) * self.shuffle(b, range(k, 2 * n, 2)).signed(I32) for k in (0, 1)
        ]
        return total + (products[0] + products[1])

    def narrow(self, a: IrValue, b: IrValue, *, unsigned: bool = False) -> IrValue:
        """Two vectors as one of half as wide integers, saturated, alternating by blocks of 128 bits."""
        wide = element_of(a.type)
        half = {I32: I16, I16: I8}[wide]
        kind, bits = vector(half, 2 * a.count), size_of(a.type) * 8
        word = {I32: "dw", I16: "wb"}[wide]
        if self.instructions.name != "plain":
            sign = "us" if unsigned else "ss"
            prefix = {512: "avx512.pack", 256: "avx2.pack", 128: "sse2.pack"}[bits]
            suffix = {512: ".512", 256: "", 128: ".128"}[bits]
            return self.call(f"llvm.x86.{prefix}{sign}{word}{suffix}", kind, a, b)
        size = {I16: 16, I8: 8}[half]
        low, high = (0, 2**size - 1) if unsigned else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)
        return self.join(*(self.smin(self.smax(x, low), high).truncated(half) for x in (a, b)))

    # -- matrix tiles ------------------------------------------------------------------------------------------------

    def tile(self, operation: str, *arguments: int | IrValue) -> None:
        """An instruction of matrix tiles. Python's numbers are tiles; of the values the first is an address."""
        raw, addressed = [], False
        for argument in arguments:
            if not isinstance(argument, IrValue):
                raw.append(ir.Constant(I8, argument))
            elif addressed:
                raw.append(argument.raw)
            else:
                raw.append(self._pointer(argument, I8))
                addressed = True
        name, module = f"llvm.x86.{operation}", self.builder.module
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(VOID, [r.type for r in raw]), name)
        self.builder.call(function, raw)

    def interleave(self, a: IrValue, b: IrValue, high: bool) -> IrValue:
        """Elements of both in turn, of the low or high half of each block of 128 bits."""
        per_block = 16 // size_of(element_of(a.type))
        order = []
        for block in range(0, a.count, per_block):
            start = block + (per_block // 2 if high else 0)
            for i in range(start, start + per_block // 2):
                order += [i, a.count + i]
        return self.shuffle(a, order, b)

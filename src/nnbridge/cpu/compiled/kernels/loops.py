"""The loops that run a program's steps, on one thread or on several.

Threads share steps in compiled code, since most steps take less time than Python needs to hand one to another thread: a chunk is
4 µs, a task of a concurrent.futures pool takes 25 or more, and the interpreter lock. mobilenet_v2 quant takes 2.70 ms on one
thread and 1.65 on two. Measured by::

    python -m timeit -s "from concurrent.futures import ThreadPoolExecutor as P; p = P(1)" "p.submit(int).result()"
    nnbridge bench MODEL.tflite --threads 2
"""

from __future__ import annotations

from nnbridge.cpu.compiled.declared import Fields, kernel
from nnbridge.cpu.compiled.emitter import Emitter
from nnbridge.cpu.compiled.values import I32, I64, VOID, IrValue

ENTRY_FIELDS = 3
"""Of a step in a program's table: kernel, argument block, chunks."""


@kernel("table count counters inside")
def run_steps(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Each step's chunks, one after the other."""

    def step(index: IrValue) -> None:
        entry = f.table + index * (8 * ENTRY_FIELDS)
        address, block, chunks = (e.load(entry, I64, 8 * i) for i in range(ENTRY_FIELDS))
        e.loop(0, chunks, lambda chunk: e.invoke(address, block, chunk, chunks))

    e.loop(0, f.count, step)


# -- several threads -------------------------------------------------------------------------------------------------
#
# A job is an argument block: table, count, counters (for each step the chunks that are taken and those that are done) and
# ``inside``, the helpers that still look at it. Who takes part goes through the steps in order, takes chunks by atomic addition
# and waits until all chunks of a step are done. Which thread computes a chunk does not change its results.
#
# The caller takes chunks from the front, helpers from the back or the front by turns: what one core has written of a step is
# mostly what it reads in the next. The counter of taken chunks holds those of the front in its low half, of the back in the high
# one.
#
# A helper's control block is its state, the address of its job and a semaphore. The caller changes 0 (asleep) or 1 (spinning) to
# 3, sets the job, then 2 (working); the helper changes 2 to 1 after the job and 1 to 0 before it sleeps. It sleeps here, on the
# semaphore, where the system has such: a thread that wakes in Python takes three times as long, for the interpreter lock.
#
# Who waits does not offer its processor: schedulers then give it to any other thread for a whole tick (4 ms), however short
# the wait would have been. A helper without work sleeps instead, from which it is woken at once.

JOB_FIELDS = ("table", "count", "counters", "inside")
COUNTER_BYTES = 128
"""A step's counters, each on a line of the cache of its own: taken, and 64 bytes after it done."""
FRONT, BACK = 1, 1 << 32
"""What one chunk more adds to the counter."""
ASLEEP, SPINNING, WORKING, PREPARED = range(4)
SEMAPHORE = 64
"""Its position in the control block, which is of twice as many bytes."""
_PATIENCE = 10_000
"""Rounds of waiting, longer than a step takes, before a thread offers its processor after all: both may be on the same one."""
_FAREWELL = 1000
"""Rounds that the caller waits for helpers to leave."""


def _pause(e: Emitter) -> None:
    if e.is_x86:
        e.call("llvm.x86.sse2.pause", VOID)


def _wait(e: Emitter, address: IrValue, least: IrValue) -> None:
    """Until a counter has reached a number."""

    def patience(round_: IrValue) -> None:
        _pause(e)
        e.when(round_ > _PATIENCE, e.offer_processor)

    e.until(lambda: e.load_atomic(address) > (least - 1), patience)


def _take_part(e: Emitter, table: IrValue, count: IrValue, counters: IrValue, side: IrValue) -> None:
    """Chunks of each step, as long as there are any, from one side."""
    from_front = side.is_(FRONT)

    def step(index: IrValue) -> None:
        entry = table + index * (8 * ENTRY_FIELDS)
        address, block, chunks = (e.load(entry, I64, 8 * i) for i in range(ENTRY_FIELDS))
        taken = counters + index * COUNTER_BYTES
        done = taken + COUNTER_BYTES // 2

        def chunk(before: IrValue, own: IrValue) -> list[IrValue]:
            number = e.select(from_front, before & (BACK - 1), chunks - 1 - (before >> 32))
            e.invoke(address, block, number, chunks)
            return [e.add_atomic(taken, side), own + 1]

        def left(before: IrValue, _: IrValue) -> IrValue:
            return (before & (BACK - 1)) + (before >> 32) < chunks

        own = e.while_(left, chunk, [e.add_atomic(taken, side), e.number(0)])[1]
        e.when(own > 0, lambda: e.add_atomic(done, own))
        _wait(e, done, chunks)

    e.loop(0, count, step)


@kernel("table count counters inside")
def run_shared(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """A job, by the thread that it belongs to. It waits a moment for helpers to leave, so that the next job finds them free."""
    _take_part(e, f.table, f.count, f.counters, e.number(FRONT))

    def idle(round_: IrValue) -> list[IrValue]:
        _pause(e)
        return [round_ + 1]

    e.while_(lambda round_: (round_ < _FAREWELL) & (e.load_atomic(f.inside) > 0), idle, [e.number(0)])


@kernel("control spins side")
def help_out(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """A helper's work: the job that is set, and others that come before it has spun for long enough.

    Without semaphores it returns then, to sleep elsewhere; with them it sleeps here until there is a job, and never returns.
    """
    state = f.control

    def sleep() -> None:
        if e.has_semaphores:
            # Signals and jobs that were found before end a wait, too.
            e.until(lambda: e.load_atomic(state).is_(WORKING), lambda _: e.call("sem_wait", I32, f.control + SEMAPHORE))

    def job(_: IrValue) -> list[IrValue]:
        block = e.load_atomic(f.control + 8)
        table, count, counters, inside = (e.load(block, I64, 8 * i) for i in range(len(JOB_FIELDS)))
        _take_part(e, table, count, counters, f.side)
        e.add_atomic(inside, e.number(-1))
        e.exchange(state, WORKING, SPINNING)

        def idle(round_: IrValue, _: IrValue) -> list[IrValue]:
            _pause(e)
            e.when(round_ > f.spins, lambda: e.exchange(state, SPINNING, ASLEEP))
            return [round_ + 1, e.load_atomic(state)]

        def wait(_: IrValue, now: IrValue) -> IrValue:
            return now.is_(SPINNING) | now.is_(PREPARED)

        now = e.while_(wait, idle, [e.number(0), e.load_atomic(state)])[1]
        sleep()
        # What it was seen to be: who finds it asleep wakes it, so that it must not go on here without that.
        return [e.number(1) if e.has_semaphores else now.is_(WORKING).unsigned(I64)]

    sleep()
    e.while_(lambda again: again > 0, job, [e.number(1)])


@kernel("control job inside result")
def recruit(e: Emitter, f: Fields, part: IrValue, parts: IrValue) -> None:
    """Set a helper's job unless it has one. Result: 0 it is busy, 1 it starts at once, 2 it sleeps where it has to be woken.

    After the result it stores the core that it runs on, -1 where the system does not say.
    """
    state = f.control
    e.store(e.number(0), f.result)
    e.store(e.current_core(), f.result, 8)

    def start(result: int) -> None:
        e.add_atomic(f.inside, e.number(1))
        e.store_atomic(f.job, state + 8)
        e.store_atomic(e.number(WORKING), state)
        e.store(e.number(result), f.result)

    def wake() -> None:
        start(1 if e.has_semaphores else 2)
        if e.has_semaphores:
            e.call("sem_post", I32, f.control + SEMAPHORE)

    e.when(
        e.exchange(state, SPINNING, PREPARED),
        lambda: start(1),
        lambda: e.when(e.exchange(state, ASLEEP, PREPARED), wake),
    )

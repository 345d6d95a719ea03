"""The device's side of a measurement: two exported programs, loaded, checked, timed. None of it is a candidate's code.

A session owns every array that it makes and deletes it; no input is donated, and no array of the notebook is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxkernel_nb.tpu.chip import memory, trace
from maxkernel_nb.tpu.chip.program import Program, load
from maxkernel_nb.tpu.chip.quiet import Quiet
from maxkernel_nb.tpu.chip.tracing import recording

REFERENCE, CANDIDATE = "reference", "candidate"
SIDES = (REFERENCE, CANDIDATE)
ROWS = 64  # of each output, compared with the oracle and after timed runs
WHOLE_BYTES = 256 << 20  # outputs up to this size are compared element by element
SLOPE_S, SLOPE_MOST, SLOPE_BYTES = 0.05, 16, 512 << 20
PREEMPTED, PREEMPTED_MS = 0.1, 0.02  # share of a run, and ms more, that the CPU may have been away
Draw = Callable[[int], list[np.ndarray]]


class CellRuns(Exception):
    """A person's cell began: what was not yet run was left."""


@dataclass(frozen=True)
class Place:
    """A device and what a session must know of it. ``on_chip``: bytes of memory that repeated inputs could stay in.
    ``number``: of its plane in a trace, None: the only one where our programs run. ``limit``: bytes that may be used,
    None for what the device says.
    """

    device: Any
    number: int | None
    on_chip: int
    limit: int | None = None
    quiet: Quiet | None = None


class Session:
    """In order: ``open``, ``first`` for each side, ``check``, ``window`` and ``slope`` as often as wanted, ``fresh``
    with a new seed and again, ``profile``, ``close``. Not thread-safe.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.programs: dict[str, Program] = {}
        self._sets: list[list[Any]] = []
        self._turn = 0
        self.first_seed = 0  # of the first set of inputs
        self._draw: Draw = lambda seed: []
        self._expected: dict[int, list[np.ndarray]] = {}
        self._rng = np.random.default_rng(0)

    def open(self, exported: dict[str, bytes], draw: Draw, seed: int) -> dict[str, Any]:
        """Loads and compiles both programs and places the inputs. Raises ``memory.DoesNotFit``."""
        began = time.monotonic()
        self._draw = draw
        for side in SIDES:
            self.programs[side] = load(exported[side], side, self.place.device)
        compile_s = time.monotonic() - began
        need = self.need()
        free, total = memory.free_bytes(self.place.device)
        if self.place.limit is not None:
            free, total = self.place.limit, self.place.limit
        sets = memory.sets_that_fit(need, self.place.on_chip, free, total)
        self._place_inputs(seed, sets)
        return {
            "compile_s": compile_s, "sets": sets, "needed_bytes": need.total(sets), "free_bytes": free or 0,
            "rotated_bytes": need.inputs * sets, "past_on_chip": need.inputs * sets > self.place.on_chip,
            "names": {side: p.name for side, p in self.programs.items()},
        }  # fmt: skip

    def need(self) -> memory.Need:
        both = self.programs.values()
        return memory.Need(
            max(p.input_bytes for p in both), max(p.output_bytes for p in both), max(p.temporary_bytes for p in both)
        )

    def fresh(self, seed: int) -> None:
        self._place_inputs(seed, len(self._sets))

    def _place_inputs(self, seed: int, sets: int) -> None:
        import jax

        _delete(self._sets)
        self._sets, self._expected = [], {}
        self._rng = np.random.default_rng(seed)
        self.first_seed = seed * 1000
        for number in range(sets):
            arrays = self._draw(seed * 1000 + number)
            self._sets.append([jax.device_put(a, self.place.device) for a in arrays])
        jax.block_until_ready(self._sets)

    # -- correctness -------------------------------------------------------------------------------------------------

    def first(self, side: str) -> None:
        """One run of one program alone, so that whoever hangs or crashes in it is known."""
        outputs = self._run(side, 0)
        _delete(outputs)

    def check(self, poison: bool = True) -> dict[str, list[np.ndarray]]:
        """Outputs of both programs on the first set: whole where they are small, else rows spread over them.

        The candidate runs first, on memory that was filled with NaN: it cannot find the reference's answer there.
        """
        found = {}
        for side in (CANDIDATE, REFERENCE):
            if poison:
                self._poison()
            outputs = self._run(side, 0)
            found[side] = [_host(o) for o in outputs]
            _delete(outputs)
        return found

    def _poison(self) -> None:
        """Fills memory of the outputs' sizes with NaN (123 for integers) and gives it back to the allocator."""
        import jax

        filled = []
        for aval in self.programs[CANDIDATE].outputs:
            value = np.nan if aval.dtype.kind not in "iub" else 123
            block = np.full(aval.shape, 1 if aval.dtype.kind == "b" else value).astype(aval.dtype)
            filled += [jax.device_put(block, self.place.device) for _ in range(2)]
        jax.block_until_ready(filled)
        _delete(filled)

    # -- time --------------------------------------------------------------------------------------------------------

    def window(self, pairs: int) -> dict[str, Any]:
        """``pairs`` times both programs in random order: device milliseconds [pairs, 2] and the wall's.

        ``disturbed`` says why the window may not count, ``kept`` which pairs nothing interrupted. ``wrong``: the last
        timed output is not the checked one.
        """
        order = [list(self._rng.permutation(SIDES)) for _ in range(pairs)]
        ran = [side for pair in order for side in pair]
        walls: list[float] = []
        used: list[float] = []
        last: tuple[int, Any] | None = None
        began = time.monotonic()
        try:
            with recording() as made:
                for side in ran:
                    number = self._next_set()
                    started, worked = time.perf_counter(), time.process_time()
                    outputs = self._run(side, number)
                    walls.append((time.perf_counter() - started) * 1e3)
                    used.append((time.process_time() - worked) * 1e3)
                    if side == CANDIDATE:
                        _delete(last[1] if last else [])
                        last = (number, outputs)
                    else:
                        _delete(outputs)
        except CellRuns:
            return self._left("a cell of the notebook began", began, last)
        except trace.Disturbed as why:
            return self._left(str(why), began, last)
        seconds = time.monotonic() - began
        wrong = self._wrong(last)
        try:
            device = self._times(made.raw, ran)
        except trace.Disturbed as why:
            return {"pairs": [], "walls": [], "kept": [], "disturbed": str(why), "seconds": seconds, "wrong": wrong}
        taken = [self._taken(ms, mine) for ms, mine in zip(device, used, strict=True)]
        kept = [not any(taken[2 * n : 2 * n + 2]) for n in range(pairs)]
        times = {"pairs": _paired(order, device), "walls": _paired(order, walls), "kept": kept}
        return {**times, "disturbed": "", "seconds": seconds, "wrong": wrong}

    def _taken(self, ms: float, used: float) -> bool:
        """Where the CPU plays the chip, another process may have had it meanwhile: then the run took longer than the
        processor worked for us, and says nothing."""
        return self.place.device.platform == "cpu" and ms - used > PREEMPTED * ms + PREEMPTED_MS

    def _left(self, why: str, began: float, last: tuple[int, Any] | None) -> dict[str, Any]:
        _delete(last[1] if last else [])
        seconds = time.monotonic() - began
        return {"pairs": [], "walls": [], "kept": [], "disturbed": why, "seconds": seconds, "wrong": ""}

    def _times(self, raw: bytes, ran: Sequence[str]) -> list[float]:
        names = [self.programs[side].name for side in ran]
        return [call.ns / 1e6 for call in trace.calls(trace.read(raw), names, self.place.number)]

    def _wrong(self, last: tuple[int, Any] | None) -> str:
        """Compares a timed output with what the same program gave for the same inputs before; empty when it agrees."""
        if last is None:
            return ""
        number, outputs = last
        got = [_rows(o) for o in outputs]
        _delete(outputs)
        if number not in self._expected:
            again = self._run(CANDIDATE, number)
            self._expected[number] = [_rows(o) for o in again]
            _delete(again)
        for a, b in zip(got, self._expected[number], strict=True):
            if not np.array_equal(a, b, equal_nan=a.dtype.kind not in "iub"):
                return "An output of a timed run differs from the same program's output on the same inputs."
        return ""

    def slope(self, ms: dict[str, float], tries: int) -> dict[str, float]:
        """Milliseconds that each further run takes when runs are sent without waiting for one another, by side:
        ``(t(2N) - t(N)) / N`` from the least times of a few tries, the sides in turn."""
        runs = {side: self._runs(side, ms[side]) for side in SIDES}
        least = {(side, n): float("inf") for side in SIDES for n in (1, 2)}
        for _ in range(tries):
            for side, n in least:
                least[side, n] = min(least[side, n], self._sent(side, n * runs[side]))
        return {side: (least[side, 2] - least[side, 1]) / runs[side] for side in SIDES}

    def _runs(self, side: str, ms: float) -> int:
        room = max(1, SLOPE_BYTES // max(self.programs[side].output_bytes, 1))
        return int(np.clip(SLOPE_S * 1e3 / max(ms, 1e-3), 1, min(SLOPE_MOST, room)))

    def _sent(self, side: str, runs: int) -> float:
        import jax

        program, kept = self.programs[side], []
        with self._allowed():
            started = self._clock()
            for _ in range(runs):
                kept.append(program.call(*self._sets[self._next_set()]))
            jax.block_until_ready(kept)
            took = self._clock() - started
        _delete(kept)
        return took * 1e3

    def _clock(self) -> float:
        """Seconds. Where the CPU plays the chip, those in which it worked for us."""
        return time.process_time() if self.place.device.platform == "cpu" else time.perf_counter()

    def overhead(self) -> float:
        """Milliseconds that sending a program takes which has the same inputs and does nothing: the least of a few."""
        import jax

        inputs = self._sets[0]
        nothing = jax.jit(lambda *arrays: [np.float32(0)], keep_unused=True).lower(*inputs).compile()
        jax.block_until_ready(nothing(*inputs))
        found = []
        for _ in range(10):
            started = self._clock()
            jax.block_until_ready([nothing(*inputs) for _ in range(10)])
            found.append((self._clock() - started) * 1e3 / 10)
        return min(found)

    # -- where the time goes -----------------------------------------------------------------------------------------

    def profiled(self, runs: int = 3) -> dict[str, list[trace.Call]]:
        """A few runs of each program with synchronisation traced: the calls, with their ops."""
        found: dict[str, list[trace.Call]] = {}
        for side in SIDES:
            with recording(sync=True) as made:
                for _ in range(runs):
                    _delete(self._run(side, self._next_set()))
            names = [self.programs[side].name] * runs
            found[side] = list(trace.calls(trace.read(made.raw), names, self.place.number))
        return found

    def close(self) -> None:
        """Deletes every array of the session. Safe to call twice."""
        _delete(self._sets)
        self._sets, self._expected, self.programs = [], {}, {}

    # ----------------------------------------------------------------------------------------------------------------

    def _run(self, side: str, number: int) -> Any:
        """One run, waited for on every output."""
        import jax

        with self._allowed():
            outputs = self.programs[side].call(*self._sets[number])
            return jax.block_until_ready(outputs)

    @contextmanager
    def _allowed(self) -> Iterator[None]:
        quiet = self.place.quiet
        if quiet is None:
            yield
            return
        if not quiet.enter():
            raise CellRuns
        try:
            yield
        finally:
            quiet.leave()

    def _next_set(self) -> int:
        self._turn = (self._turn + 1) % len(self._sets)
        return self._turn


def _paired(order: Sequence[Sequence[str]], times: Sequence[float]) -> list[list[float]]:
    """The times of each pair as [reference, candidate], whatever their order was."""
    pairs = []
    for number, pair in enumerate(order):
        by_side = dict(zip(pair, times[2 * number : 2 * number + 2], strict=True))
        pairs.append([by_side[REFERENCE], by_side[CANDIDATE]])
    return pairs


def row_numbers(shape: Sequence[int], rows: int = ROWS) -> np.ndarray:
    """Rows (all axes but the last taken together) spread over an array: first, last and evenly between."""
    count = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
    return np.unique(np.linspace(0, count - 1, min(rows, count)).astype(int))


def _rows(array: Any) -> np.ndarray:
    """The sampled rows of a device array, on the host; a vector or scalar as one row."""
    shape = array.shape if len(array.shape) > 1 else (1, max(1, int(np.prod(array.shape))))
    return np.asarray(array.reshape((-1, shape[-1]))[row_numbers(shape)])


def _host(array: Any) -> np.ndarray:
    return np.asarray(array) if array.nbytes <= WHOLE_BYTES else _rows(array)


def _delete(arrays: Any) -> None:
    import jax

    for array in jax.tree.leaves(arrays):
        if not array.is_deleted():
            array.delete()

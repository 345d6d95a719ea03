"""What a model of time needs to know of a compiled program, and nothing that depends on the model's constants.

Terms are small and serialisable, so the calibration keeps those of every published program and fits without compiling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.emulate import WRITES, Execution, Guess, execute
from maxkernel_nb.tpu.hlo import Instruction, Module
from maxkernel_nb.tpu.pipeline import Trace, compress
from maxkernel_nb.tpu.schedule import Program
from maxkernel_nb.tpu.tables import Tables, placed
from maxkernel_nb.tpu.translate import GUARD_UNKNOWN, REGION_UNKNOWN, SIZE_UNKNOWN, TRIPS_UNKNOWN
from maxkernel_nb.values import Value

Kind = Literal["fusion", "pallas", "custom-call", "copy", "while", "other"]
DEPENDS_ON_DATA = (SIZE_UNKNOWN, GUARD_UNKNOWN, REGION_UNKNOWN, TRIPS_UNKNOWN)
TRIPS_GUESSED = (
    "a loop whose trip count depends on data is counted as {} trips, enough to move what it reads and writes"
)
MOST_TRIPS = 4096  # of a loop that data ends
WORTH_NOTING = 1e-4  # ms
# What a dump of a form that nobody has seen can raise while it is read: the op is then estimated from HLO.
UNREADABLE = (ArithmeticError, LookupError, ValueError, TypeError, NameError, SyntaxError, RecursionError)


class OpTerms(Value):
    """One scheduled op, run ``times`` times.

    ``cycles``: its bundles, with what the matrix units hold them up (the compiler's own estimate where there is no
    schedule: ``trace`` is None). Bytes are HBM bytes of all ``cores``. ``repeat`` scales a run of which only the first
    part was followed. ``role``: an asynchronous copy starts, and ends at the op that waits for it (``of``); a prefetch
    was begun by the program before.
    ``guessed``: what depends on data was guessed, with ``trips`` of the loops that data ends; ``low_cycles`` and
    ``low_bytes`` are then those of one trip with every region skipped that data guards.
    """

    name: str
    kind: Kind
    times: float = 1.0
    cores: int = 1
    cycles: float = 0.0
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    trace: Trace | None = None
    repeat: float = 1.0
    role: Literal["op", "start", "done", "prefetch"] = "op"
    of: str = ""
    guessed: bool = False
    trips: int = 1
    low_cycles: float = 0.0
    low_bytes: float = 0.0
    moves_itself: bool = True  # its DMAs are in the trace; else the bytes are those of its operands and results


class _Run(NamedTuple):
    """``least``: the run with the least that data can ask for, where it depends on data."""

    runs: list[Execution]
    guess: Guess
    least: Execution | None
    trace: Trace


@dataclass
class Reading:
    """An op's terms beside what they were read from (None without a schedule). ``notes``: sentences for the user."""

    terms: OpTerms
    instruction: Instruction
    program: Program | None = None
    run: Execution | None = None
    notes: list[str] = field(default_factory=list)


def read_terms(
    module: Module,
    programs: dict[str, Program],
    same: dict[str, str],
    chip: Chip,
    own_kernels: bool,
    tables: Tables | None = None,
) -> Iterator[Reading]:
    """Every op of a scheduled module that costs time, in the order in which they run. ``tables``: constants that
    kernels read."""
    reader = _Reader(module, programs, same, chip, own_kernels, tables)
    for i, times, sure in module.walk(ends=True):
        reading = reader.read(i, times)
        if reading is None:
            continue
        if not sure:
            reading.notes.append(f"how often {i.name} runs is not known to the compiler: counted {times:g} times")
        yield reading


class _Reader:
    def __init__(
        self,
        module: Module,
        programs: dict[str, Program],
        same: dict[str, str],
        chip: Chip,
        own_kernels: bool,
        tables: Tables | None,
    ) -> None:
        self.tables = tables
        self.module, self.programs, self.same, self.chip, self.own = module, programs, same, chip, own_kernels
        self.ran: dict[tuple[object, ...], _Run] = {}
        self.alike = {module.likeness(module.by_name[n]): p for n, p in programs.items() if n in module.by_name}

    def read(self, i: Instruction, times: float) -> Reading | None:
        if i.opcode.endswith("-done"):
            return Reading(OpTerms(name=i.name, kind="copy", role="done", of=(*i.operands, "")[0]), i)
        program = self.program(i)
        unreadable = ""
        if program is not None:
            try:
                return self.scheduled(i, program, times)
            except UNREADABLE as reason:
                unreadable = f"{i.name}: its schedule cannot be followed ({reason}): estimated from HLO"
        if i.opcode in ("copy-start", "slice-start", "async-start"):
            ahead = "cross_program_prefetch_index" in i.attributes
            return self.estimated(i, times, "copy", "prefetch" if ahead else "start")
        costs = i.estimated_cycles > 0 or sum(self.module.hbm_traffic(i)) > 4096
        if not costs or i.target == "AllocateBuffer":
            return None
        found = self.estimated(i, times, kind_of(i, self.own))
        found.notes += [unreadable] if unreadable else []
        return found

    def program(self, i: Instruction) -> Program | None:
        """Its own program, or that of an equal op: the compiler writes out equal ones once."""
        found = self.programs.get(i.name) or self.programs.get(self.same.get(i.name, ""))
        return found or (self.alike.get(self.module.likeness(i)) if self.alike else None)

    def scheduled(self, i: Instruction, program: Program, times: float) -> Reading:
        tables = self.tables.of(i) if self.tables and i.opcode == "custom-call" else {}
        key = (program.name, *tables.items())
        if key not in self.ran:
            self.ran[key] = self.execute(i, program, placed(program, tables))
        runs, guess, least, trace = self.ran[key]
        run = runs[0]
        read, written = sum(r.bytes_in for r in runs), sum(r.bytes_out for r in runs)
        itself = any(b.dmas for b in program.bundles)
        if not itself:
            read, written = self.module.hbm_traffic(i)
        terms = OpTerms(
            name=i.name,
            kind=kind_of(i, self.own),
            times=times,
            cores=len(runs),
            cycles=sum(run.spent),
            read_bytes=read,
            written_bytes=written,
            trace=trace,
            repeat=run.repeat,
            guessed=least is not None,
            trips=guess.trips,
            low_cycles=sum(least.spent) if least else 0.0,
            low_bytes=self.least_bytes(i, least, runs) if least else 0.0,
            moves_itself=itself,
        )
        return Reading(terms, i, program, run, self.notes(terms, run))

    def least_bytes(self, i: Instruction, least: Execution, runs: list[Execution]) -> float:
        """Whatever the data is, a result is written; and an XLA op reads as much as its shapes say."""
        read, written = self.module.hbm_traffic(i)
        read = 0.0 if kind_of(i, self.own) == "pallas" else min(read, sum(r.bytes_in for r in runs))
        written = min(written, sum(r.bytes_out for r in runs))
        return max(least.bytes_in * len(runs), read) + max(least.bytes_out * len(runs), written)

    def execute(self, i: Instruction, program: Program, memory: dict[int, int]) -> _Run:
        """One execution a core that has work, the longest first, and what was taken for data; ``memory``: known words
        in SMEM."""
        granule, rows = self.chip.dma_granule_bytes, self.chip.matrix_rows
        once = execute(program, granule, 0, None, rows, memory)
        guess = self.guess(i, once, granule)
        cores = range(self.chip.device_cores if program.asks_core else 1)
        again = guess != Guess() or len(cores) > 1
        runs = [execute(program, granule, c, guess, rows, memory) for c in cores] if again else [once]
        runs.sort(key=lambda r: -sum(r.spent))
        least = None
        if any(u in DEPENDS_ON_DATA for u in once.unknown):
            least = execute(program, granule, 0, guess._replace(trips=1, regions=False), rows, memory)
        busy = [r for r in runs if sum(r.spent) > 0.05 * sum(runs[0].spent)]
        return _Run(busy, guess, least, compress(busy[0], granule))

    def guess(self, i: Instruction, once: Execution, granule: int) -> Guess:
        """A loop that data ends runs as often as its DMAs need to move all that the op reads, and all that it writes;
        DMAs of unknown size carry what is left of what it writes."""
        read, written = self.module.hbm_traffic(i)
        trips, granules = 1, 0
        if TRIPS_UNKNOWN in once.unknown:
            needed = [a / b for a, b in ((read, once.bytes_in), (written, once.bytes_out)) if b]
            trips = min(max(round(max(needed, default=1.0)), 1), MOST_TRIPS)
        unsized = sum(1 for e in once.trace if e.kind == WRITES and not e.size)
        if SIZE_UNKNOWN in once.unknown and unsized:
            granules = int(max(written - once.bytes_out * trips, 0.0) / unsized / trips / granule)
        return Guess(trips, granules)

    def notes(self, terms: OpTerms, run: Execution) -> list[str]:
        if terms.cycles * terms.times / (self.chip.clock_ghz * 1e6) < WORTH_NOTING:
            return []
        trips = TRIPS_UNKNOWN if terms.trips == 1 else TRIPS_GUESSED.format(terms.trips)
        found = [f"{terms.name}: {trips if u == TRIPS_UNKNOWN else u}" for u in run.unknown]
        if terms.kind == "pallas" and self.chip.device_cores > terms.cores:
            cores = self.chip.device_cores
            found.append(f"{terms.name} runs on one of {cores} cores: no grid axis is marked parallel")
        return found

    def estimated(
        self, i: Instruction, times: float, kind: Kind, role: Literal["op", "start", "prefetch"] = "op"
    ) -> Reading:
        read, written = self.module.hbm_traffic(i)
        terms = OpTerms(
            name=i.name, kind=kind, times=times, cycles=i.estimated_cycles, read_bytes=read, written_bytes=written,
            role=role, moves_itself=False,
        )  # fmt: skip
        return Reading(terms, i)


def kind_of(i: Instruction, own_kernels: bool) -> Kind:
    """What an instruction is to a reader of the profile; ``own_kernels``: the program itself brought Pallas calls."""
    if i.opcode == "custom-call":
        return "pallas" if i.target == "tpu_custom_call" and own_kernels else "custom-call"
    return "fusion" if i.opcode == "fusion" else "copy" if i.opcode == "copy" else "other"

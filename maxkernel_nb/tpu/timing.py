"""From terms to milliseconds: each op is played against its DMAs, asynchronous copies run beside the ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.constants import Constants, OpClass
from maxkernel_nb.tpu.pipeline import Played, Trace, play
from maxkernel_nb.tpu.terms import OpTerms


@dataclass(frozen=True)
class OpTime:
    """Milliseconds of an op over all its runs. ``memory_ms``: its bytes at the bandwidth they can reach; ``start_ms``:
    of the total, the pipeline's filling and draining; ``low_ms``: the least it can be, where it depends on data;
    ``copies``: its DMAs on one core, which take ``copies_ms`` however small they are."""

    total_ms: float
    compute_ms: float
    memory_ms: float
    start_ms: float = 0.0
    low_ms: float | None = None
    copies: float = 0.0
    copies_ms: float = 0.0


def program_times(ops: Sequence[OpTerms], chip: Chip, constants: Constants) -> list[OpTime]:
    """One ``OpTime`` an op. A copy's time is what its end waits for, after the ops in between took their bandwidth."""
    played: dict[tuple[int, int], Played] = {}
    copying: dict[str, float] = {}
    found = []
    for op in ops:
        if op.role == "done":
            left = copying.pop(op.of, 0.0)
            found.append(OpTime(left, 0.0, left))
        elif op.role in ("start", "prefetch"):
            ms = _hbm_ms(op, chip, constants)
            if op.role == "start":
                copying[op.name] = ms + constants.dma_latency_us * 1e-3 * op.times
            found.append(OpTime(0.0, 0.0, ms))
        else:
            time = op_time(op, chip, constants, played)
            _share(copying, max(time.total_ms - time.memory_ms, 0.0))
            found.append(time)
    return found


def op_time(
    op: OpTerms, chip: Chip, constants: Constants, played: dict[tuple[int, int], Played] | None = None
) -> OpTime:
    """The time of one op; ``played`` remembers traces that were played already."""
    cycle_ms = 1 / (chip.clock_ghz * 1e6)
    compute, memory = op.cycles * cycle_ms * op.times, _hbm_ms(op, chip, constants)
    launch = constants.launch_us * 1e-3 * op.times
    if op.trace is None:
        return OpTime(max(compute, memory) + launch, compute, memory)
    run = _played(op.trace, op.cores, chip, constants, {} if played is None else played)
    scale = cycle_ms * op.times
    total = run.cycles * op.repeat * scale
    if not op.moves_itself:
        total = max(total, memory)
    low = _low_ms(op, chip, constants) if op.guessed else None
    copies = op.trace.copies * op.repeat * op.times
    few = copies * constants.dma_setup_us * 1e-3
    return OpTime(total + launch, compute, memory, min(run.start * scale, total), low, copies, few)


def op_class(op: OpTerms, time: OpTime) -> OpClass:
    """Which error bar an op's time has."""
    if op.trace is None and op.role == "op":
        return "hlo"
    if op.guessed:
        return "guess"
    if op.kind == "pallas":
        return "kernel"
    return "memory" if time.memory_ms >= time.compute_ms else "compute"


def _played(trace: Trace, cores: int, chip: Chip, constants: Constants, seen: dict[tuple[int, int], Played]) -> Played:
    key = (id(trace), cores)
    if key not in seen:
        seen[key] = play(trace, chip, constants, cores)
    return seen[key]


def _hbm_ms(op: OpTerms, chip: Chip, constants: Constants) -> float:
    """The bytes at the bandwidth that both ways reach together, or the busier way alone."""
    peak = chip.device_hbm_gbs * 1e6
    both = (op.read_bytes + op.written_bytes) / (constants.hbm_efficiency * peak)
    alone = max(op.read_bytes, op.written_bytes) / (constants.one_way_efficiency * peak)
    return max(both, alone) * op.times


def _low_ms(op: OpTerms, chip: Chip, constants: Constants) -> float:
    bandwidth = constants.hbm_efficiency * chip.device_hbm_gbs * 1e6
    return max(op.low_cycles / (chip.clock_ghz * 1e6), op.low_bytes / bandwidth) * op.times


def _share(copying: dict[str, float], spare: float) -> None:
    """Copies under way take the bandwidth that an op left, the oldest first."""
    for name in copying:
        used = min(spare, copying[name])
        copying[name] -= used
        spare -= used

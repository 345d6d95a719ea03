"""Where the time goes on the chip, op by op, and how that differs from what was modelled."""

from __future__ import annotations

import re
from collections.abc import Sequence

from maxkernel_nb.tpu.chip.trace import Call, Event, covered
from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.profiles import ScheduleProfile
from maxkernel_nb.values import Value

_HLO = re.compile(r"^%?([\w.\-]+)")


class MeasuredOp(Value):
    """``ms`` a run of the program, without the ops inside it; ``runs`` of the op a run of the program."""

    name: str
    category: str = ""
    ms: float
    runs: float
    flops: float = 0.0
    hbm_bytes: float = 0.0


class MeasuredProfile(Value):
    """One program on one device, measured. Shares are between 0 and 1, None where the trace does not tell.

    ``overlap``: of the time in which asynchronous copies run, the share that other ops run beside them. ``sync_wait``:
    of the program's time, the share in which it waits for a copy or a semaphore.
    """

    device: str
    ms: float
    ops: tuple[MeasuredOp, ...] = ()
    overlap: float | None = None
    sync_wait: float | None = None
    tflops: float = 0.0
    hbm_gbs: float = 0.0
    of_peak_flops: float | None = None
    of_peak_hbm: float | None = None
    notes: tuple[str, ...] = ()


class MeasuredPair(Value):
    """Both programs of one measurement. ``difference``: sentences on how the candidate's differs from its model."""

    reference: MeasuredProfile
    candidate: MeasuredProfile
    difference: tuple[str, ...] = ()


def profile(calls: Sequence[Call], device: str, chip: Chip | None = None) -> MeasuredProfile:
    """The mean over ``calls`` of one program."""
    count = len(calls)
    ms = sum(c.ns for c in calls) / count / 1e6
    ops = _table(calls)
    flops, moved = sum(o.flops for o in ops), sum(o.hbm_bytes for o in ops)
    tflops, gbs = flops / ms / 1e9, moved / ms / 1e6
    return MeasuredProfile(
        device=device, ms=ms, ops=ops, overlap=_overlap(calls), sync_wait=_waiting(calls), tflops=tflops, hbm_gbs=gbs,
        of_peak_flops=tflops / chip.device_tflops if chip and flops else None,
        of_peak_hbm=gbs / chip.device_hbm_gbs if chip and moved else None,
    )  # fmt: skip


def _table(calls: Sequence[Call]) -> tuple[MeasuredOp, ...]:
    count = len(calls)
    rows: dict[str, MeasuredOp] = {}
    for call in calls:
        for op, own_ns in self_times(call.ops):
            name = op_name(op)
            old = rows.get(name) or MeasuredOp(name=name, category=str(op.stats.get("hlo_category", "")), ms=0, runs=0)
            rows[name] = old.model_copy(update={
                "ms": old.ms + own_ns / 1e6 / count, "runs": old.runs + 1 / count,
                "flops": old.flops + _number(op, "flops") / count,
                "hbm_bytes": old.hbm_bytes + _number(op, "bytes_accessed") / count,
            })  # fmt: skip
    return tuple(sorted(rows.values(), key=lambda o: -o.ms))


def op_name(op: Event) -> str:
    """``%fusion.3 = bf16[8]{0} fusion(...)`` -> ``fusion.3``."""
    found = _HLO.match(op.name)
    return found[1] if found else op.name


def _number(op: Event, name: str) -> float:
    value = op.stats.get(name, 0)
    return float(value) if isinstance(value, int | float) and value > 0 else 0.0


def self_times(ops: Sequence[Event]) -> list[tuple[Event, float]]:
    """Each op with its time less that of the ops nested in it (a loop's body runs within the loop's event)."""
    found: list[tuple[Event, float]] = []
    open_ops: list[tuple[Event, float]] = []

    def finish() -> None:
        op, inner = open_ops.pop()
        found.append((op, max(0.0, op.ns - inner)))

    for op in sorted(ops, key=lambda o: (o.start, -o.end)):
        while open_ops and open_ops[-1][0].end <= op.start:
            finish()
        if open_ops and op.end <= open_ops[-1][0].end:
            outer, inner = open_ops[-1]
            open_ops[-1] = (outer, inner + op.ns)
        open_ops.append((op, 0.0))
    while open_ops:
        finish()
    return found


def _overlap(calls: Sequence[Call]) -> float | None:
    copies = sum(covered(c.transfers) for c in calls)
    if not copies:
        return None
    busy = sum(covered(_computing(c)) for c in calls)
    either = sum(covered((*c.transfers, *_computing(c))) for c in calls)
    return max(0.0, min(1.0, (copies + busy - either) / copies))


def _computing(call: Call) -> tuple[Event, ...]:
    return tuple(o for o in call.ops if not op_name(o).endswith(("-start", "-done")) and "copy-" not in o.name[:12])


def _waiting(calls: Sequence[Call]) -> float | None:
    if not any(c.waits for c in calls):
        return None
    return min(1.0, sum(covered(c.waits) for c in calls) / sum(c.ns for c in calls))


def difference(modelled: ScheduleProfile, measured: MeasuredProfile) -> tuple[str, ...]:
    """What the model got wrong, the largest part first, in a few sentences."""
    off = measured.ms / modelled.modelled_ms - 1 if modelled.modelled_ms else 0.0
    told = [f"Measured {measured.ms:.4g} ms where {modelled.modelled_ms:.4g} ms were modelled ({off:+.0%})."]
    seen = {o.name: o.ms for o in measured.ops}
    pairs = [(o.name, o.modelled_ms, seen[o.name]) for o in modelled.ops if o.name in seen]
    for name, model, real in sorted(pairs, key=lambda p: -abs(p[2] - p[1]))[:3]:
        if abs(real - model) > 0.02 * measured.ms:
            told.append(f"{name}: {model:.4g} ms modelled, {real:.4g} ms measured ({real - model:+.4g} ms).")
    missing = sum(ms for name, ms in seen.items() if name not in {p[0] for p in pairs})
    if pairs and missing > 0.05 * measured.ms:
        told.append(f"Ops that the model does not know take {missing:.4g} ms.")
    if measured.sync_wait is not None and measured.sync_wait > 0.1:
        told.append(f"It waits for copies or semaphores in {measured.sync_wait:.0%} of the time.")
    if measured.overlap is not None and measured.overlap < 0.7:
        told.append(f"Only {measured.overlap:.0%} of the copies' time has other work beside it; the model assumes all.")
    return tuple(told)

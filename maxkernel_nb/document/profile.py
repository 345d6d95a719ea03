"""The profile section: the XLA reference beside the best kernel, modelled, and as a chip measured them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from maxkernel_nb.document import model as m
from maxkernel_nb.document.step import step_view, vmem_view
from maxkernel_nb.engine.state import RunState
from maxkernel_nb.tpu.chip.profile import MeasuredPair, MeasuredProfile
from maxkernel_nb.tpu.chips import CHIPS
from maxkernel_nb.tpu.profiles import ScheduleProfile

TOP_OPS = 6
_UNITS = ("mxu", "xlu", "valu", "eup", "vload", "vstore", "salu")
_BYTES = ("B", "KB", "MB", "GB", "TB")


def time_text(ms: float) -> str:
    """``13.2 ms``, ``84.0 µs``: three significant digits."""
    if not math.isfinite(ms):
        return "?"
    return f"{_three(ms)} ms" if ms >= 1 else f"{_three(ms * 1e3)} µs"


def _three(x: float) -> str:
    return f"{x:.2f}" if x < 10 else f"{x:.1f}" if x < 100 else f"{x:,.0f}"


def profile_view(state: RunState) -> m.ProfileView | None:
    best = state.candidates.get(state.best) if state.best else None
    pairs = (("XLA reference", state.baseline), ("Best kernel", best.profile if best else None))
    known = tuple((label, profile) for label, profile in pairs if profile is not None)
    view = compared(known, state.task.chip if state.task else "")
    return view if best is None or best.measured is None else beside_measured(view, best.measured, dict(known))


def beside_measured(
    view: m.ProfileView | None, pair: MeasuredPair, modelled: Mapping[str, ScheduleProfile]
) -> m.ProfileView:
    """The same pictures, with a side more for each program that was measured."""
    labelled = (("XLA reference", pair.reference), ("Best kernel", pair.candidate))
    sides = tuple(measured_side(label, found, modelled.get(label)) for label, found in labelled)
    on = f"Measured on {pair.candidate.device}"
    if view is None:
        return m.ProfileView(caption=f"{on}.", sides=sides)
    caption = f"{on}, beside what was modelled."
    return view.model_copy(update={"caption": caption, "sides": (*view.sides, *sides), "difference": pair.difference})


def measured_side(label: str, found: MeasuredProfile, modelled: ScheduleProfile | None) -> m.SideView:
    """FLOP and bytes are the trace's own; where it tells none (a Pallas call), those that the model counted."""
    flops, moved = (sum(getattr(op, name) for op in found.ops) for name in ("flops", "hbm_bytes"))
    if modelled is not None and not (flops and moved):
        flops, moved = modelled.flops, modelled.hbm_bytes
    return m.SideView(
        label=f"{label}, measured", evidence="measured", ms=_finite(found.ms), time=time_text(found.ms), bound="",
        bound_ms=_finite(modelled.roofline_ms) if modelled else 0.0,
        intensity=_finite(flops / moved) if moved else 0.0,
        tflops=_finite(flops / found.ms / 1e9) if found.ms else 0.0,
        ops=tuple(m.OpRow(name=o.name, kind=o.category, ms=_finite(o.ms), time=time_text(o.ms), bound="")
                  for o in found.ops[:TOP_OPS]),
        facts=_measured_facts(found, flops, moved), lines=found.notes,
    )  # fmt: skip


def _measured_facts(found: MeasuredProfile, flops: float, moved: float) -> tuple[m.Fact, ...]:
    achieved = f"{flops / found.ms / 1e9:.3g} TFLOP/s" if flops and found.ms else ""
    traffic = f"{moved / found.ms / 1e6:.3g} GB/s" if moved and found.ms else ""
    pairs = (
        ("Measured time", time_text(found.ms)),
        ("Achieved", achieved + _of_peak(found.of_peak_flops)),
        ("HBM traffic achieved", traffic + _of_peak(found.of_peak_hbm)),
        ("Copies with other work beside them", "" if found.overlap is None else f"{found.overlap:.0%}"),
        ("Waits for copies or semaphores", "" if found.sync_wait is None else f"{found.sync_wait:.0%}"),
        ("Read from", "profiler trace"),
    )
    return tuple(m.Fact(label=k, value=v) for k, v in pairs if v)


def _of_peak(share: float | None) -> str:
    return "" if share is None else f" ({share:.0%} of the peak)"


def compared(pairs: Sequence[tuple[str, ScheduleProfile]], chip: str) -> m.ProfileView | None:
    """Labelled profiles on one chip, side by side (two at most are drawn); None without any."""
    if not pairs:
        return None
    sides = tuple(side_view(label, profile) for label, profile in pairs)
    return m.ProfileView(caption=f"Modelled for {chip}, not measured.", sides=sides, roof=_roof(chip))


def side_view(label: str, p: ScheduleProfile) -> m.SideView:
    ms = _finite(p.modelled_ms)
    return m.SideView(
        label=label,
        ms=ms,
        time=time_text(p.modelled_ms),
        bound=p.bound_by,
        bound_ms=_finite(p.roofline_ms),
        error_pct=p.error_pct,
        intensity=_finite(p.flops / p.hbm_bytes) if p.hbm_bytes else 0.0,
        tflops=_finite(p.flops / ms / 1e9) if ms else 0.0,
        units=_units(p),
        ops=_ops(p),
        facts=_facts(p),
        step=step_view(p),
        vmem=vmem_view(p),
        lines=tuple(p.explain().splitlines()) if p.ops else (),
    )


def _units(p: ScheduleProfile) -> tuple[m.Share, ...]:
    known = [op for op in p.ops if op.utilisation]
    total = sum(op.modelled_ms for op in known)
    if not total:
        return ()
    weighed = {u: sum(op.utilisation.get(u, 0.0) * op.modelled_ms for op in known) / total for u in _UNITS}
    return tuple(m.Share(label=u, share=min(1.0, max(0.0, _finite(x)))) for u, x in weighed.items())


def _ops(p: ScheduleProfile) -> tuple[m.OpRow, ...]:
    longest = sorted(p.ops, key=lambda op: -op.modelled_ms)[:TOP_OPS]
    return tuple(
        m.OpRow(
            name=op.name, kind=op.kind, ms=_finite(op.modelled_ms), time=time_text(op.modelled_ms), bound=op.bound_by
        )
        for op in longest
    )


def _facts(p: ScheduleProfile) -> tuple[m.Fact, ...]:
    spills = sum(op.spills for op in p.ops)
    pairs = (
        ("Modelled time", time_text(p.modelled_ms)),
        ("Bound by", p.bound_by or "unknown"),
        ("Roofline bound", time_text(p.roofline_ms)),
        ("Share of the roofline", f"{p.roofline_ms / p.modelled_ms:.0%}" if p.modelled_ms > 0 else ""),
        ("HBM traffic", size_text(p.hbm_bytes)),
        ("VMEM", size_text(p.vmem_bytes) if p.vmem_bytes else ""),
        ("Lost to pipelines filling", _share(p.startup_ms, p.modelled_ms)),
        ("Lost to copies", _share(p.copies_ms, p.modelled_ms)),
        ("Lost to layout changes", _share(p.layout_ms, p.modelled_ms)),
        ("Ops scheduled", str(len(p.ops)) if p.ops else ""),
        ("Register spills", f"{spills:,}" if spills else ""),
        ("Read from", "compiler schedule" if p.source == "schedule" else "compiler estimates (wider error)"),
        ("Notes", " ".join(p.notes)),
    )
    return tuple(m.Fact(label=k, value=v) for k, v in pairs if v)


def size_text(n: float) -> str:
    """Bytes in decimal units, three significant digits."""
    for unit in _BYTES[:-1]:
        if n < 1000:
            return f"{n:.3g} {unit}"
        n /= 1000
    return f"{n:.3g} {_BYTES[-1]}"


def _share(ms: float, total: float) -> str:
    return f"{ms / total:.0%}" if total > 0 and ms / total >= 0.01 else ""


def _finite(x: float) -> float:
    return x if math.isfinite(x) else 0.0


def _roof(name: str) -> m.RoofView | None:
    known = CHIPS.get(name)
    return m.RoofView(chip=name, peak_tflops=known.device_tflops, hbm_gbps=known.device_hbm_gbs) if known else None

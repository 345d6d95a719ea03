"""A profile in at most ten lines of text: time, bound, and where it goes."""

from __future__ import annotations

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

MEANING = {
    "hbm": "HBM bandwidth", "mxu": "the matrix unit (MXU)", "valu": "vector arithmetic (VALU)",
    "eup": "the transcendental unit (EUP)", "xlu": "cross-lane moves (XLU) or result pops",
    "load/store": "VMEM loads and stores", "scalar": "the scalar unit",
    "latency": "instruction latency: no unit is busy for long",
}  # fmt: skip
ADVICE = {
    "hbm": "move fewer bytes: bigger blocks that are reused, fused neighbours, narrower types",
    "mxu": "near the machine's limit: only fewer FLOPs or a narrower type make it faster",
    "valu": "fewer vector operations per element: bf16 arithmetic, hoisted scaling, cheaper masks",
    "eup": "fewer exp/tanh/reciprocal per element, or exp2 with the scale folded in",
    "xlu": "fewer reductions, transposes and lane moves in the inner loop; keep running values replicated over lanes",
    "load/store": "keep values in registers: smaller inner tiles, fewer passes over VMEM",
    "scalar": "fewer, larger grid steps",
    "latency": "more independent work per step: larger blocks or an unrolled inner loop",
}


def explain(profile: ScheduleProfile) -> str:
    """At most ten lines, deterministic: the time with its error, the bound with evidence, the largest ops, notes."""
    if not profile.ops:
        return f"modelled on {profile.chip}: nothing in this program takes measurable time."
    top = sorted(profile.ops, key=lambda o: (-o.modelled_ms, o.name))
    main = top[0]
    lines = [_headline(profile), _roofline(profile), _bottleneck(main, profile.modelled_ms)]
    lines.append(f"Units in {main.name}: {_units(main)}." if main.utilisation else f"{main.name}: {main.note}.")
    if main.spills:
        lines.append(f"{main.spills} spill and {main.fills} fill slots in its program" + _spill_hint(main))
    lines.append(f"To try: {ADVICE.get(main.bound_by, ADVICE['latency'])}.")
    rest = top[1:3]
    if rest:
        lines.append("Then: " + "; ".join(f"{o.name} {o.modelled_ms:.3f} ms ({o.bound_by})" for o in rest) + ".")
    lines += [f"Note: {note}." for note in profile.notes]
    return "\n".join(lines[:10])


def _headline(p: ScheduleProfile) -> str:
    error = f" (typical error {p.error_pct:.0f} %)" if p.error_pct is not None else ""
    read = "the compiler's schedule" if p.source == "schedule" else "HLO estimates"
    versions = f"jax {p.jax_version}, libtpu {p.libtpu_version}"
    return f"{p.modelled_ms:.3f} ms modelled on {p.chip}{error}, from {read}; {versions}."


def _roofline(p: ScheduleProfile) -> str:
    facts = chip(p.chip)
    share = 100 * p.roofline_ms / p.modelled_ms if p.modelled_ms else 0.0
    side = "compute" if p.flops / (facts.device_tflops * 1e9) >= p.roofline_ms * 0.999 else "HBM"
    return f"Roofline ({side}) {p.roofline_ms:.3f} ms: {share:.0f} % of it reached; {_size(p.hbm_bytes)} through HBM."


def _bottleneck(op: OpProfile, total: float) -> str:
    share = 100 * op.modelled_ms / total if total else 0.0
    return (
        f"{share:.0f} % in {op.name} ({op.kind}), bound by {MEANING.get(op.bound_by, op.bound_by)}: "
        f"compute {op.compute_ms:.3f} ms, HBM {op.memory_ms:.3f} ms."
    )


def _units(op: OpProfile) -> str:
    shown = sorted(op.utilisation.items(), key=lambda kv: (-kv[1], kv[0]))[:5]
    return ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in shown)


def _spill_hint(op: OpProfile) -> str:
    return f", {op.note}: a smaller inner tile would help." if op.note else "."


def _size(count: float) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"

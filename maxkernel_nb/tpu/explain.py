"""A profile in at most ten lines of text: the time, the true bottleneck with its evidence, and what to try."""

from __future__ import annotations

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.constants import constants
from maxkernel_nb.tpu.profiles import LoopProfile, OpProfile, ScheduleProfile

MEANING = {
    "hbm": "HBM bandwidth", "dma": "the number of copies, whatever their size",
    "mxu": "the matrix unit (MXU)", "valu": "vector arithmetic (VALU)",
    "eup": "the transcendental unit (EUP)", "xlu": "cross-lane moves (XLU) or result pops",
    "load/store": "VMEM loads and stores", "scalar": "the scalar unit",
    "latency": "instruction latency: no unit is busy for long",
}  # fmt: skip
NAMES = {"mxu": "MXU", "valu": "VALU", "eup": "EUP", "xlu": "XLU", "vpop": "result pops", "vload": "loads",
         "vstore": "stores", "salu": "scalar"}  # fmt: skip
ADVICE = {
    "hbm": "move fewer bytes: bigger blocks that are reused, fused neighbours, narrower types",
    "dma": "fewer, larger copies: bigger pages or blocks, a layout in which one copy fetches what belongs together",
    "mxu": "near the machine's limit: only fewer FLOPs or a narrower type make it faster",
    "valu": "fewer vector operations per element: bf16 arithmetic, hoisted scaling, cheaper masks",
    "eup": "fewer exp/tanh/reciprocal per element, or exp2 with the scale folded in",
    "xlu": "fewer reductions, transposes and lane moves in the inner loop; keep running values replicated over lanes",
    "load/store": "keep values in registers: smaller inner tiles, fewer passes over VMEM",
    "scalar": "fewer, larger grid steps",
    "latency": "more independent work per step: larger blocks or an unrolled inner loop",
}
SPILLING = 0.15  # share of a loop's store slots that spills take before they are named
FULL = 0.85  # of a unit's slots, or of the matrix unit's array: above it little is left
LOST = 0.01  # share of the time worth a line


def explain(profile: ScheduleProfile) -> str:
    """At most ten lines, deterministic: the time with its error, the bound with evidence, losses, what to try."""
    if not profile.ops:
        return f"modelled on {profile.chip}: nothing in this program takes measurable time."
    top = sorted(profile.ops, key=lambda o: (-o.modelled_ms, o.name))
    main = top[0]
    loop = hot_loop(main)
    lines = [_headline(profile), _roofline(profile), _bottleneck(main, profile.modelled_ms)]
    lines += _loop_line(main, loop) if loop else _units_line(main)
    lines += _dma_line(main, profile) + _array_line(profile, main) + _spill_line(main, loop)
    lines.append(f"To try: {_advice(profile, main, loop)}.")
    rest = [o for o in top[1:3] if o.modelled_ms >= LOST * profile.modelled_ms]
    lines += _rest_line(rest) + _lost_line(profile)
    lines += [f"Note: {note}." for note in profile.notes]
    return "\n".join(lines[:10])


def hot_loop(op: OpProfile) -> LoopProfile | None:
    """The loop in which most of the op's cycles pass; of two alike, the inner one. None without a loop that counts."""
    counted = [x for x in op.loops if x.share >= 0.2 and x.trips > 1]
    return max(counted, key=lambda x: (x.depth if x.share >= 0.35 else 0, x.share), default=None)


def array_fill(profile: ScheduleProfile) -> float | None:
    """FLOPs counted in the program over those that its MXU slots could do in bfloat16 (0..1); None where the matrix
    unit is not what counts. Below 1: operands smaller than the unit's array, or several passes for float32."""
    facts = chip(profile.chip)
    busy = sum(o.bundles * o.utilisation.get("mxu", 0.0) for o in profile.ops)
    if not busy or not profile.flops or facts.device_cores > 1:  # how many cores share the FLOPs is not recorded
        return None
    fill = profile.flops / (busy * facts.device_tflops * 1e3 / facts.clock_ghz)
    return fill if fill <= 1.05 else None


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
        f"compute {op.compute_ms:.3f} ms{_alone(op)}, HBM {op.memory_ms:.3f} ms."
    )


def _alone(op: OpProfile) -> str:
    """What the busiest unit would take if nothing else ever held it up: the floor for this program."""
    unit = max((u for u in NAMES if u in op.utilisation), key=lambda u: op.utilisation[u], default="")
    if op.bound_by == "hbm" or not unit:
        return ""
    return f" ({op.compute_ms * op.utilisation[unit]:.3f} if its {NAMES[unit]} slots alone counted)"


def _loop_line(op: OpProfile, loop: LoopProfile) -> list[str]:
    """Cycles that each unit needs an iteration: slots used over slots a cycle."""
    need = {u: loop.utilisation[u] * loop.bundles for u in NAMES if u in loop.utilisation}
    shown = sorted(need.items(), key=lambda kv: (-kv[1], kv[0]))[:6]
    units = ", ".join(f"{NAMES[u]} {n:,.0f} ({100 * loop.utilisation[u]:.0f} %)" for u, n in shown)
    inner = [x for x in op.loops if x.depth > 1]
    place = "Inner loop" if loop.depth > 1 else "Grid loop" if op.kind == "pallas" else "Loop"
    own = " outside its inner loops" if loop.depth == 1 and inner else ""
    return [
        f"{place}, {loop.trips:,.0f} trips, {100 * loop.share:.0f} % of the cycles: {loop.bundles:,.0f} cycles a trip"
        f"{own}, of which {units}{_outside(op, loop)}."
    ]


def _outside(op: OpProfile, loop: LoopProfile) -> str:
    """The busiest unit of the step's own work, where much of the time passes outside the inner loop."""
    outer = next((x for x in op.loops if x.depth < loop.depth and x.share >= 0.2), None)
    used = {u: outer.utilisation[u] for u in NAMES if u in outer.utilisation} if outer else {}
    if outer is None or not used:
        return ""
    unit = max(used, key=lambda u: used[u])
    return f"; {100 * outer.share:.0f} % outside it, {NAMES[unit]} {100 * used[unit]:.0f} %"


def _units_line(op: OpProfile) -> list[str]:
    if not op.utilisation:
        return [f"{op.name}: {op.note}."] if op.note else []
    shown = sorted(op.utilisation.items(), key=lambda kv: (-kv[1], kv[0]))[:5]
    return [f"Units in {op.name}: " + ", ".join(f"{NAMES.get(u, u)} {100 * share:.0f} %" for u, share in shown) + "."]


def _dma_line(op: OpProfile, p: ScheduleProfile) -> list[str]:
    """Whether the copies of one step of the outermost loop hide behind its work."""
    if op.bound_by == "dma":
        each, size = constants(p.chip).dma_setup_us, _size(op.hbm_bytes / max(op.copies, 1.0))
        return [
            f"{op.copies:,.0f} copies of {size} on average at {each:g} µs each, whatever their size (learned from one "
            "published program with pages of 32 kB; smaller ones may cost less): the units wait."
        ]
    outer = next((x for x in op.loops if x.depth <= 1 and x.trips > 1), None)
    if outer is None or not op.hbm_bytes or not outer.read_bytes + outer.written_bytes:
        return []
    compute = outer.with_inner / (chip(p.chip).clock_ghz * 1e3)
    copying = (outer.read_bytes + outer.written_bytes) * op.memory_ms / op.hbm_bytes * 1e3
    moved = f"{_size(outer.read_bytes)} in, {_size(outer.written_bytes)} out"
    if copying <= 0.8 * compute:
        said = "hidden behind the work"
    elif copying <= 1.1 * compute:
        said = "about as long as the work: uneven steps wait"
    else:
        said = "longer than the work: the units wait"
    return [f"A step computes {compute:.2f} µs and copies {copying:.2f} µs ({moved}): {said}."]


def _array_line(p: ScheduleProfile, op: OpProfile) -> list[str]:
    fill = array_fill(p)
    if fill is None or fill > FULL or op.utilisation.get("mxu", 0.0) < 0.3:
        return []
    size = chip(p.chip).mxu_size
    return [
        f"The MXU's slots do {100 * fill:.0f} % of the FLOPs they could: operands narrower than its {size} x {size} "
        "array, or float32 in several passes."
    ]


def _spill_line(op: OpProfile, loop: LoopProfile | None) -> list[str]:
    if not op.spills:
        return []
    slots = loop.slots if loop else {}
    share = slots.get("spill", 0.0) / slots["vstore"] if slots.get("vstore") else 0.0
    if share < SPILLING:
        return [] if loop else [f"{op.spills} spill and {op.fills} fill slots in its program."]
    return [
        f"Registers overflow: {100 * share:.0f} % of the loop's stores are spills "
        f"({slots['spill']:,.0f} a trip, {slots.get('fill', 0.0):,.0f} loaded back)."
    ]


def _advice(p: ScheduleProfile, op: OpProfile, loop: LoopProfile | None) -> str:
    used = loop.utilisation if loop else op.utilisation
    spilling = loop is not None and loop.slots.get("spill", 0.0) > SPILLING * loop.slots.get("vstore", 1.0)
    fill = array_fill(p)
    wider = fill is not None and fill < FULL
    if op.bound_by in ("mxu", "latency") and spilling and used.get("mxu", 0.0) < FULL:
        idle = f"{100 * (1 - max(used.values())):.0f} % of the cycles its busiest unit waits"
        more = "; beyond that only wider operands or fewer FLOPs" if wider else ""
        return f"other tile sizes, with fewer spills and more overlap: {idle}{more}"
    if op.bound_by == "mxu" and wider:
        return "fill the MXU's array: wider operands, two heads side by side, bfloat16 instead of float32"
    return ADVICE.get(op.bound_by, ADVICE["latency"])


def _rest_line(rest: list[OpProfile]) -> list[str]:
    told = "; ".join(f"{o.name} {o.modelled_ms:.3f} ms ({o.bound_by})" for o in rest)
    return [f"Then: {told}."] if rest else []


def _lost_line(p: ScheduleProfile) -> list[str]:
    lost = (("filling and draining pipelines", p.startup_ms), ("copies", p.copies_ms), ("layout changes", p.layout_ms))
    total = p.modelled_ms or 1.0
    told = [f"{name} {100 * ms / total:.0f} %" for name, ms in lost if ms / total >= LOST]
    return [f"Lost to {', '.join(told)}."] if told else []


def _size(count: float) -> str:
    if count >= 1e9:
        return f"{count / 1e9:.2f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"

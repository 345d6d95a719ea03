"""From a compiled program to a modelled time. Modelled, never measured.

Each scheduled op is played: its bundles take a cycle each, or as long as the matrix units need, its DMAs share the way
to HBM and wait as the program makes them wait (``pipeline``). Ops are summed in the order and number that the scheduled
HLO runs them; asynchronous copies run beside them (``timing``). What the compiler's output does not say is in
``constants``: six figures a chip, fitted to published v6e times, with the error that is left by class of op.
"""

from __future__ import annotations

import math
from pathlib import Path

from maxkernel_nb.tpu import aot
from maxkernel_nb.tpu.availability import libtpu_version
from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.constants import CALIBRATED, OpClass, constants, typical_error
from maxkernel_nb.tpu.detail import details, moves, slots_used
from maxkernel_nb.tpu.dumps import collecting
from maxkernel_nb.tpu.emulate import Execution
from maxkernel_nb.tpu.flops import count
from maxkernel_nb.tpu.hlo import Module, parse_module
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile
from maxkernel_nb.tpu.schedule import Program, UnknownForm, deduplicated, read_programs
from maxkernel_nb.tpu.tables import Tables
from maxkernel_nb.tpu.terms import UNREADABLE, OpTerms, Reading, read_terms
from maxkernel_nb.tpu.timing import OpTime, op_class, program_times
from maxkernel_nb.tpu.vmem_report import with_buffers

UNIT_LIMITS = {"mxu": "mxu", "xlu": "xlu", "valu": "valu", "eup": "eup", "vload": "load/store", "vstore": "load/store",
               "vpop": "xlu", "salu": "scalar"}  # fmt: skip
OTHER_CHIP = 10.0  # percent more, where the constants are v6e's: nobody published times to hold them against
BUSY = 0.6  # a unit used in at least this share of the bundles is named as the bound; below, waiting is


def profile_exported(serialized: bytes, chip: str, source_file: str = "") -> ScheduleProfile:
    """Compiles exported bytes for ``chip`` and models the time of one run on one device.

    To be called in a worker started with ``aot.worker_environment(dump_dir)``; the dumps are read and deleted. Without
    dumps, or with dumps of an unknown form, the figures are HLO estimates and ``source`` says "hlo".

    Raises:
        CompileFailure: the compiler refuses the program.
        InfrastructureError: no compiler here, or unreadable bytes.
    """
    with collecting(aot.dump_folder()) as dumps:
        compiled = aot.compile_exported(serialized, chip, source_file)
        profile = profile_compiled(compiled, dumps.folder)
    lost = (dumps.note(),) if dumps.dropped else ()
    return profile.model_copy(update={"notes": (*lost, *profile.notes)})


def profile_compiled(compiled: aot.Compiled, folder: Path | None) -> ScheduleProfile:
    """The profile of a compiled program whose schedule dumps lie in ``folder`` (None: HLO estimates only)."""
    facts = chip_named(compiled.chip)
    module = parse_module(compiled.hlo)
    notes: list[str] = []
    readings = _readings(compiled, module, folder, notes)
    same = deduplicated(folder) if folder is not None and folder.is_dir() else {}
    ops = with_buffers(_op_profiles(readings, module, facts), folder, same)
    notes = [*_ranges(ops), *notes]
    if facts.device_cores < facts.cores:
        notes.append(
            f"one of the {facts.cores} cores of a {facts.name} chip runs this program, at its share of the bandwidth"
        )
    return _whole(compiled, facts, ops, notes, any(r.program for r in readings), _most_flops(readings, facts))


def terms_of(compiled: aot.Compiled, folder: Path | None) -> tuple[list[OpTerms], list[str]]:
    """What the model knows of a compiled program before any constant comes in, and the reader's notes."""
    notes: list[str] = []
    return [r.terms for r in _readings(compiled, parse_module(compiled.hlo), folder, notes)], notes


def _readings(compiled: aot.Compiled, module: Module, folder: Path | None, notes: list[str]) -> list[Reading]:
    programs, same = _programs(folder, notes)
    own = "tpu_custom_call" in compiled.module
    tables = Tables(module, compiled.serialized_hlo) if own and programs else None
    found = list(read_terms(module, programs, same, chip_named(compiled.chip), own, tables))
    notes += [n for r in found for n in r.notes]
    return found


def _programs(folder: Path | None, notes: list[str]) -> tuple[dict[str, Program], dict[str, str]]:
    if folder is None or not folder.is_dir():
        return {}, {}
    try:
        return read_programs(folder), deduplicated(folder)
    except (UnknownForm, *UNREADABLE) as reason:
        notes.append(f"schedule dumps have an unknown form ({reason}): estimates from HLO instead")
        return {}, {}


# --- ops


def _op_profiles(readings: list[Reading], module: Module, facts: Chip) -> list[OpProfile]:
    times = program_times([r.terms for r in readings], facts, constants(facts.name))
    return [_op_profile(r, t, module, facts) for r, t in zip(readings, times, strict=True) if _shown(r, t)]


def _shown(reading: Reading, time: OpTime) -> bool:
    """The end of a copy is an op of its own where somebody waits for it."""
    return reading.terms.role != "done" or time.total_ms > 0


def _op_profile(reading: Reading, time: OpTime, module: Module, facts: Chip) -> OpProfile:
    terms, run, program = reading.terms, reading.run, reading.program
    used = _utilisation(program, run, facts) if program and run else {}
    spare = {u: used.pop(u, 0.0) for u in ("fill", "spill")}
    kind = op_class(terms, time)
    return OpProfile(
        name=terms.name,
        kind=terms.kind,
        modelled_ms=time.total_ms,
        compute_ms=time.compute_ms,
        memory_ms=time.memory_ms,
        bundles=terms.cycles * terms.times if program else 0.0,
        trips=((terms.times,) if terms.times != 1 else ()) + (run.trips if run else ()),
        hbm_bytes=(terms.read_bytes + terms.written_bytes) * terms.times,
        bound_by=_bound(time, used, kind),
        utilisation=used,
        spills=sum(program.slots.get("spill", ())) if program else 0,
        fills=sum(program.slots.get("fill", ())) if program else 0,
        vmem_bytes=reading.instruction.scoped_vmem_bytes if program else 0,
        note=_note(reading, spare),
        read_bytes=terms.read_bytes * terms.times,
        written_bytes=terms.written_bytes * terms.times,
        startup_ms=time.start_ms,
        low_ms=time.low_ms,
        copies=time.copies,
        moves=moves(reading.instruction, module),
        error_pct=_error_of(kind, facts.name),
        **(details(program, run, facts) if program and run else {}),
    )


def _ranges(ops: list[OpProfile]) -> list[str]:
    """What data decides, as a range: with nothing skipped, and with all of it."""
    return [
        f"{o.name} depends on data: {o.low_ms:.3g} to {o.modelled_ms:.3g} ms"
        for o in ops
        if o.low_ms is not None and o.modelled_ms >= 1e-3
    ]


def _note(reading: Reading, spare: dict[str, float]) -> str:
    if reading.terms.role == "prefetch":
        return "fetched by the program before"
    if reading.terms.role != "op":
        return "asynchronous copy"
    if reading.program is None:
        return "from HLO estimates"
    return "spilling registers in its loop" if spare["spill"] > 0.2 else ""


def _utilisation(program: Program, run: Execution, facts: Chip) -> dict[str, float]:
    cycles = sum(run.spent)
    used = slots_used(program, run, facts, range(len(run.times))) if cycles else {}
    return {u: round(n / cycles / program.capacity[u], 4) for u, n in used.items() if program.capacity.get(u)}


def _bound(time: OpTime, used: dict[str, float], kind: OpClass) -> str:
    if time.copies_ms > max(time.memory_ms, time.compute_ms):
        return "dma"
    if time.memory_ms >= time.compute_ms:
        return "hbm"
    if kind == "hlo":
        return "latency"
    unit = max(used, key=lambda u: used[u], default="")
    return UNIT_LIMITS.get(unit, "latency") if used.get(unit, 0.0) >= BUSY else "latency"


# --- the whole


def _whole(
    compiled: aot.Compiled,
    facts: Chip,
    ops: list[OpProfile],
    notes: list[str],
    scheduled: bool,
    most_flops: float,
) -> ScheduleProfile:
    import jax

    flops = count(compiled.module)
    memory = compiled.executable.memory_analysis()
    minimal = float(memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes)
    total = sum(o.modelled_ms for o in ops)
    longest = max(ops, key=lambda o: o.modelled_ms, default=None)
    error, source = _error(ops, scheduled, facts.name)
    return ScheduleProfile(
        chip=facts.name,
        modelled_ms=total,
        flops=flops,
        hbm_bytes=sum(o.hbm_bytes for o in ops),
        roofline_ms=max(min(flops, most_flops) / (facts.device_tflops * 1e9), minimal / (facts.device_hbm_gbs * 1e6)),
        ops=tuple(ops),
        source="schedule" if scheduled else "hlo",
        error_pct=round(error, 1),
        error_source=source,
        bound_by=longest.bound_by if longest else "",
        jax_version=jax.__version__,
        libtpu_version=libtpu_version(),
        compile_s=compiled.compile_s,
        vmem_bytes=max((o.vmem_bytes for o in ops), default=0),
        has_pallas="tpu_custom_call" in compiled.module,
        notes=tuple(dict.fromkeys(notes))[:12],
        minimal_bytes=minimal,
    )


def _most_flops(readings: list[Reading], facts: Chip) -> float:
    """What goes through the matrix units at most, at the rate of bfloat16: less than was asked for where a table known
    to the compiler rules blocks out, where XLA simplifies, or for integers, which are twice as fast."""
    rows = 0.0
    for r in readings:
        if r.run is None or r.program is None:
            if r.terms.role == "op" and r.instruction.opcode in ("fusion", "custom-call", "convolution", "dot"):
                return math.inf  # there may be products in it
            continue
        ran = sum(b.rows * n for b, n in zip(r.program.bundles, r.run.times, strict=True))
        rows += ran * r.terms.times * r.terms.cores
    return 2 * rows * facts.mxu_size**2


def _error(ops: list[OpProfile], scheduled: bool, chip: str) -> tuple[float, str]:
    """The error of the whole: its ops' errors, by their share of the time (they need not cancel)."""
    total = sum(o.modelled_ms for o in ops)
    errors = [(o.modelled_ms, o.error_pct or 0.0) for o in ops]
    whole = sum(ms * e for ms, e in errors) / total if total else typical_error("compute")
    if not scheduled:
        return max(whole, typical_error("hlo")), "HLO estimates, not calibrated"
    if chip != "v6e":
        return whole, f"calibrated on v6e only ({CALIBRATED})"
    return whole, CALIBRATED


def _error_of(kind: OpClass, chip: str) -> float:
    return typical_error(kind) + (0.0 if chip == "v6e" else OTHER_CHIP)

"""From a compiled program to a modelled time. Modelled, never measured.

Per scheduled op, over the iterations of its pipelined loop: the longer of the bundles that an iteration runs over the
clock, and the HBM bytes that it issues over 87 % of the peak bandwidth; so first fetches, last write-backs and uneven
steps cost what they cost. Ops are summed in the order and number that the scheduled HLO runs them. One fitted constant
(the 87 %); everything else is read from the compiler's output.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from maxkernel_nb.tpu import aot
from maxkernel_nb.tpu.availability import libtpu_version
from maxkernel_nb.tpu.chips import Chip
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.detail import details, moves, startup_bytes
from maxkernel_nb.tpu.emulate import Execution, execute
from maxkernel_nb.tpu.flops import count
from maxkernel_nb.tpu.hlo import Instruction, Module, parse_module
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile
from maxkernel_nb.tpu.schedule import Program, UnknownForm, deduplicated, read_programs
from maxkernel_nb.tpu.vmem_report import with_buffers

Kind = Literal["fusion", "pallas", "custom-call", "copy", "while", "other"]
HBM_EFFICIENCY = 0.87  # share of peak HBM bandwidth that large streams reach; see calibration in error_source
UNIT_LIMITS = {"mxu": "mxu", "xlu": "xlu", "valu": "valu", "eup": "eup", "vload": "load/store", "vstore": "load/store",
               "vpop": "xlu", "salu": "scalar"}  # fmt: skip
BUSY = 0.6  # a unit used in at least this share of the bundles is named as the bound; below, waiting is


def profile_exported(serialized: bytes, chip: str, source_file: str = "") -> ScheduleProfile:
    """Compiles exported bytes for ``chip`` and models the time of one run on one device.

    To be called in a worker started with ``aot.worker_environment(dump_dir)``; the dumps are read and deleted. Without
    dumps, or with dumps of an unknown form, the figures are HLO estimates and ``source`` says "hlo".

    Raises:
        CompileFailure: the compiler refuses the program.
        InfrastructureError: no compiler here, or unreadable bytes.
    """
    folder = aot.dump_folder()
    _clear(folder)
    try:
        compiled = aot.compile_exported(serialized, chip, source_file)
        return profile_compiled(compiled, folder)
    finally:
        _clear(folder)


def profile_compiled(compiled: aot.Compiled, folder: Path | None) -> ScheduleProfile:
    """The profile of a compiled program whose schedule dumps lie in ``folder`` (None: HLO estimates only)."""
    facts = chip_named(compiled.chip)
    module = parse_module(compiled.hlo)
    notes: list[str] = []
    programs, same = _programs(folder, notes)
    own_kernels = "tpu_custom_call" in compiled.module
    ops = _merge(_op_profiles(module, programs, same, facts, own_kernels, notes))
    ops = with_buffers(ops, folder, same)
    if facts.device_cores < facts.cores:
        notes.append(
            f"one of the {facts.cores} cores of a {facts.name} chip runs this program, at its share of the bandwidth"
        )
    return _whole(compiled, facts, module, ops, notes, bool(programs), own_kernels)


def _programs(folder: Path | None, notes: list[str]) -> tuple[dict[str, Program], dict[str, str]]:
    if folder is None or not folder.is_dir():
        return {}, {}
    try:
        return read_programs(folder), deduplicated(folder)
    except UnknownForm as reason:
        notes.append(f"schedule dumps have an unknown form ({reason}): estimates from HLO instead")
        return {}, {}


# --- ops


def _op_profiles(
    module: Module, programs: dict[str, Program], same: dict[str, str], facts: Chip, own_kernels: bool, notes: list[str]
) -> Iterator[OpProfile]:
    ran: dict[str, list[Execution]] = {}
    for i, times, sure in module.walk():
        if not sure:
            notes.append(f"how often {i.name} runs is not known to the compiler: counted {times:g} times")
        program = programs.get(i.name) or programs.get(same.get(i.name, ""))
        if program is not None:
            if program.name not in ran:
                ran[program.name] = _on_every_core(program, facts)
            yield _from_schedule(i, module, program, ran[program.name], times, facts, own_kernels)
            if _matters(ran[program.name][0], times, facts):
                notes.extend(f"{i.name}: {u}" for u in ran[program.name][0].unknown)
            if facts.device_cores > len(ran[program.name]) and _kind(i, own_kernels) == "pallas":
                notes.append(f"{i.name} runs on one of {facts.device_cores} cores: no grid axis is marked parallel")
        elif i.opcode in ("copy-start", "slice-start", "async-start"):
            yield _from_hlo(i, module, times, facts, "copy")
        elif _costs(i, module):
            yield _from_hlo(i, module, times, facts, _kind(i, own_kernels))


def _matters(run: Execution, times: float, facts: Chip) -> bool:
    return _ms(sum(run.times), facts) * times >= 1e-4


def _on_every_core(program: Program, facts: Chip) -> list[Execution]:
    """One execution a core that has work, the longest first."""
    cores = range(facts.device_cores if program.asks_core else 1)
    runs = sorted((execute(program, facts.dma_granule_bytes, c) for c in cores), key=lambda r: -sum(r.times))
    return [r for r in runs if sum(r.times) > 0.05 * sum(runs[0].times)]


def _costs(i: Instruction, module: Module) -> bool:
    return i.target != "AllocateBuffer" and (i.estimated_cycles > 0 or sum(module.hbm_traffic(i)) > 4096)


def _kind(i: Instruction, own_kernels: bool) -> Kind:
    if i.opcode == "custom-call":
        return "pallas" if i.target == "tpu_custom_call" and own_kernels else "custom-call"
    return "fusion" if i.opcode == "fusion" else "copy" if i.opcode == "copy" else "other"


def _from_schedule(
    i: Instruction, module: Module, program: Program, runs: list[Execution], times: float, facts: Chip, own: bool
) -> OpProfile:
    run, cores = runs[0], len(runs)
    bundles = sum(run.times)
    moved = sum(r.bytes_in + r.bytes_out for r in runs)
    if not moved and not any(b.dmas for b in program.bundles):
        moved = sum(module.hbm_traffic(i))
    compute, memory = _ms(bundles, facts), _hbm_ms(moved, facts)
    total = _pipelined(run, moved, cores, facts)
    used = _utilisation(program, run, bundles)
    spare = {u: used.pop(u, 0.0) for u in ("fill", "spill")}
    return OpProfile(
        name=i.name,
        kind=_kind(i, own),
        modelled_ms=total * times,
        compute_ms=compute * times,
        memory_ms=memory * times,
        bundles=bundles * times,
        trips=((times,) if times != 1 else ()) + run.trips,
        hbm_bytes=moved * times,
        bound_by=_bound(compute, memory, used),
        utilisation=used,
        spills=sum(program.slots.get("spill", ())),
        fills=sum(program.slots.get("fill", ())),
        vmem_bytes=i.scoped_vmem_bytes,
        note=_spill_note(spare),
        read_bytes=sum(r.bytes_in for r in runs) * times,
        written_bytes=sum(r.bytes_out for r in runs) * times,
        startup_ms=min(_hbm_ms(startup_bytes(run) * cores, facts), total) * times,
        moves=moves(i, module),
        **details(program, run),
    )


def _pipelined(run: Execution, moved: float, cores: int, facts: Chip) -> float:
    """Milliseconds of a double-buffered loop: a step issues the reads of the next and the writes of the one before, so
    each takes the longer of its bundles and its DMAs. Bytes that no DMA of the program moves are spread evenly."""
    issued = sum(i + o for _, i, o in run.steps)
    extra = max(moved - issued * run.repeat * cores, 0.0) / run.repeat / max(len(run.steps), 1)
    total, waiting = 0.0, 0.0
    for bundles, read, written in run.steps:
        size = (read + waiting) * cores + extra
        total += max(_ms(bundles, facts), _hbm_ms(size, facts))
        waiting = written
    return (total + _hbm_ms(waiting * cores, facts)) * run.repeat


def _spill_note(spare: dict[str, float]) -> str:
    return "spilling registers in its loop" if spare["spill"] > 0.2 else ""


def _from_hlo(i: Instruction, module: Module, times: float, facts: Chip, kind: Kind) -> OpProfile:
    read, written = module.hbm_traffic(i)
    compute, memory = _ms(i.estimated_cycles, facts), _hbm_ms(read + written, facts)
    return OpProfile(
        name=i.name,
        kind=kind,
        modelled_ms=max(compute, memory) * times,
        compute_ms=compute * times,
        memory_ms=memory * times,
        hbm_bytes=(read + written) * times,
        trips=(times,) if times != 1 else (),
        bound_by="hbm" if memory >= compute else "latency",
        note="from HLO estimates",
        read_bytes=read * times,
        written_bytes=written * times,
        moves=moves(i, module),
    )


def _ms(cycles: float, facts: Chip) -> float:
    return cycles / (facts.clock_ghz * 1e6)


def _hbm_ms(size: float, facts: Chip) -> float:
    return size / (HBM_EFFICIENCY * facts.device_hbm_gbs * 1e6)


def _utilisation(program: Program, run: Execution, bundles: float) -> dict[str, float]:
    if not bundles:
        return {}
    used = {}
    for unit, slots in program.slots.items():
        capacity = program.capacity.get(unit, 0)
        if capacity:
            busy = sum(n * t for n, t in zip(slots, run.times, strict=False))
            used[unit] = round(busy / bundles / capacity, 4)
    return used


def _bound(compute: float, memory: float, used: dict[str, float]) -> str:
    if memory >= compute:
        return "hbm"
    unit = max(used, key=lambda u: used[u], default="")
    return UNIT_LIMITS.get(unit, "latency") if used.get(unit, 0.0) >= BUSY else "latency"


def _merge(ops: Iterator[OpProfile]) -> list[OpProfile]:
    """Async copies run beside the other ops: only what does not fit into the others' spare DMA time is theirs."""
    listed = list(ops)
    spare = sum(max(o.modelled_ms - o.memory_ms, 0.0) for o in listed if o.kind != "copy")
    merged = []
    for o in listed:
        if o.kind == "copy" and o.note == "from HLO estimates":
            hidden = min(spare, o.memory_ms)
            spare -= hidden
            o = o.model_copy(update={"modelled_ms": o.modelled_ms - hidden, "note": "asynchronous copy"})
        merged.append(o)
    return merged


# --- the whole


def _whole(
    compiled: aot.Compiled,
    facts: Chip,
    module: Module,
    ops: list[OpProfile],
    notes: list[str],
    scheduled: bool,
    own: bool,
) -> ScheduleProfile:
    import jax

    flops = count(compiled.module)
    memory = compiled.executable.memory_analysis()
    minimal = float(memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes)
    total = sum(o.modelled_ms for o in ops)
    longest = max(ops, key=lambda o: o.modelled_ms, default=None)
    error, source = _error(scheduled, own, facts.name)
    return ScheduleProfile(
        chip=facts.name,
        modelled_ms=total,
        flops=flops,
        hbm_bytes=sum(o.hbm_bytes for o in ops),
        roofline_ms=max(flops / (facts.device_tflops * 1e9), minimal / (facts.device_hbm_gbs * 1e6)),
        ops=tuple(ops),
        source="schedule" if scheduled else "hlo",
        error_pct=error,
        error_source=source,
        bound_by=longest.bound_by if longest else "",
        jax_version=jax.__version__,
        libtpu_version=libtpu_version(),
        compile_s=compiled.compile_s,
        vmem_bytes=max((o.vmem_bytes for o in ops), default=0),
        has_pallas=own,
        notes=tuple(dict.fromkeys(notes))[:12],
        minimal_bytes=minimal,
    )


def _error(scheduled: bool, own: bool, chip: str) -> tuple[float, str]:
    """The model's typical error in percent. Eleven published v6e medians (9 XLA programs, 2 Pallas kernels) were
    modelled with jax 0.10.2: off by 6 % in the median, 14 % at worst, nearly always too fast; heavy HBM traffic beside
    a busy MXU is where it is worst. XLA's attention is left out: its compiler has changed since."""
    if not scheduled:
        return 40.0, "HLO estimates, not calibrated"
    if chip != "v6e":
        return 20.0, "calibrated on v6e only"
    return (12.0 if own else 7.0), "11 published v6e medians: median error 6 %, worst 14 %, biased to too fast"


# --- dumps


def _clear(folder: Path | None) -> None:
    """Removes what earlier compiles left: dumps are large and their names do not say which compile they are from."""
    if folder is None or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

"""One step of a kernel's pipeline, and who holds its VMEM: from a profile to what charts and panel show."""

from __future__ import annotations

from maxkernel_nb.document import model as m
from maxkernel_nb.tpu.chips import CHIPS, MIB
from maxkernel_nb.tpu.profiles import BufferUse, LoopProfile, OpProfile, ScheduleProfile

MOST_BUFFERS = 8


def step_view(p: ScheduleProfile) -> m.StepView | None:
    """A typical step of the longest op; None where its program has no loop that was read, or moves nothing."""
    op = max(p.ops, key=lambda o: o.modelled_ms, default=None)
    outer = next((x for x in op.loops if x.depth <= 1 and x.trips > 1), None) if op else None
    chip = CHIPS.get(p.chip)
    if op is None or outer is None or chip is None or not op.hbm_bytes:
        return None
    per_byte = op.memory_ms / op.hbm_bytes * 1e3
    compute = outer.with_inner / (chip.clock_ghz * 1e3)
    read, written = outer.read_bytes * per_byte, outer.written_bytes * per_byte
    return m.StepView(
        op=op.name,
        trips=outer.trips,
        compute_us=compute,
        read_us=read,
        written_us=written,
        parts=_parts(op, outer, chip.clock_ghz),
        text=_said(compute, read + written),
    )


def _parts(op: OpProfile, outer: LoopProfile, clock_ghz: float) -> tuple[m.Part, ...]:
    """The step's own work, then that of the loops inside it."""
    inner = [x for x in op.loops if x.depth > outer.depth]
    own = m.Part(label="outside inner loops" if inner else "work", us=outer.bundles / (clock_ghz * 1e3))
    return (own, *(_inner(x, x.trips / outer.trips, clock_ghz) for x in inner))


def _inner(loop: LoopProfile, trips: float, clock_ghz: float) -> m.Part:
    return m.Part(label=f"inner loop, {trips:.2g} trips a step", us=loop.bundles * trips / clock_ghz / 1e3)


def _said(compute: float, copying: float) -> str:
    if copying <= compute:
        return f"Copies take {copying:.2f} µs and hide behind {compute:.2f} µs of work."
    return f"Copies take {copying:.2f} µs, longer than the {compute:.2f} µs of work: the units wait for memory."


def vmem_view(p: ScheduleProfile) -> m.VmemView | None:
    """The op that needs most VMEM, buffer by buffer; None where the compiler said nothing of it."""
    op = max(p.ops, key=lambda o: sum(b.size for b in o.buffers), default=None)
    chip = CHIPS.get(p.chip)
    if op is None or chip is None or not op.buffers:
        return None
    shown, rest = op.buffers[:MOST_BUFFERS], op.buffers[MOST_BUFFERS:]
    rows = [_row(b) for b in shown]
    if rest:
        size = sum(b.size for b in rest)
        rows.append(m.BufferRow(label=f"{len(rest)} more", kind="other", size=size, text=_mib(size)))
    used = sum(b.size for b in op.buffers)
    limit = max(chip.scoped_vmem_bytes, used) if used <= chip.vmem_bytes else chip.vmem_bytes
    return m.VmemView(op=op.name, rows=tuple(rows), used=used, limit=limit, capacity=chip.vmem_bytes)


def _row(b: BufferUse) -> m.BufferRow:
    name = "register spills" if b.kind == "spill" else b.name
    twice = f" x{b.copies}" if b.copies > 1 else ""
    return m.BufferRow(label=f"{name} {b.shape}{twice}".strip(), kind=b.kind, size=b.size, text=_mib(b.size))


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB" if size >= MIB / 10 else f"{size / 1024:.0f} KiB"

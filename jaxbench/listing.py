"""What is known of tasks before anyone works on them, as text and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jaxbench.cases import case_dims
from jaxbench.registry import BenchTask


def count(value: float, unit: str) -> str:
    """1.100e12, "FLOP" -> "1.10 TFLOP"."""
    for step, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _sizes(values: Mapping[str, object]) -> str:
    shown = {k: f"{len(v)} values" if isinstance(v, tuple) else v for k, v in values.items()}
    return ", ".join(f"{k}={v}" for k, v in shown.items())


def facts(bench: BenchTask) -> dict[str, object]:
    return {
        "id": bench.id,
        "tier": bench.tier,
        "title": bench.title,
        "source_model": bench.source_model,
        "config": dict(bench.full),
        "smoke": dict(bench.smoke),
        "params": list(bench.params),
        "flops": bench.flops(),
        "least_flops": bench.least_flops(),
        "min_bytes": bench.min_bytes(),
        "algebra": bench.algebra,
        "dead": dict(bench.dead),
    }


def listing(chosen: Sequence[BenchTask]) -> str:
    """One line a task: id, work, minimal traffic, operations a byte, remarks."""
    lines = [f"{'task':58} {'work':>11} {'least traffic':>13} {'FLOP/B':>7}"]
    for bench in chosen:
        flops, moved = bench.flops(), bench.min_bytes()
        remark = "  mostly algebra" if bench.algebra else ""
        lines.append(f"{bench.id:58} {count(flops, 'FLOP'):>11} {count(moved, 'B'):>13} {flops / moved:7.0f}{remark}")
    return "\n".join(lines)


def description(bench: BenchTask) -> str:
    """All that is known of a task before anyone works on it."""
    changed = {k: bench.smoke[k] for k in bench.full if bench.smoke[k] != bench.full[k]}
    lines = [bench.doc, "", f"{bench.id} ({bench.tier}; {bench.source_model})"]
    lines += ["sizes   " + _sizes(bench.full)]
    lines += ["smoke   " + _sizes(changed)]
    for name, dims in case_dims(bench).items():
        lines.append(f"checked {name}: " + _sizes({k: dims[k] for k in dims if dims[k] != bench.full[k]}))
    for spec in bench.specs():
        dead = f"  cannot matter: {bench.dead[spec.name]}" if spec.name in bench.dead else ""
        lines.append(f"input   {spec.name}: {spec.dtype_for('bfloat16')}{list(spec.shape)}{dead}")
    result = bench.output()
    lines.append(f"result  {result.dtype}{list(result.shape)}")
    lines.append(f"work    {count(bench.flops(), 'FLOP')}, at least {count(bench.min_bytes(), 'B')} of HBM traffic")
    if bench.least_flops() != bench.flops():
        lines.append(f"        {count(bench.least_flops(), 'FLOP')} are enough: see the task file")
    if bench.algebra:
        lines.append(f"algebra {bench.algebra}")
    return "\n".join([*lines, "", bench.source.rstrip()])

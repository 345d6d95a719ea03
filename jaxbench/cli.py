"""``python -m jaxbench``: list the tasks, show one, find out which wrong answers they accept."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence

from jaxbench.registry import BenchTask, task, tasks
from maxkernel_nb.errors import MaxKernelError


def _count(value: float, unit: str) -> str:
    """1.100e12, "FLOP" -> "1.10 TFLOP"."""
    for step, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= step:
            return f"{value / step:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def _sizes(values: Mapping[str, object]) -> str:
    shown = {k: f"{len(v)} values" if isinstance(v, tuple) else v for k, v in values.items()}
    return ", ".join(f"{k}={v}" for k, v in shown.items())


def _facts(bench: BenchTask) -> dict[str, object]:
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
        lines.append(f"{bench.id:58} {_count(flops, 'FLOP'):>11} {_count(moved, 'B'):>13} {flops / moved:7.0f}{remark}")
    return "\n".join(lines)


def description(bench: BenchTask) -> str:
    """All that is known of a task before anyone works on it."""
    changed = {k: bench.smoke[k] for k in bench.full if bench.smoke[k] != bench.full[k]}
    lines = [bench.doc, "", f"{bench.id} ({bench.tier}; {bench.source_model})"]
    lines += ["sizes   " + _sizes(bench.full)]
    lines += ["smoke   " + _sizes(changed)]
    for spec in bench.specs():
        dead = f"  cannot matter: {bench.dead[spec.name]}" if spec.name in bench.dead else ""
        lines.append(f"input   {spec.name}: {spec.dtype_for('bfloat16')}{list(spec.shape)}{dead}")
    result = bench.output()
    lines.append(f"result  {result.dtype}{list(result.shape)}")
    lines.append(f"work    {_count(bench.flops(), 'FLOP')}, at least {_count(bench.min_bytes(), 'B')} of HBM traffic")
    if bench.least_flops() != bench.flops():
        lines.append(f"        {_count(bench.least_flops(), 'FLOP')} are enough: see the task file")
    if bench.algebra:
        lines.append(f"algebra {bench.algebra}")
    return "\n".join([*lines, "", bench.source.rstrip()])


def _list(options: argparse.Namespace) -> int:
    chosen = [t for t in tasks() if options.tier in ("", t.tier)]
    text = json.dumps([_facts(t) for t in chosen], indent=1) if options.json else listing(chosen)
    sys.stdout.write(text + "\n")
    return 0


def _show(options: argparse.Namespace) -> int:
    bench = task(options.id)
    text = json.dumps(_facts(bench), indent=1) if options.json else description(bench)
    sys.stdout.write(text + "\n")
    return 0


def _admit(options: argparse.Namespace) -> int:
    from jaxbench.admission import admit

    chosen = [task(name) for name in options.ids] or list(tasks())
    clean = True
    for bench in chosen:
        admission = admit(bench, tuple(range(options.seeds)))
        text = json.dumps(admission.to_dict()) if options.json else admission.describe()
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
        clean = clean and admission.admitted
    return 0 if clean else 1


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="python -m jaxbench", description="50 JAX tasks for TPU kernels.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=help, description=help)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="machine-readable output")
        return sub

    command("list", _list, "all tasks, one a line").add_argument(
        "--tier", choices=("production", "fusion"), default="", help="only this group"
    )
    command("show", _show, "one task: sizes, inputs, work, source").add_argument("id", help="8p or 8p_GEMM")
    help = "cheap wrong answers each task accepts, under the original rule and under ours (CPU, smoke sizes)"
    admitting = command("admit", _admit, help)
    admitting.add_argument("ids", nargs="*", metavar="ID", help="8p or 8p_GEMM; all tasks when none is given")
    admitting.add_argument("--seeds", type=int, default=2, help="draws an answer has to pass (default 2)")
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; exit code 0, 1 when a task is not admitted, 2 when what was asked for does not exist."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except MaxKernelError as error:
        sys.stderr.write(f"{error}\n")
        return 2

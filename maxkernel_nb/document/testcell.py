"""A notebook cell that tests an accepted kernel against its reference: plain JAX and NumPy, nothing of this package.

Its cases are the judge's own check cases with inputs drawn anew, and its limit is the judge's: a few times the
reference's own error against a wider computation, and never less than the last bits of the result's type.
"""

from __future__ import annotations

import functools
import io
import tokenize
from typing import Any

from maxkernel_nb.task import ArgSpec, Case, CaseRole, Draw, KernelTask, Tree


def cell_of_tests(task: KernelTask, run_id: str) -> str:
    """The cell's text; empty where a task's inputs come from a function that is not in its source."""
    cases = [c for c in task.cases if c.role is CaseRole.CHECK and not c.maker]
    if not cases:
        return ""
    reference = f"{task.entry}_reference"
    while reference in task.source:
        reference += "_"
    return _template().render(
        run=run_id, entry=task.entry, reference=reference, tolerance=task.tolerance,
        source=renamed(task.source.strip("\n"), task.entry, reference),
        static="".join(f", {name}={value!r}" for name, value in task.static.items()),
        cases=[{"name": repr(case.name), "given": _given(task, case)} for case in cases],
    )


@functools.cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("maxkernel_nb", "document")
    return Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True).get_template("testcell.jinja")


def renamed(source: str, name: str, other: str) -> str:
    """``source`` with the function ``name`` called ``other``, where it is defined and where it calls itself."""
    lines, before = source.splitlines(keepends=True), ""
    places = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string == name and before != ".":
            places.append(token.start)
        before = token.string
    for row, column in reversed(places):
        line = lines[row - 1]
        lines[row - 1] = line[:column] + other + line[column + len(name):]
    return "".join(lines)


def _given(task: KernelTask, case: Case) -> list[str]:
    """An expression for each of the function's arguments, in order."""
    arrays = {arg.name: _array(arg, case) for arg in case.args}
    return [_tree(p.tree, arrays) for p in task.trees] or list(arrays.values())


def _tree(tree: Tree, arrays: dict[str, str]) -> str:
    match tree.kind:
        case "array":
            return arrays[tree.name]
        case "value":
            return repr(tree.value)
        case "dict":
            return "{" + ", ".join(f"{key!r}: {_tree(inner, arrays)}" for key, inner in tree.items) + "}"
    inside = ", ".join(_tree(inner, arrays) for _, inner in tree.items)
    return f"[{inside}]" if tree.kind == "list" else f"({inside},)"


def _array(arg: ArgSpec, case: Case) -> str:
    dimensions = [n for other in case.args if other.name != arg.name for n in other.shape]
    return f"jnp.asarray({_values(arg.draw, arg.shape, dimensions)}, {arg.dtype!r})"


def _values(draw: Draw, shape: tuple[int, ...], dimensions: list[int]) -> str:
    """An expression in ``rng`` that draws as the judge does (``tasks.draws.fitted``)."""
    from maxkernel_nb.tasks.draws import settled

    draw = settled(draw, dimensions)
    match draw.kind:
        case "normal":
            return f"rng.normal({draw.mean}, {draw.std}, {shape})"
        case "bernoulli":
            return f"rng.random({shape}) < {draw.mean}"
        case "constant":
            return f"np.full({shape}, {draw.mean})"
        case "integers":
            return f"rng.integers({draw.low}, {draw.high}, {shape})"
        case "permutation":
            return f"rng.permuted(np.broadcast_to(np.arange({shape[-1]}), {shape}), axis=-1)"
        case "sorted":
            rows, inner = shape[:-1], max(shape[-1] - 2, 0)
            drawn = f"rng.integers({draw.low}, {max(draw.high, draw.low + 1)}, {(*rows, inner)})"
            ends = f"np.full({(*rows, 1)}, {draw.low}), {drawn}, np.full({(*rows, 1)}, {draw.high - 1})"
            return f"np.sort(np.concatenate([{ends}], axis=-1), axis=-1)"
        case "partition":
            return f"rng.multinomial({draw.high}, np.full({shape[-1]}, 1 / {shape[-1]}), {shape[:-1]})"
        case "pages":
            return f"np.resize({draw.low} + rng.permutation({max(draw.high - draw.low, 1)}), {shape})"

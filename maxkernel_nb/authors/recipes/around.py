"""What lies around a kernel that takes a few nodes and gives one: plain JAX before and after, in readable lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from maxkernel_nb.authors.recipes.algebra import rewritten
from maxkernel_nb.authors.recipes.aligned import Aligned
from maxkernel_nb.authors.recipes.graph import Graph
from maxkernel_nb.authors.recipes.plain import Plain
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask


class Around:
    """``before``: lines that compute ``inputs``; ``names``: source of each. Then ``finish``."""

    def __init__(self, aligned: Aligned, task: KernelTask, inputs: Mapping[int, str], taken: Sequence[str]) -> None:
        self.aligned = aligned
        params = {
            n: (task.params[aligned[n].attr("index")], aligned[n].dtype)
            for n in range(len(aligned)) if aligned[n].op == "param"
        }
        self.plain = Plain(aligned, params, task.static, {*task.params, *task.parameters, *task.static, *taken})
        self.plain.write(*(i for i in inputs if aligned[i].op != "param"))
        self.before = tuple(self.plain.lines)
        self.names = {i: self.plain.as_dtype(i, dtype) for i, dtype in inputs.items()}

    def finish(self, root: int, name: str, dtype: str) -> tuple[tuple[str, ...], str]:
        """The lines after the kernel, whose result is ``root`` under that name, and what is returned."""
        self.plain.lines = []
        self.plain.define(root, name, dtype)
        output = self.aligned.outputs[0]
        self.plain.write(output)
        return tuple(self.plain.lines), self.plain.as_dtype(output, self.aligned.graphs[0].output_dtypes[0])


def uses_lax(lines: Sequence[str]) -> bool:
    return any("lax." in line.replace("jax.lax.", "") for line in lines)


def aligned_cases(traces: Mapping[str, Any], task: KernelTask, mine: Callable[[Graph], None]) -> Aligned:
    """All cases' graphs at once after the algebra, the timing case first. ``mine`` raises ``Declined`` early."""
    names = [task.timing_case.name, *(n for n in traces if n != task.timing_case.name)]
    graphs = [rewritten(traces[n]).graph for n in names]
    if len(graphs[0].outputs) != 1:
        raise Declined(f"it returns {len(graphs[0].outputs)} arrays, this recipe writes one")
    mine(graphs[0])
    return Aligned(graphs)

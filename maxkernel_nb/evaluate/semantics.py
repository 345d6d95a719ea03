"""What a kernel's grid promises, checked on its jaxpr: steps along a parallel axis must not share an output block.

The interpreter finds such a kernel only in some orders of the steps; a TPU with two cores, or another compiler, always
may. Milliseconds, no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from maxkernel_nb.compat import inner_jaxprs

_WHOLE = ("any", "hbm", "semaphore")  # not cut into blocks: the kernel copies parts of it itself


def read_variables(jaxpr: Any) -> set[Any]:
    """Every variable that counts for a result, in a jaxpr and those inside it."""
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    found = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(v in found for v in equation.outvars):
            found |= {v for v in equation.invars if not hasattr(v, "val")}
            for inner in inner_jaxprs(equation.params):
                found |= read_variables(inner)
    return found


def shared_output(equation: Any, read: set[Any]) -> str:
    """One sentence when an output block of this ``pallas_call`` is revisited along a parallel axis, else empty. Outputs
    that nobody reads are memory to work in (splash attention keeps its running sums so).
    """
    mapping = equation.params["grid_mapping"]
    steps = parallel_axes(equation)
    outputs = mapping.block_mappings[len(mapping.block_mappings) - mapping.num_outputs :]
    for number, output in enumerate(outputs):
        unread = equation.outvars[number] not in read
        if unread or any(word in str(_space(output)).lower() for word in _WHOLE):
            continue
        used = _arguments_used(output.index_map_jaxpr.jaxpr)
        for axis in steps:
            if axis not in used:
                return (
                    f"Output block {number} is the same for every step of grid axis {axis}, which is marked parallel: "
                    "steps overwrite each other's result; mark the axis arbitrary."
                )
    return ""


def parallel_axes(equation: Any) -> list[int]:
    """The grid axes of more than one step whose steps may be taken in any order, on any core."""
    grid = equation.params["grid_mapping"].grid
    marked = [axis for axis, kind in enumerate(_semantics(equation)) if "parallel" in str(kind).lower()]
    return [a for a in marked if a < len(grid) and grid[a] != 1]


def _semantics(equation: Any) -> tuple[Any, ...]:
    parameters = equation.params["compiler_params"]
    if isinstance(parameters, Mapping):  # jax 0.7.2 keeps one set for each backend
        parameters = parameters.get("mosaic_tpu")
    return tuple(getattr(parameters, "dimension_semantics", None) or ())


def _space(block: Any) -> Any:
    return getattr(getattr(block, "transformed_block_aval", None), "memory_space", None)


def _arguments_used(jaxpr: Any) -> set[int]:
    """Numbers of the arguments that any result depends on (through any equation)."""
    wanted = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    for equation in reversed(jaxpr.eqns):
        if any(v in wanted for v in equation.outvars):
            wanted |= {v for v in equation.invars if not hasattr(v, "val")}
    return {number for number, v in enumerate(jaxpr.invars) if v in wanted}

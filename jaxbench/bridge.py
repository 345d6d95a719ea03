"""A benchmark task as the ``KernelTask`` that the one evaluator judges and that every mode works on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxbench.cases import RAGGED, case_dims
from jaxbench.registry import BenchTask, Size
from jaxbench.source import standalone_source
from jaxbench.spec import Dims, draw_inputs
from maxkernel_nb.errors import UsageError
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import ArgSpec, Case, CaseRole, Draw, KernelTask
from maxkernel_nb.tasks.build import BuiltTask, build_task
from maxkernel_nb.tasks.makers import made_case
from maxkernel_nb.tasks.reference import capture, store_references

Inputs = Literal["ours", "published"]


def build(bench: BenchTask, store: ObjectStore, *, chip: str = "v6e", inputs: Inputs = "ours") -> BuiltTask:
    """The task with its full sizes as timing case and ``case_dims`` as check cases, its reference captured.

    ``inputs``: our own draws, or the published recipe (fixed values: every seed gives the same). Nothing is computed
    at full size. Raises ``TaskError`` or ``UsageError`` as ``build_task`` does.
    """
    return build_task(
        bench.reference, source=bench.source, name=bench.id, inputs=dict(_specs(bench, bench.full)), chip=chip,
        static=bench.static("full"), cases=cases(bench, inputs), store=store,
    )  # fmt: skip


def start_keywords(bench: BenchTask, inputs: Inputs = "ours") -> dict[str, Any]:
    """What ``maxkernel_nb.start`` needs to work on the same task."""
    return {
        "fn": bench.reference, "source": bench.source, "name": bench.id, "inputs": dict(_specs(bench, bench.full)),
        "static": [f"{name}={value!r}" for name, value in bench.static("full").items()],
        "cases": cases(bench, inputs),
    }  # fmt: skip


def cases(bench: BenchTask, inputs: Inputs = "ours") -> tuple[Case, ...]:
    """All cases of the task, the timing case first."""
    checks = case_dims(bench)
    roles = {name: CaseRole.RAGGED if name == RAGGED else CaseRole.CHECK for name in checks}
    made = [_case(bench, "timing", CaseRole.TIMING, bench.full, inputs)]
    return (*made, *(_case(bench, name, roles[name], dims, inputs) for name, dims in checks.items()))


def timing_case(bench: BenchTask, size: Size = "full") -> Case:
    """The case that is compiled and modelled when nothing is judged; its values are never drawn."""
    return Case(name="timing", role=CaseRole.TIMING, args=tuple(a for _, a in _specs(bench, bench.dims(size))))


def timing_task(
    bench: BenchTask, store: ObjectStore, chip: str, size: Size = "full", *, simplified: bool = False
) -> KernelTask:
    """The reference (or its algebraic short form) as a task with nothing but its timing case: for its time alone."""
    case = timing_case(bench, size)
    fn = bench.simplified if simplified and bench.simplified else bench.reference
    captured = capture(fn, (case,), bench.static(size))
    return KernelTask(
        name=bench.id, source=standalone_source(fn), entry=fn.__name__, params=bench.params, static=bench.static(size),
        cases=(case,), references=store_references(captured, store), chip=chip,
    )  # fmt: skip


def rival_task(bench: BenchTask, store: ObjectStore, chip: str) -> KernelTask:
    """jax's own tuned kernel for the task, for its time alone. Raises ``UsageError`` where jax has none."""
    from jaxbench.rivals import RIVALS
    from maxkernel_nb.evaluate.capture import as_on

    if bench.number not in RIVALS:
        raise UsageError(f"jax ships no kernel for {bench.id}; there is one for {', '.join(RIVALS)}.")
    case = timing_case(bench)

    def kernel(**given: Any) -> jax.Array:
        arrays = [given.pop(name) for name in bench.params]
        return RIVALS[bench.number][1](*arrays, **given)

    with as_on(chip):
        captured = capture(kernel, (case,), bench.static())
    return KernelTask(
        name=f"{bench.id}_rival", source=f"# jax.experimental.pallas.ops.tpu: {RIVALS[bench.number][0]}\n",
        entry="kernel", params=bench.params, static=bench.static(), cases=(case,),
        references=store_references(captured, store), chip=chip,
    )  # fmt: skip


def _case(bench: BenchTask, name: str, role: CaseRole, dims: Dims, inputs: Inputs) -> Case:
    specs = bench.inputs(dims)
    if inputs == "published":
        return made_case(name, role, bench.params, partial(_published, bench, dims))
    if all(isinstance(spec.ours, Draw) for spec in specs):
        return Case(name=name, role=role, args=tuple(arg for _, arg in _specs(bench, dims)))
    return made_case(name, role, bench.params, lambda key: draw_inputs(specs, key))


def _specs(bench: BenchTask, dims: Dims) -> list[tuple[str, ArgSpec]]:
    """An ``ArgSpec`` for each input; where one is sampled together with others, its draw counts for nothing."""
    return [
        (
            spec.name,
            ArgSpec(
                name=spec.name,
                shape=spec.shape,
                dtype=str(spec.dtype_for(jnp.bfloat16)),
                draw=spec.ours if isinstance(spec.ours, Draw) else Draw(),
            ),
        )
        for spec in bench.inputs(dims)
    ]


def _published(bench: BenchTask, dims: Dims, key: jax.Array) -> Sequence[Any]:
    """The original recipe at these sizes, whatever the key; weights keep the spread of the full contraction."""
    arrays = []
    for spec, full in zip(bench.inputs(dims), bench.specs("full"), strict=True):
        gain = (full.fan_in / spec.fan_in) ** 0.5 if spec.fan_in else 1.0
        arrays.append(spec.published(spec.shape, spec.dtype_for(jnp.bfloat16), gain))
    return arrays

"""The 50 tasks as values: ``tasks()`` in order, ``task("8p")`` by number or full id.

A task file states ``ID, SOURCE_MODEL, CONFIG, SMOKE, inputs, create_inputs, reference, flops`` and, where it applies,
``least_flops`` (less than the reference does, by algebra), ``input_bytes`` (inputs not read whole), ``simplified`` and
``ALGEBRA`` (plain JAX after the algebra, and what the algebra is), ``DEAD`` and ``IDLE`` (inputs and steps that cannot
matter, and why), ``CASES`` (sizes that kernels are checked at, where the rule of ``jaxbench.cases`` finds none).
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import math
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from types import MappingProxyType, ModuleType
from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxbench import fusion, production
from jaxbench.source import standalone_source
from jaxbench.spec import Dims, Input, draw_inputs
from maxkernel_nb.errors import UsageError

Size = Literal["full", "smoke"]
Arrays = tuple[jax.Array, ...]


@dataclass(frozen=True, eq=False)
class BenchTask:
    """One benchmark task. Sizes are ``"full"`` (as published) or ``"smoke"`` (small, same structure)."""

    id: str
    tier: Literal["production", "fusion"]
    title: str
    doc: str
    source_model: str
    full: Dims
    smoke: Dims
    inputs: Callable[[Dims], tuple[Input, ...]] = field(repr=False)
    reference: Callable[..., jax.Array] = field(repr=False)
    flops_formula: Callable[[Dims], int] = field(repr=False)
    least_flops_formula: Callable[[Dims], int] = field(repr=False)
    input_bytes_formula: Callable[[Dims, Mapping[str, int]], int] | None = field(default=None, repr=False)
    simplified: Callable[..., jax.Array] | None = field(default=None, repr=False)
    algebra: str = ""
    dead: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    idle: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cases: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}), repr=False)

    @property
    def number(self) -> str:
        """``8p``: the part of the id that is enough to name a task."""
        return self.id.split("_", 1)[0]

    def dims(self, size: Size = "full") -> Dims:
        if size not in ("full", "smoke"):
            raise UsageError(f"No size {size!r}; choose full or smoke.")
        return self.full if size == "full" else self.smoke

    def specs(self, size: Size = "full") -> tuple[Input, ...]:
        return self.inputs(self.dims(size))

    @property
    def params(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs("smoke"))

    def static(self, size: Size = "full") -> dict[str, Any]:
        """The reference's keyword-only arguments (constants, head and group counts) at this size."""
        dims = self.dims(size)
        kinds = inspect.signature(self.reference).parameters.values()
        return {p.name: dims[p.name] for p in kinds if p.kind is p.KEYWORD_ONLY}

    def function(self, size: Size = "full") -> Callable[..., jax.Array]:
        """The reference as a function of its arrays alone."""
        return partial(self.reference, **self.static(size))

    def simplified_function(self, size: Size = "full") -> Callable[..., jax.Array] | None:
        return self.simplified and partial(self.simplified, **self.static(size))

    def create_inputs(self, key: jax.Array, dtype: Any = jnp.bfloat16, size: Size = "full") -> Arrays:
        """Our inputs, drawn anew for every key."""
        return _drawer(self, size, jnp.dtype(dtype))(key)

    def abstract_inputs(self, size: Size = "full", dtype: Any = jnp.bfloat16) -> tuple[jax.ShapeDtypeStruct, ...]:
        return tuple(jax.ShapeDtypeStruct(s.shape, s.dtype_for(dtype)) for s in self.specs(size))

    def output(self, size: Size = "full", dtype: Any = jnp.bfloat16) -> jax.ShapeDtypeStruct:
        """Shape and dtype of the result, by tracing; nothing is computed."""
        return jax.eval_shape(self.function(size), *self.abstract_inputs(size, dtype))

    def flops(self, size: Size = "full") -> int:
        """Operations of the contractions the reference's result asks for (causal halves, chosen experts)."""
        return self.flops_formula(self.dims(size))

    def least_flops(self, size: Size = "full") -> int:
        """As ``flops`` after the algebra that a kernel may use; no honest kernel needs fewer."""
        return self.least_flops_formula(self.dims(size))

    def min_bytes(self, size: Size = "full", dtype: Any = jnp.bfloat16) -> int:
        """HBM bytes no kernel avoids: every needed input read once, the result written once."""
        needed = [s for s in self.specs(size) if s.name not in self.dead]
        sizes = {s.name: math.prod(s.shape) * s.dtype_for(dtype).itemsize for s in needed}
        formula = self.input_bytes_formula
        read = formula(self.dims(size), sizes) if formula else sum(sizes.values())
        result = self.output(size, dtype)
        return read + math.prod(result.shape) * result.dtype.itemsize

    @property
    def source(self) -> str:
        """The reference and all it uses as one module that needs only jax and numpy."""
        return standalone_source(self.reference)


@cache
def _drawer(bench: BenchTask, size: Size, dtype: Any) -> Callable[[jax.Array], Arrays]:
    """All of a task's draws as one compiled function: one at a time they cost seconds of compilation."""
    return jax.jit(lambda key: draw_inputs(bench.specs(size), key, dtype))


def published_inputs(
    which: BenchTask | str, size: Size = "full", dtype: Any = jnp.bfloat16, *, rescaled: bool = False
) -> Arrays:
    """The original benchmark's inputs (fixed keys, drawn directly in ``dtype``).

    ``rescaled`` multiplies weights by sqrt(full fan-in / fan-in) so that pre-activations keep their published spread
    at smoke size; without it short contractions leave many results near zero.
    """
    bench = task(which) if isinstance(which, str) else which
    arrays = []
    for spec, full in zip(bench.specs(size), bench.specs("full"), strict=True):
        gain = math.sqrt(full.fan_in / spec.fan_in) if rescaled and spec.fan_in else 1.0
        arrays.append(spec.published(spec.shape, spec.dtype_for(dtype), gain))
    return tuple(arrays)


def from_module(module: ModuleType, tier: Literal["production", "fusion"]) -> BenchTask:
    doc = inspect.getdoc(module) or ""
    full = Dims(module.CONFIG)
    return BenchTask(
        id=module.ID,
        tier=tier,
        title=doc.splitlines()[0].split(": ", 1)[1],
        doc=doc,
        source_model=module.SOURCE_MODEL,
        full=full,
        smoke=full.but(**module.SMOKE),
        inputs=module.inputs,
        reference=module.reference,
        flops_formula=module.flops,
        least_flops_formula=getattr(module, "least_flops", module.flops),
        input_bytes_formula=getattr(module, "input_bytes", None),
        simplified=getattr(module, "simplified", None),
        algebra=getattr(module, "ALGEBRA", ""),
        dead=MappingProxyType(getattr(module, "DEAD", {})),
        idle=MappingProxyType(getattr(module, "IDLE", {})),
        cases=MappingProxyType(getattr(module, "CASES", {})),
    )


@cache
def tasks() -> tuple[BenchTask, ...]:
    """All 50, 1p to 50k."""
    found = []
    for package, tier in ((production, "production"), (fusion, "fusion")):
        for entry in pkgutil.iter_modules(package.__path__):
            found.append(from_module(importlib.import_module(f"{package.__name__}.{entry.name}"), tier))
    return tuple(sorted(found, key=lambda t: int(t.number[:-1])))


def task(name: str) -> BenchTask:
    """The task with this id (``8p_GEMM``) or number (``8p``)."""
    by_name = {t.number.lower(): t for t in tasks()} | {t.id.lower(): t for t in tasks()}
    if name.lower() in by_name:
        return by_name[name.lower()]
    close = difflib.get_close_matches(name.lower(), by_name, 1)
    hint = f"the nearest is {by_name[close[0]].id}" if close else "see python -m jaxbench list"
    raise UsageError(f"No task {name!r} in jaxbench; {hint}.")

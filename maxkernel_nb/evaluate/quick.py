"""TPU interpret mode made quick: the same runs, with less of jax's own work around them.

jax 0.7.2 to 0.10.2 interpret a kernel by calling back into Python for every access to its memory. None of this changes
what is run or compared; a kernel with two cores went from 1.1 s a run to 0.02 s, a small one's compilation from 0.4 s
to 0.14 s (CPU time, jax 0.10.2). For a process that runs nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

BASE = "jax._src.pallas.mosaic.interpret"  # a module in 0.7, a package since 0.8
KEPT = 4  # cores' programs: those of one candidate

# Compiling the interpreter's program for this CPU took 1.1 s of a small attention kernel, and 0.4 s with the first four
# (jax 0.10.2). With the last one its callbacks come one after another without other threads: a third off each run.
_OPTIONS = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED",
}


@functools.cache
def options() -> dict[str, Any]:
    """Options that make the CPU compiler quick, as far as this jaxlib knows them."""
    import jax

    known: dict[str, Any] = {}
    for name, value in _OPTIONS.items():
        try:
            jax.jit(lambda x: x + 1, compiler_options={name: value}).lower(1.0).compile()
        except (RuntimeError, ValueError, AttributeError):
            continue
        known[name] = value
    return known


def install() -> None:
    """Once, in a process that interprets candidates."""
    callbacks()
    cores()
    orders()
    indices()
    memories()


def callbacks() -> None:
    """Callbacks get numpy arrays: copies of what XLA hands over, not put on a device first.

    As device arrays they were five sixths of the time of a small kernel's run.
    """
    from jax._src import callback as module

    def call(*args: Any, callback: Any, **_: Any) -> Any:
        return [np.asarray(result) for result in callback(*map(np.array, args))]

    module.io_callback_impl = call  # looked up by name when a callback is lowered


def cores() -> None:
    """A kernel's program for several cores is compiled once. jax compiles it in every run, for every core."""
    import jax

    known: OrderedDict[int, tuple[Any, Any]] = OrderedDict()
    lock = threading.Lock()

    def compiled(jaxpr: Any, *given: Any) -> Any:
        with lock:
            if id(jaxpr) not in known:  # the jaxpr is kept, so that its id stays its own
                call = jax.jit(lambda consts, *a: jax.core.eval_jaxpr(jaxpr, consts, *a), compiler_options=options())
                known[id(jaxpr)] = jaxpr, call.lower(*given).compile()
                while len(known) > KEPT:
                    known.popitem(last=False)
            return known[id(jaxpr)][1]

    def run(jaxpr: Any, consts: Any, *args: Any) -> None:
        compiled(jaxpr, consts, *args)(consts, *args)

    holder("_run_jaxpr", "thread_map")._run_jaxpr = run  # type: ignore[attr-defined]


def orders() -> None:
    """The order of parallel grid steps is drawn with numpy when a kernel is lowered. jax puts a random generator into
    each kernel's program, which was a third of compiling a small one.
    """
    module: Any = holder("_get_randomized_grid_coordinates", "interpret_pallas_call")
    parallel = module._get_parallel_dim_semantics

    def drawn(grid: Any, params: Any, seed: int | None) -> tuple[Any, ...]:
        import jax.numpy as jnp

        rng = np.random.Generator(np.random.PCG64(seed or 0))
        sizes = [int(n) if apart else 0 for n, apart in zip(grid, parallel(params, len(grid)), strict=True)]
        return tuple(jnp.asarray(rng.permutation(n).astype(np.int32)) for n in sizes)

    module._get_randomized_grid_coordinates = drawn


def indices() -> None:
    """Indices become integers without a walk over jax's trees, which was a third of a callback."""
    module: Any = holder("_get_randomized_grid_coordinates", "interpret_pallas_call")
    module.jax = Instead(module.jax, tree=Instead(module.jax.tree, map=integers))


class Instead:
    """A module with some names of it replaced."""

    def __init__(self, module: Any, **names: Any) -> None:
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def integers(function: Any, tree: Any, *rest: Any, **options: Any) -> Any:
    """``jax.tree.map``; what the interpreter asks most, ``int`` over a tuple of indexers, by hand."""
    import jax
    from jax._src.state import indexing

    if function is int and not rest and type(tree) is tuple and all(type(t) is indexing.NDIndexer for t in tree):
        return tuple(_integer(t, indexing) for t in tree)
    return jax.tree.map(function, tree, *rest, **options)


def _integer(indexer: Any, indexing: Any) -> Any:
    found = tuple(
        indexing.Slice(int(i.start), int(i.size), i.stride) if type(i) is indexing.Slice else int(i)
        for i in indexer.indices
    )
    return indexing.NDIndexer(found, indexer.shape, indexer.int_indexer_shape)


_garbage: list[np.random.Generator] = []  # while a run's memory holds what another program left there


@contextlib.contextmanager
def garbage(seed: int | None) -> Iterator[None]:
    """Memory that a kernel has not written holds numbers within the context, drawn from ``seed``, not NaN.

    A TPU's memory holds anything: a kernel that asks whether it is NaN asks where it runs. None: as it is.
    """
    if seed is not None:
        _garbage[:] = [np.random.Generator(np.random.PCG64(seed))]
    try:
        yield
    finally:
        _garbage.clear()


def memories() -> None:
    """``garbage`` is looked up when a run allocates, so that one compiled program serves both kinds of memory."""
    module: Any = holder("_allocate_buffer", "interpret_pallas_call")
    allocate = module._allocate_buffer

    def filled(*args: Any, **options: Any) -> Any:
        *place, value = args
        return allocate(*place, _left(np.asarray(value), _garbage[0]) if _garbage else value, **options)

    module._allocate_buffer = filled


def _left(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What another program may have left where ``value`` says that nothing was written, else ``value``."""
    kind = "i" if value.dtype.kind in "iu" else "f"
    if not value.size or value.dtype.kind == "b":
        return value
    if kind == "i":
        info = np.iinfo(value.dtype)
        return rng.integers(info.min, info.max, value.shape, value.dtype) if (value == info.max).all() else value
    if not np.isnan(value.astype(np.float32)).all():
        return value
    return (rng.standard_normal(value.shape) * 10.0 ** rng.integers(-2, 3)).astype(value.dtype)


def interpreter() -> Any:
    """What jax traces for a kernel with ``InterpretParams``."""
    return vars(holder("_get_randomized_grid_coordinates", "interpret_pallas_call"))["interpret_pallas_call"]


def holder(name: str, part: str) -> ModuleType:
    module = importlib.import_module(BASE)
    return module if hasattr(module, name) else importlib.import_module(f"{BASE}.{part}")

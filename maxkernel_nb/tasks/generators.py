"""Call a person's input generator: abstractly where it can be traced, else for real."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.errors import Declined, UsageError
from maxkernel_nb.tasks import sampling
from maxkernel_nb.tasks.draws import sample_of

SEEDS = (0, 1, 2)
_LARGE = 1 << 28  # bytes: made for one seed only
_KEYS = ("key", "rng", "rng_key", "prng_key", "random_key", "prng")
_NOT_TRACEABLE = (Declined, ArithmeticError, AssertionError, AttributeError, LookupError, NotImplementedError,
                  RuntimeError, TypeError, ValueError)  # fmt: skip
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


@dataclass(frozen=True)
class Sampled:
    """An output of a generator: its shape and dtype, and some of its elements for each seed (none: not known)."""

    shape: tuple[int, ...]
    dtype: str
    samples: tuple[np.ndarray[Any, Any], ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)


def made_by(generator: Callable[..., Any]) -> Any:
    """What ``generator`` returns (tuple, dict or single value), arrays replaced by ``Sampled``; plain values are kept.

    It is called with a ``jax.random`` key, or an integer seed, when it has a parameter for one; its other parameters
    keep their defaults. Raises ``UsageError`` when it needs more, or fails.
    """
    call, takes = _caller(generator)
    compat.prepare_host_backend()
    if takes != "seed":
        try:
            return _sampled(call)
        except _NOT_TRACEABLE:
            pass  # run it for real: if it is at fault, it fails again there
    return _drawn(call, getattr(generator, "__name__", "the generator"), takes == "seed")


def _caller(generator: Callable[..., Any]) -> tuple[Callable[[Any], Any], str]:
    name = getattr(generator, "__name__", "the generator")
    try:
        parameters = inspect.signature(generator).parameters
    except (TypeError, ValueError):
        return (lambda key: generator()), "nothing"
    random = next((n for n in parameters if n in _KEYS), "") or next((n for n in parameters if n == "seed"), "")
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [n for n, p in parameters.items() if p.default is p.empty and p.kind not in optional]
    if not random and len(required) == 1:
        random = required[0]
    others = [n for n in required if n != random]
    if others:
        raise UsageError(f"{name} needs {', '.join(others)} besides a key; give every other parameter a default.")
    if not random:
        return (lambda key: generator()), "nothing"
    if parameters[random].kind is inspect.Parameter.POSITIONAL_ONLY:
        return (lambda key: generator(key)), "key"
    return (lambda key: generator(**{random: key})), "seed" if random == "seed" else "key"


def _sampled(call: Callable[[Any], Any]) -> Any:
    """Traces the generator and evaluates a few thousand elements of each output. Raises ``Declined``, or as it does."""
    import jax

    outline: list[Any] = []

    def arrays(key: Any) -> list[Any]:
        outline.append(call(key))
        return [v for v in _values(outline[-1]) if not isinstance(v, _PLAIN)]

    keys = [jax.random.key(seed) for seed in SEEDS]
    closed = jax.make_jaxpr(arrays)(keys[0])
    if not any(e.primitive.name.startswith("random_") for e in compat.equations(closed.jaxpr)):
        raise Declined("It draws nothing from the key: its values come from elsewhere.")
    evaluate = jax.jit(lambda key: sampling.sample_outputs(closed, [key]))
    columns = list(zip(*(evaluate(key) for key in keys), strict=True))
    size = sum(a.size * a.dtype.itemsize for a in closed.out_avals)
    if any(v is None for column in columns for v in column) and size <= _LARGE:
        raise Declined("A sample cannot follow all of it, and it is cheap to run.")
    made = iter(
        Sampled(tuple(aval.shape), str(aval.dtype), tuple(np.asarray(v) for v in column if v is not None))
        for aval, column in zip(closed.out_avals, columns, strict=True)
    )
    return _rebuild(outline[0], lambda v: v if isinstance(v, _PLAIN) else next(made))


def _drawn(call: Callable[[Any], Any], name: str, is_seed: bool) -> Any:
    import jax

    made: list[Any] = []
    for seed in SEEDS:
        try:
            result = call(seed if is_seed else jax.random.key(seed))
        except Exception as error:
            reason = (str(error).strip() or "no message").splitlines()[0].rstrip(".")
            what = f"{type(error).__name__}: {reason[:200]}"
            raise UsageError(f"{name} failed for seed {seed} ({what}); call it by hand to see where.") from error
        size = sum(int(getattr(v, "nbytes", 0)) for v in _values(result))
        made.append(_rebuild(result, _sample_array))
        if size > _LARGE:
            break
    columns = iter(zip(*(_values(m) for m in made), strict=True))
    return _rebuild(made[0], lambda v: _pooled(next(columns)))


def _sample_array(value: Any) -> Any:
    import jax

    if not hasattr(value, "shape") or not hasattr(value, "dtype") or isinstance(value, jax.ShapeDtypeStruct):
        return value
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended):
        return value
    return Sampled(tuple(value.shape), str(jax.dtypes.canonicalize_dtype(value.dtype)), (sample_of(value),))


def _pooled(column: tuple[Any, ...]) -> Any:
    first = column[0]
    if not isinstance(first, Sampled):
        return first
    if any(c.shape != first.shape for c in column):
        shapes = [list(c.shape) for c in column]
        raise UsageError(f"The generator makes different shapes for different seeds ({shapes}); make them the same.")
    return Sampled(first.shape, first.dtype, tuple(s for c in column for s in c.samples))


def _values(result: Any) -> list[Any]:
    """What lies in ``result``, and in the dicts, lists and tuples within, in order."""
    if isinstance(result, Mapping):
        result = tuple(result.values())
    return [v for part in result for v in _values(part)] if isinstance(result, tuple | list) else [result]


def _rebuild(result: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(result, Mapping):
        return {name: _rebuild(value, change) for name, value in result.items()}
    if isinstance(result, tuple | list):
        parts = [_rebuild(v, change) for v in result]
        return parts if isinstance(result, list) else tuple(parts)
    return change(result)

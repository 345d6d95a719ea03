"""How a task states its sizes and inputs: once, for both the published recipe and our own draws.

Every input has two ways to get values:

* *published*: the recipe of the original benchmark (fixed keys, drawn directly in the wanted dtype), for
  comparing with published results;
* *ours*: a :class:`maxkernel_nb.task.Draw` (or a sampler, where several inputs must fit together), drawn anew for
  every key, with weights scaled by their fan-in, biases of order one and non-trivial affines, so that leaving out
  any part of the computation shows in the result at every size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import Draw

FLOAT = "float"  # an input of this dtype follows the dtype the caller asks for


class Dims(Mapping[str, Any]):
    """A task's named dimensions and constants, as attributes: ``d.batch_size``."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_values":
            raise AttributeError(name)
        try:
            return self._values[name]
        except KeyError:
            known = ", ".join(self._values)
            raise AttributeError(f"This task has no dimension {name!r}; it has {known}.") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def but(self, **changes: Any) -> Dims:
        unknown = sorted(set(changes) - set(self._values))
        if unknown:
            raise UsageError(f"No dimension {unknown[0]!r} in this task; choose from {', '.join(self._values)}.")
        return Dims({**self._values, **changes})


class Recipe(Protocol):
    """A published recipe. ``gain`` rescales a weight for a shorter contraction (1.0 as published)."""

    def __call__(self, shape: tuple[int, ...], dtype: Any, gain: float) -> jax.Array: ...


Sampler = Callable[[jax.Array, tuple[int, ...], Any], jax.Array]  # (key of the whole draw, shape, dtype)


@dataclass(frozen=True)
class Input:
    """One argument of a reference, in order. ``fan_in`` is the contraction length of a weight, else 0."""

    name: str
    shape: tuple[int, ...]
    published: Recipe
    ours: Draw | Sampler = field(default_factory=Draw)
    dtype: str = FLOAT
    fan_in: int = 0

    def dtype_for(self, dtype: Any) -> Any:
        return jnp.dtype(dtype if self.dtype == FLOAT else self.dtype)


def published_key(seed: int, index: int | None = None) -> jax.Array:
    """``key(seed)``, or its sub-key ``index``. With jax's partitionable threefry (the default) a sub-key does not
    depend on how many are split off, so ``index + 1`` is enough."""
    key = jax.random.key(seed)
    return key if index is None else jax.random.split(key, index + 1)[index]


def standard_normal(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """As ``jax.random.normal``, drawn flat: the same numbers, but XLA takes seconds to compile a five-axis draw."""
    return jax.random.normal(key, (math.prod(shape),), dtype).reshape(shape)


def _times(values: jax.Array, scale: float) -> jax.Array:
    return values if scale == 1.0 else values * scale


def normal_recipe(key: tuple[int, ...], scale: float = 1.0, shift: float = 0.0) -> Recipe:
    """Standard normal in the wanted dtype, then times ``scale``, then plus ``shift``, each rounded."""

    def recipe(shape: tuple[int, ...], dtype: Any, gain: float) -> jax.Array:
        values = _times(standard_normal(published_key(*key), shape, dtype), scale * gain)
        return values if shift == 0.0 else values + shift

    return recipe


def uniform_recipe(key: tuple[int, ...]) -> Recipe:
    """Uniform on [0, 1) in the wanted dtype; flat for the reason given at ``standard_normal``."""

    def recipe(shape: tuple[int, ...], dtype: Any, gain: float) -> jax.Array:
        return jax.random.uniform(published_key(*key), (math.prod(shape),), dtype).reshape(shape)

    return recipe


def constant_recipe(value: float) -> Recipe:
    return lambda shape, dtype, gain: jnp.full(shape, value, dtype)


def integer_recipe(key: tuple[int, ...], high: int) -> Recipe:
    return lambda shape, dtype, gain: jax.random.randint(published_key(*key), shape, 0, high, dtype)


def activations(name: str, shape: tuple[int, ...], key: tuple[int, ...], ours: Draw | Sampler | None = None) -> Input:
    """Published uniform on [0, 1); ours standard normal."""
    return Input(name, shape, uniform_recipe(key), ours or Draw())


def normal(
    name: str,
    shape: tuple[int, ...],
    key: tuple[int, ...],
    scale: float = 1.0,
    shift: float = 0.0,
    ours: Draw | Sampler | None = None,
    dtype: str = FLOAT,
) -> Input:
    """Published ``scale * N(0, 1) + shift``; ours the same distribution unless given."""
    return Input(name, shape, normal_recipe(key, scale, shift), ours or Draw(mean=shift, std=scale), dtype)


def weight(
    name: str,
    shape: tuple[int, ...],
    fan_in: int,
    key: tuple[int, ...],
    scale: float = 0.02,
    gain: float = 1.0,
    drift: float = 0.0,
) -> Input:
    """Published ``scale * N(0, 1)``; ours ``(drift + gain * N(0, 1)) / sqrt(fan_in)``.

    Unit inputs then give outputs of spread ``gain`` at any size. A ``drift`` adds a part common to all outputs of a
    row (spread ``drift``), so that a reduction over the row differs visibly from row to row.
    """
    root = math.sqrt(fan_in)
    draw = Draw(mean=drift / root, std=gain / root)
    return Input(name, shape, normal_recipe(key, scale), draw, fan_in=fan_in)


def bias(name: str, shape: tuple[int, ...], key: tuple[int, ...], scale: float = 0.02, std: float = 1.0) -> Input:
    """Published ``scale * N(0, 1)``; ours of order one."""
    return Input(name, shape, normal_recipe(key, scale), Draw(std=std))


def ones(name: str, shape: tuple[int, ...], std: float = 0.25) -> Input:
    """A multiplicative affine: published all ones; ours spread around one."""
    return Input(name, shape, constant_recipe(1.0), Draw(mean=1.0, std=std))


def zeros(name: str, shape: tuple[int, ...], std: float = 0.5) -> Input:
    """An additive affine: published all zeros; ours spread around zero."""
    return Input(name, shape, constant_recipe(0.0), Draw(std=std))


def scaled_per_item(spread: float, axes: int = 1) -> Sampler:
    """Normal values, each index of the first ``axes`` axes with a random scale ``exp(spread * N(0, 1))``: no item
    stands for another, not even after averaging over everything else."""

    def sample(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
        values, scales = jax.random.split(jax.random.fold_in(key, 7001))
        per_item = jnp.exp(spread * jax.random.normal(scales, shape[:axes] + (1,) * (len(shape) - axes)))
        return (per_item * standard_normal(values, shape, jnp.float32)).astype(dtype)

    return sample


def draw_array(draw: Draw, key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Values of one :class:`Draw`, computed in float32 or wider and rounded once to ``dtype``."""
    match draw.kind:
        case "integers":
            return jax.random.randint(key, shape, draw.low, draw.high, dtype)
        case "bernoulli":
            return jax.random.bernoulli(key, draw.mean, shape).astype(dtype)
        case "constant":
            return jnp.full(shape, draw.mean, dtype)
        case "normal":
            wide = jnp.promote_types(dtype, jnp.float32)
            return (draw.mean + draw.std * standard_normal(key, shape, wide)).astype(dtype)
    raise UsageError(f"Unknown kind of draw {draw.kind!r}; known: normal, integers, bernoulli, constant.")


def draw_inputs(specs: tuple[Input, ...], key: jax.Array, dtype: Any = jnp.bfloat16) -> tuple[jax.Array, ...]:
    """Our inputs: anew for every ``key``; floating inputs in ``dtype``."""
    arrays = []
    for position, spec in enumerate(specs):
        wanted = spec.dtype_for(dtype)
        if isinstance(spec.ours, Draw):
            arrays.append(draw_array(spec.ours, jax.random.fold_in(key, position), spec.shape, wanted))
        else:
            arrays.append(spec.ours(key, spec.shape, wanted))
    return tuple(arrays)


CreateInputs = Callable[..., tuple[jax.Array, ...]]


def creator(inputs: Callable[[Dims], tuple[Input, ...]], config: Mapping[str, Any]) -> CreateInputs:
    """The ``create_inputs(key, dtype, **sizes)`` of a task file; sizes override ``config``."""

    def create_inputs(key: jax.Array, dtype: Any = jnp.bfloat16, **sizes: Any) -> tuple[jax.Array, ...]:
        return draw_inputs(inputs(Dims(config).but(**sizes)), key, dtype)

    return create_inputs

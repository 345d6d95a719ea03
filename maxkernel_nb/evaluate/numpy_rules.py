"""Primitives of a jaxpr as numpy functions: what an equation does, as a function of arrays.

Operands are numpy arrays or scalars of the dtypes the jaxpr says, and so are the results, rounded after every
operation. Nothing writes into an operand. Types below 32 bits are computed in float32 where numpy has no exact loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import special

Rule = Callable[..., Any]  # operands to a result, or to a list of them where the primitive has several


def rule(equation: Any) -> Rule | None:
    """The function of an equation's operands; None where there is none here."""
    name = equation.primitive.name
    if name in _PLAIN:
        return _PLAIN[name]
    if name in _SMOOTH:
        return functools.partial(_smooth, _SMOOTH[name])
    made = _MADE.get(name)
    return made(equation) if made else None


def _smooth(function: Rule, x: Any) -> Any:
    """A function that numpy knows for 32 bits and up."""
    if x.dtype.itemsize >= 4:
        return function(x)
    return function(x.astype(np.float32)).astype(x.dtype)


def _logistic(x: Any) -> Any:
    return np.reciprocal(np.exp(-x) + x.dtype.type(1))


def _rsqrt(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


def _divided(a: Any, b: Any) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    whole = np.floor_divide(a, b)  # to minus infinity; a chip rounds to zero
    return (whole + ((whole < 0) & (whole * b != a))).astype(a.dtype)


def _left(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    return np.where((b < 0) | (b >= bits), a.dtype.type(0), np.left_shift(a, b))


def _right(a: Any, b: Any) -> Any:
    bits = a.dtype.itemsize * 8
    return np.right_shift(a, np.where((b < 0) | (b >= bits), b.dtype.type(bits - 1), b))


def _clamped(low: Any, x: Any, high: Any) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _selected(which: Any, *cases: Any) -> Any:
    if which.dtype.kind == "b":
        return np.where(which, cases[1], cases[0])
    index = np.clip(which, 0, len(cases) - 1)
    return functools.reduce(lambda kept, n: np.where(index == n, cases[n], kept), range(1, len(cases)), cases[0])


def _same(x: Any) -> Any:
    return x


_PLAIN: Mapping[str, Rule] = MappingProxyType({
    "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divided, "rem": np.fmod,
    "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.absolute, "sign": np.sign,
    "square": np.square, "floor": np.floor, "ceil": np.ceil, "is_finite": np.isfinite,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shift_left": _left, "shift_right_arithmetic": _right, "clamp": _clamped, "select_n": _selected,
    "stop_gradient": _same, "copy": _same, "copy_p": _same, "remove_memory_space": _same,
})  # fmt: skip
_SMOOTH: Mapping[str, Rule] = MappingProxyType({
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log1p": np.log1p, "expm1": np.expm1, "sin": np.sin, "cos": np.cos,
    "tan": np.tan, "tanh": np.tanh, "sqrt": np.sqrt, "cbrt": np.cbrt, "rsqrt": _rsqrt, "logistic": _logistic,
    "erf": special.erf,
})  # fmt: skip


def _converted(equation: Any) -> Rule:
    new = np.dtype(equation.params["new_dtype"])
    whole = new.kind in "iu"
    info = np.iinfo(new) if whole else None

    def convert(x: Any) -> Any:
        if info is None or x.dtype.kind in "biu":
            return x.astype(new, copy=False)
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        return np.clip(wide, info.min, info.max).astype(new)  # as XLA and chips do: to the nearest that exists

    return convert


def _power(equation: Any) -> Rule:
    exponent = equation.params["y"]

    def power(x: Any) -> Any:
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind not in "iu" else x
        return np.power(wide, wide.dtype.type(exponent)).astype(x.dtype)

    return power


def _rounded(equation: Any) -> Rule:
    to_even = int(equation.params["rounding_method"]) == 1
    return np.rint if to_even else lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x))


def _broadcast(equation: Any) -> Rule:
    shape, dims = tuple(equation.params["shape"]), tuple(equation.params["broadcast_dimensions"])
    given = equation.invars[0].aval.shape
    sizes = [1] * len(shape)
    for size, dim in zip(given, dims, strict=True):
        sizes[dim] = size
    if math.prod(given) == math.prod(shape):  # no more than axes of size one: twice as quick, and most of them
        return lambda x, *_: x.reshape(shape)
    return lambda x, *_: np.broadcast_to(x.reshape(sizes), shape)


def _reshaped(equation: Any) -> Rule:
    shape = tuple(equation.outvars[0].aval.shape)
    return lambda x, *_: x.reshape(shape)


def _sliced(equation: Any) -> Rule:
    about = equation.params
    strides = about["strides"] or (1,) * len(about["start_indices"])
    part = tuple(map(slice, about["start_indices"], about["limit_indices"], strides))
    return lambda x: x[part]


def _window(shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]) -> tuple[slice, ...]:
    first = [min(max(int(s), 0), n - size) for s, n, size in zip(starts, shape, sizes, strict=True)]
    return tuple(slice(s, s + size) for s, size in zip(first, sizes, strict=True))


def _dynamic_slice(equation: Any) -> Rule:
    sizes = equation.params["slice_sizes"]
    return lambda x, *starts: x[_window(x.shape, sizes, starts)]


def _updated(x: Any, update: Any, *starts: Any) -> Any:
    result = np.array(x)
    result[_window(x.shape, update.shape, starts)] = update
    return result


def _padded(equation: Any) -> Rule | None:
    config = equation.params["padding_config"]
    if any(low < 0 or high < 0 or between for low, high, between in config):
        return None
    shape, widths = tuple(equation.outvars[0].aval.shape), [int(low) for low, _, _ in config]

    def pad(x: Any, value: Any) -> Any:
        result = np.full(shape, value, x.dtype)
        result[tuple(slice(low, low + n) for low, n in zip(widths, x.shape, strict=True))] = x
        return result

    return pad


def _iota(equation: Any) -> Rule | None:
    about = equation.params
    shape, axis = tuple(about["shape"]), about["dimension"]
    sizes = [n if d == axis else 1 for d, n in enumerate(shape)]
    made = np.broadcast_to(np.arange(shape[axis]).astype(about["dtype"]).reshape(sizes), shape)
    return lambda *dynamic: made


def _split(equation: Any) -> Rule:
    ends = np.cumsum(equation.params["sizes"])[:-1]
    axis = equation.params["axis"]
    return lambda x: np.split(x, ends, axis)


def _reduced(function: Rule, wide: bool = False) -> Callable[[Any], Rule]:
    """``wide``: what is added up is added up in 32 bits and rounded once."""

    def made(equation: Any) -> Rule:
        axes = tuple(equation.params["axes"])

        def reduce(x: Any) -> Any:
            given = x.astype(np.float32) if wide and x.dtype.itemsize < 4 and x.dtype.kind not in "biu" else x
            return function(given, axis=axes).astype(x.dtype, copy=False)

        return reduce

    return made


def _furthest(function: Rule) -> Callable[[Any], Rule | None]:
    def made(equation: Any) -> Rule | None:
        axes, index = equation.params["axes"], np.dtype(equation.params["index_dtype"])
        return (lambda x: function(x, axis=axes[0]).astype(index)) if len(axes) == 1 else None

    return made


def _running(function: Rule) -> Callable[[Any], Rule]:
    def made(equation: Any) -> Rule:
        axis, back = equation.params["axis"], equation.params["reverse"]

        def run(x: Any) -> Any:
            given = x.astype(np.float32) if x.dtype.itemsize < 4 and x.dtype.kind not in "biu" else x
            turned = np.flip(given, axis) if back else given
            done = function(turned, axis=axis)
            return (np.flip(done, axis) if back else done).astype(x.dtype)

        return run

    return made


def _product(equation: Any) -> Rule:
    (left, right), (left_batch, right_batch) = equation.params["dimension_numbers"]
    result = equation.outvars[0].aval

    def ordered(x: Any, batch: Sequence[int], summed: Sequence[int], last: bool) -> Any:
        """Batch, kept and summed axes (or summed, then kept) as a stack of matrices."""
        kept = [d for d in range(x.ndim) if d not in batch and d not in summed]
        order = (*batch, *kept, *summed) if last else (*batch, *summed, *kept)
        count = math.prod(x.shape[d] for d in summed)
        stack, rest = [x.shape[d] for d in batch], math.prod(x.shape[d] for d in kept)
        return _exact(x).transpose(order).reshape(*stack, *((rest, count) if last else (count, rest)))

    def product(a: Any, b: Any) -> Any:
        made = np.matmul(ordered(a, left_batch, left, True), ordered(b, right_batch, right, False))
        return made.reshape(result.shape).astype(result.dtype)

    return product


def _exact(x: Any) -> Any:
    """In a type that numpy has a fast product for and that holds every value."""
    if x.dtype in (np.float32, np.float64):
        return x
    return x.astype(np.float64 if x.dtype.kind in "biu" else np.float32)


_MADE: Mapping[str, Callable[[Any], Rule | None]] = MappingProxyType({
    "convert_element_type": _converted,
    "integer_pow": _power,
    "round": _rounded,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshaped,
    "squeeze": _reshaped,
    "slice": _sliced,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": lambda equation: _updated,
    "pad": _padded,
    "iota": _iota,
    "split": _split,
    "transpose": lambda equation: functools.partial(np.transpose, axes=equation.params["permutation"]),
    "rev": lambda equation: functools.partial(np.flip, axis=tuple(equation.params["dimensions"])),
    "concatenate": lambda equation: lambda *parts: np.concatenate(parts, equation.params["dimension"]),
    "reduce_sum": _reduced(np.add.reduce, wide=True),
    "reduce_prod": _reduced(np.multiply.reduce, wide=True),
    "reduce_max": _reduced(np.maximum.reduce),
    "reduce_min": _reduced(np.minimum.reduce),
    "reduce_and": _reduced(np.bitwise_and.reduce),
    "reduce_or": _reduced(np.bitwise_or.reduce),
    "argmax": _furthest(np.argmax),
    "argmin": _furthest(np.argmin),
    "cumsum": _running(np.cumsum),
    "cumprod": _running(np.cumprod),
    "cummax": _running(np.maximum.accumulate),
    "cummin": _running(np.minimum.accumulate),
    "dot_general": _product,
})

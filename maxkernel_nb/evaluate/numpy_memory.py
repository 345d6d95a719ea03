"""Loads and stores of an interpreted kernel, straight from the pretended TPU's buffers.

jax's interpreter reads and writes memory through callbacks that take 25 us each, most of it spent on finding out what
is asked (jax 0.10.2). Which operand is what is known when a program is made ready; what is left is a slice of a numpy
array. Only what is plainly inside its buffer is done here. The rest, faults above all, is left to jax's callback, as is
all of it where races are looked for or this jax has other buffers (0.7).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from maxkernel_nb.evaluate import quick

_KINDS = ("get", "store", "swap")
_PLACES = ("token", "device_id", "local_core_id", "memory_space", "buffer_id")
_NAMES = frozenset({*_PLACES, "transforms", "val", "mask", "block_indices", "grid_loop_idx", "source_info",
                    "input_name", "output_name"})  # fmt: skip
Range = tuple[slice | int, ...]
Reader = Callable[[Sequence[Any]], Range]
Callback = Callable[..., Any]


class _At(int):
    """The number of an operand, where a tree had the operand."""


@dataclass(frozen=True)
class _Asked:
    """What one callback asks: the operands' numbers, and how its range is read from them."""

    places: tuple[int, ...]  # of device_id, local_core_id, memory_space and buffer_id
    value: int  # of what is written; -1: nothing is
    part: Reader


def access(callback: Any) -> Callback | None:
    """The function of flat operands that does what ``callback`` (an ``io_callback``'s) does; None: it is no access to
    memory, or not one that is known here.
    """
    module = _module()
    function = getattr(callback, "callback_func", None)
    kind = module and next((k for k in _KINDS if _plain(function) is getattr(module, k)), None)
    if not kind:
        return None
    asked = _asked(callback, function)
    return functools.partial(_DOES[kind], _memory(module), callback, asked) if asked else None


@functools.cache
def _module() -> ModuleType | None:
    """jax's callbacks, where its buffers are those known here."""
    module = quick.holder("_get_randomized_grid_coordinates", "interpret_pallas_call")
    buffer = getattr(getattr(module, "memory", None), "Buffer", None)
    known = buffer is not None and all(hasattr(buffer, n) for n in ("content", "logical_shape"))
    return module if known and all(hasattr(module, n) for n in (*_KINDS, "_get_shared_memory")) else None


def _memory(module: Any) -> Callable[[], Any]:
    return lambda: module._get_shared_memory()


def _plain(function: Any) -> Any:
    return function.func if isinstance(function, functools.partial) else function


def _asked(callback: Any, function: Any) -> _Asked | None:
    import jax

    tree = callback.in_tree
    positional, named = jax.tree.unflatten(tree, list(map(_At, range(tree.num_leaves))))
    bound = dict(zip(_names(_plain(function)), positional, strict=False)) | named | getattr(function, "keywords", {})
    given = {name: value for name, value in bound.items() if value is not None}
    part = _range(given.get("transforms", ()))
    numbered = all(isinstance(given.get(name), _At) for name in _PLACES)
    if part is None or not numbered or "mask" in given or not _NAMES.issuperset(given):
        return None
    return _Asked(tuple(given[name] for name in _PLACES[1:]), given.get("val", -1), part)


@functools.cache
def _names(function: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(function).parameters)


def _range(transforms: Any) -> Reader | None:
    """How a range is read from operands: none, or the integers and slices of one indexer."""
    from jax._src.state import indexing

    if not transforms:
        return lambda operands: ()
    first = transforms[0]
    if len(transforms) > 1 or type(first) is not indexing.NDIndexer:
        return None
    readers = list(map(_index, first.indices))
    if None in readers:
        return None
    return lambda operands: tuple([reader(operands) for reader in readers])  # type: ignore[misc]


def _index(index: Any) -> Callable[[Sequence[Any]], slice | int] | None:
    from jax._src.state import indexing

    if isinstance(index, _At):
        number = int(index)
        return lambda operands: int(operands[number])
    if type(index) is not indexing.Slice or isinstance(index.size, _At) or isinstance(index.stride, _At):
        return None
    start, size, stride = index.start, int(index.size), int(index.stride)
    if isinstance(start, _At):
        return lambda operands: _slice(int(operands[start]), size, stride)
    fixed = _slice(int(start), size, stride)
    return lambda operands: fixed


def _slice(start: int, size: int, stride: int) -> slice:
    return slice(start, start + size * stride, stride)


def _found(memory: Any, asked: _Asked, operands: Sequence[Any]) -> tuple[np.ndarray, Range] | None:
    """The buffer and the range asked for; None where jax must be asked."""
    if memory.detect_races or memory._failure is not None:
        return None
    device, core, space, number = [int(operands[n]) for n in asked.places]
    module: Any = _module()
    name = module.TPU_MEMORY_SPACE_NAMES[space]
    buffer = memory.mem.get((name, number, device, module._local_core_id_or_zero_if_hbm(core, name)))
    if not isinstance(buffer, module.memory.Buffer) or buffer.content.shape != tuple(buffer.logical_shape):
        return None
    part = asked.part(operands)
    return (buffer.content, part) if _inside(part, buffer.content.shape) else None


def _inside(part: Range, shape: tuple[int, ...]) -> bool:
    for at, length in zip(part, shape, strict=False):
        if not isinstance(at, slice):
            if not 0 <= at < length:
                return False
        elif at.start < 0 or at.stop > length or at.step < 1 or at.stop <= at.start:
            return False
    return len(part) <= len(shape)


def _get(memory: Callable[[], Any], otherwise: Callback, asked: _Asked, *operands: Any) -> Any:
    shared = memory()
    found = _found(shared, asked, operands)
    if found is None:
        return otherwise(*operands)
    content, part = found
    with shared.lock:
        return [operands[0], content[part].copy()]


def _written(memory: Callable[[], Any], otherwise: Callback, asked: _Asked, swap: bool, operands: Sequence[Any]) -> Any:
    shared, value = memory(), np.asarray(operands[asked.value])
    found = _found(shared, asked, operands)
    if found is None:
        return otherwise(*operands)
    content, part = found
    place = content[part]
    if value.dtype != content.dtype or value.shape != place.shape:
        return otherwise(*operands)
    with shared.lock:
        before = [place.copy()] if swap else []
        content[part] = value
    return [operands[0], *before]


def _store(memory: Callable[[], Any], otherwise: Callback, asked: _Asked, *operands: Any) -> Any:
    return _written(memory, otherwise, asked, False, operands)


def _swap(memory: Callable[[], Any], otherwise: Callback, asked: _Asked, *operands: Any) -> Any:
    return _written(memory, otherwise, asked, True, operands)


_DOES = {"get": _get, "store": _store, "swap": _swap}

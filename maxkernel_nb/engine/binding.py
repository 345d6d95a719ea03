"""What an accepted kernel becomes: a callable with the function's name."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from maxkernel_nb.errors import TaskError
from maxkernel_nb.task import Parameter
from maxkernel_nb.tasks.trees import arrays_in, from_arrays
from maxkernel_nb.tpu.chips import detect_chip


class MaxKernelNotice(UserWarning):
    """Said once per bound kernel: which implementation a call uses and why."""


class BoundKernel:
    """Runs the verified kernel on a TPU for verified shapes, and the reference everywhere else (it says so once).

    ``reference`` is the original function, ``run`` the run that made the kernel, ``source`` its text and ``path`` the
    file. Gradients are the reference's. Usable inside ``jax.jit``; the choice is made when it is traced.
    """

    __name__: str

    def __init__(self, reference: Callable[..., Any], run: Any, source: str, path: Path, entry: str,
                 verified: frozenset[tuple[tuple[tuple[int, ...], str], ...]], static: dict[str, Any],
                 chip: str, trees: tuple[Parameter, ...] = ()) -> None:
        functools.update_wrapper(self, reference, updated=())
        self.reference = reference
        self.run = run
        self.source = source
        self.path = path
        self._entry = entry
        self._chip = chip
        self._verified = verified
        self._static = static
        self._trees = trees
        self._said: set[str] = set()
        self._signature = inspect.signature(reference)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arrays, why_not = self._arrays(args, kwargs)
        if why_not:
            self._say(f"{self.__name__}: {why_not}")
            return self.reference(*args, **kwargs)
        return self._kernel(*arrays)

    def _arrays(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], str]:
        """The array arguments in order, or why the kernel cannot take this call."""
        import jax

        platform = jax.default_backend()
        if platform != "tpu":
            return [], f"this process computes on {platform}, so the reference runs; the kernel runs on a TPU."
        kind = jax.devices()[0].device_kind
        if detect_chip(kind) != self._chip:
            return [], f"verified for {self._chip} and this is a {kind}, so the reference runs; run it with --chip."
        call = self._signature.bind(*args, **kwargs)  # a wrong call raises as the reference would
        call.apply_defaults()
        given = dict(call.arguments)
        for name, value in self._static.items():
            if given.pop(name, value) != value:
                return [], f"{name} is not {value!r} as in the verified kernel, so the reference runs."
        arrays = list(given.values())
        if self._trees:
            parts = [arrays_in(p.tree, given[p.name]) for p in self._trees]
            if None in parts:
                name = self._trees[parts.index(None)].name
                return [], f"{name} is built otherwise than in the verified kernel, so the reference runs."
            arrays = [array for part in parts if part is not None for array in part]
        return arrays, self._unverified(arrays)

    def _unverified(self, arrays: list[Any]) -> str:
        try:
            shapes = tuple((tuple(a.shape), str(a.dtype)) for a in arrays)
        except AttributeError:
            return "called with something that is not an array, so the reference runs."
        if shapes not in self._verified:
            listed = [list(shape) for shape, _ in shapes]
            return f"shapes {listed} were not verified, so the reference runs; add them with --case."
        return ""

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warnings.warn(text, MaxKernelNotice, stacklevel=3)

    @functools.cached_property
    def kernel(self) -> Callable[..., Any]:
        """The accepted function itself, never the reference: for tests of it, on any machine that can run it."""
        return load_entry(self.source, self.path, self._entry)

    @functools.cached_property
    def _kernel(self) -> Callable[..., Any]:
        """The kernel of arrays alone, with its statics, differentiable through the reference."""
        import jax

        fast = from_arrays(functools.partial(self.kernel, **self._static), self._trees)
        slow = from_arrays(functools.partial(self.reference, **self._static), self._trees)
        kernel = jax.custom_vjp(fast)
        kernel.defvjp(lambda *args: (fast(*args), args), lambda args, g: jax.vjp(slow, *args)[1](g))
        return jax.jit(kernel)

    def __deepcopy__(self, memo: dict[int, Any]) -> BoundKernel:
        return self  # like a function: copied by reference

    def __repr__(self) -> str:
        return f"<verified kernel {self.__name__} of run {getattr(self.run, 'id', self.run)}>"


def load_entry(source: str, path: Path, entry: str) -> Callable[..., Any]:
    """Executes the accepted text itself: the file at ``path`` is the person's and may have changed since.

    Raises ``TaskError`` when it lacks the function.
    """
    module = ModuleType(f"maxkernel_accepted_{path.stem}")
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), module.__dict__)
    if not hasattr(module, entry):
        raise TaskError(f"The accepted text of {path} defines no function {entry!r}; run the cell again.")
    return getattr(module, entry)

"""A function's source together with everything of ours it uses, as one module that stands on its own."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any


def _names(code: CodeType) -> Iterator[str]:
    """Global names in order of use, those of nested functions included (``co_names`` would add attributes)."""
    yield from (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _import_line(alias: str, module: ModuleType) -> str:
    return f"import {alias}" if module.__name__ == alias else f"import {module.__name__} as {alias}"


def standalone_source(function: Callable[..., Any]) -> str:
    """Imports, constants and helper functions, each before its first use, then ``function`` itself."""
    assert isinstance(function, FunctionType)
    imports: set[str] = set()
    constants: dict[str, str] = {}
    functions: dict[str, str] = {}

    def collect(current: FunctionType) -> None:
        for name in _names(current.__code__):
            value = current.__globals__.get(name)
            if isinstance(value, ModuleType):
                imports.add(_import_line(name, value))
            elif isinstance(value, FunctionType) and value.__module__.startswith("jaxbench."):
                if name not in functions:
                    collect(value)
                    functions[name] = inspect.getsource(value)
            elif isinstance(value, int | float | str | tuple):
                constants[name] = f"{name} = {value!r}"

    collect(function)
    functions[function.__name__] = inspect.getsource(function)
    head = ["\n".join(sorted(imports))] + (["\n".join(constants.values())] if constants else [])
    return "\n\n\n".join(["\n\n".join(head), *(text.rstrip() for text in functions.values())]) + "\n"

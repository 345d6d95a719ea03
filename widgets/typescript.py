"""TypeScript interfaces from the values that cross to JavaScript, so that both sides cannot drift apart."""

from __future__ import annotations

import types
import typing
from enum import StrEnum
from typing import Annotated, Any, Literal

from maxkernel_nb.values import Value

_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean", type(None): "null"}


def is_shape(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Value) and thing is not Value


def interface(shape: type[Value], optional: bool = False) -> str:
    """``optional``: fields with a default may be left out, as in what JavaScript sends."""
    hints = typing.get_type_hints(shape, include_extras=False)
    fields = "\n".join(
        f"  {name}{'' if field.is_required() or not optional else '?'}: {typescript_type(hints[name])};"
        for name, field in shape.model_fields.items()
    )
    return f"export interface {shape.__name__} {{\n{fields}\n}}"


def typescript_type(hint: Any) -> str:
    """Raises ``TypeError`` for a type that has no counterpart yet."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint.__name__
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return typescript_type(args[0])
    if origin is Literal:
        return " | ".join(f'"{a}"' if isinstance(a, str) else str(a) for a in args)
    if origin in (typing.Union, types.UnionType):
        return " | ".join(typescript_type(a) for a in args)
    if origin is dict:
        return f"Record<{typescript_type(args[0])}, {typescript_type(args[1])}>"
    if origin is tuple:
        return f"{typescript_type(args[0])}[]"
    if is_shape(hint):
        return str(hint.__name__)
    raise TypeError(f"no TypeScript for {hint!r}; add it to typescript.typescript_type")


def contract() -> str:
    """The text of ``labextension/src/contract.ts``; a test compares it with the file."""
    from maxkernel_nb import contract as messages

    shapes = [v for v in vars(messages).values() if is_shape(v) and v.__name__[0] != "_"]
    sent = {s for s in shapes if "command" in s.model_fields}
    commands, notices = (
        " | ".join(s.__name__ for s in shapes if name in s.model_fields) for name in ("command", "notice")
    )
    return "\n\n".join((
        "// Generated from maxkernel_nb/contract.py by python -m maxkernel_nb.widgets.typescript; do not edit.",
        f'export const TARGET = "{messages.TARGET}";\nexport const VERSION = {messages.VERSION};',
        *(interface(s, optional=s in sent) for s in shapes),
        f"export type Command = {commands};\n\nexport type Notice = {notices};\n",
    ))


if __name__ == "__main__":
    import sys

    sys.stdout.write(contract())

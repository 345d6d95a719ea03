"""The user's function header, as it was written, for the head of the rendered entry function."""

from __future__ import annotations

import ast

from maxkernel_nb.authors.recipes.base import Signature
from maxkernel_nb.task import KernelTask
from maxkernel_nb.tasks.trees import leaves, values


def signature_of(task: KernelTask) -> Signature:
    ways = [(p.name + way, p.tree.kind) for p in task.trees for _, way in leaves(p.tree)]
    within = {name: way for name, (way, kind) in zip(task.params, ways, strict=False) if kind != "array"}
    fixed = {p.name + way: value for p in task.trees for way, value in values(p.tree)}
    return Signature(entry=task.entry, header=_header(task), params=task.params, static=task.static, within=within,
                     fixed=fixed, returns=task.returns)


def _header(task: KernelTask) -> str:
    """``x, w, b, *, n_heads=8``: names and order from the source, annotations dropped, statics get their values."""
    arguments = _arguments(task)
    plain = ", ".join([*task.parameters, *(f"{k}={v!r}" for k, v in task.static.items())])
    if arguments is None or arguments.vararg or arguments.kwarg:
        return plain
    defaults = _defaults(arguments)
    positional = [*arguments.posonlyargs, *arguments.args]
    parts: list[str] = []
    for arg in positional:
        after_default = any("=" in p for p in parts)
        parts.append(_parameter(arg.arg, task, defaults, after_default))
    if arguments.kwonlyargs:
        parts += ["*", *(_parameter(a.arg, task, defaults, False) for a in arguments.kwonlyargs)]
    names = {a.arg for a in [*positional, *arguments.kwonlyargs]}
    return ", ".join(parts) if set(task.parameters) | set(task.static) <= names else plain


def _defaults(arguments: ast.arguments) -> dict[str, str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    given = zip(reversed(positional), reversed(arguments.defaults), strict=False)
    keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {a.arg: ast.unparse(d) for a, d in [*given, *keyword] if d is not None}


def _parameter(name: str, task: KernelTask, defaults: dict[str, str], after_default: bool) -> str:
    if name in task.static:
        return f"{name}={task.static[name]!r}"
    if name in task.parameters:
        return f"{name}=None" if after_default else name
    return f"{name}={defaults.get(name, 'None')}"


def _arguments(task: KernelTask) -> ast.arguments | None:
    try:
        tree = ast.parse(task.source)
    except SyntaxError:
        return None
    found = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == task.entry]
    return found[-1].args if found else None


def first_lines(signature: Signature) -> list[str]:
    """Lines that refuse other fixed values than those the kernel was written for, and take arrays out of trees."""
    lines = []
    for name, value in {**signature.static, **signature.fixed}.items():
        told = _quoted(f"this kernel was written for {name}={value!r}, not {{{name}!r}}")
        lines += [f"if {name} != {value!r}:", f"    raise NotImplementedError(f{told})"]
    return lines + [f"{name} = {way}" for name, way in signature.within.items()]


def _quoted(text: str) -> str:
    """As the text of an f-string on Python 3.11, where quotes inside must differ from those around."""
    return f'"{text}"' if '"' not in text else f"'''{text}'''"

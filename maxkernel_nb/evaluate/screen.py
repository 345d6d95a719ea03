"""Gate 1: the source text. Cheap, in the notebook process, without running anything.

It is a courtesy and a first fence, not the judge: what it lets through is still only traced in a sandboxed worker and
judged on the program it traces to. It refuses what no kernel needs: other modules than jax's and numpy's own, files,
processes, dynamic code, names of Python's inner machinery.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from maxkernel_nb.task import Diagnostic

IMPORTS = frozenset({
    "jax", "numpy", "functools", "math", "typing", "collections", "dataclasses", "itertools", "operator", "enum",
    "string", "__future__", "ml_dtypes",
})  # fmt: skip
IMPORTS_REFUSED = (
    "jax._src", "jax.experimental.io_callback", "jax.experimental.host_callback", "jax.debug", "jax.ffi", "jax.extend",
    "jax.experimental.serialize_executable", "jax.experimental.compilation_cache", "jax.profiler", "jax.monitoring",
    "jax.dlpack", "jax.distributed", "jax.interpreters", "jax.lib", "jax.config", "numpy.ctypeslib", "numpy.f2py",
    "numpy.distutils", "numpy.lib",
)  # fmt: skip
NAMES_REFUSED = frozenset({
    "open", "eval", "exec", "compile", "__import__", "input", "breakpoint", "globals", "locals", "vars", "setattr",
    "delattr", "getattr", "memoryview", "exit", "quit", "help", "__builtins__", "__loader__", "__spec__",
})  # fmt: skip
ATTRIBUTES_REFUSED = frozenset({
    "ctypes", "os", "sys", "subprocess", "importlib", "builtins", "save", "savez", "savez_compressed", "savetxt",
    "loadtxt", "fromfile", "tofile", "memmap", "genfromtxt", "dump", "dumps", "set_printoptions", "testing", "f2py",
    "ctypeslib", "pure_callback", "io_callback", "debug_callback", "host_callback", "ffi_call", "ffi", "config",
    "update_config", "_src", "gi_frame", "cr_frame", "ag_frame", "tb_frame", "f_globals", "f_locals", "f_back",
    "f_builtins", "func_globals", "modules", "compilation_cache", "clear_caches", "attrgetter", "methodcaller",
})  # fmt: skip
DUNDERS_ALLOWED = frozenset(["__name__", "__doc__", "__all__", "__version__"])
STATE_KEEPERS = ("lru_cache", "cache", "cached_property")


def screen(source: str, entry: str, params: Sequence[str], static: Sequence[str]) -> Diagnostic | None:
    """The first thing wrong with the text, or None. ``params`` and ``static``: the reference's parameter names."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 0) or 0
        return Diagnostic(kind="syntax", line=line, message=f"The source is not Python: {error}.")
    found = next(_findings(tree), None)
    return found or _entry(tree, entry, params, static)


def _findings(tree: ast.Module) -> Iterator[Diagnostic]:
    own = _parameters_read(tree)
    for node in ast.walk(tree):
        if id(node) in own:
            continue
        for kind, message in _refusals(node):
            yield Diagnostic(kind=kind, line=getattr(node, "lineno", 0), message=message)


def _parameters_read(tree: ast.Module) -> set[int]:
    """Ids of names that stand for a parameter of the function around them; it may be called ``input``."""
    own: set[int] = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.Lambda):
            arguments = function.args
            names = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
            body = function.body if isinstance(function.body, list) else [function.body]
            inside = (n for part in body for n in ast.walk(part) if isinstance(n, ast.Name))
            own |= {id(n) for n in inside if n.id in names and isinstance(n.ctx, ast.Load) and not _dunder(n.id)}
    return own


def _refusals(node: ast.AST) -> Iterator[tuple[str, str]]:
    match node:
        case ast.Import(names=names):
            yield from (("import", _not_allowed(n.name)) for n in names if not _importable(n.name))
        case ast.ImportFrom(module=module, names=names, level=level):
            full = [f"{module or ''}.{n.name}" for n in names]
            if level or not module or not all(map(_importable, full)):
                yield "import", _not_allowed(module or "a relative module")
            refused = [n.name for n in names if _attribute_refused(n.name) or (n.name == "load" and "numpy" in full[0])]
            yield from (("name", _no_place(name)) for name in refused)
            yield from (("state", _keeps(n.name)) for n in names if n.name in STATE_KEEPERS)
        case ast.Name(id=name) if name in NAMES_REFUSED or _dunder(name):
            yield "name", _no_place(name)
        case ast.Attribute(attr=name) if _attribute_refused(name):
            yield "name", _no_place(name)
        case ast.Attribute(attr="load", value=ast.Name(id=module)) if module not in ("pl", "pltpu"):
            yield "name", _no_place(f"{module}.load")
        case ast.Attribute(attr=name) | ast.Name(id=name) if name in STATE_KEEPERS:
            yield "state", _keeps(name)
        case ast.Attribute(ctx=ast.Store() | ast.Del(), attr=name):
            yield "state", f"Assigning to the attribute {name} changes something outside the kernel; do not."
        case ast.keyword(arg="interpret", value=ast.Constant(value=True)):  # a variable shows in the traced program
            yield "interpret-left-on", "interpret is set: the kernel would never reach the TPU; remove it."
        case ast.Global(names=names):
            yield "state", f"global {names[0]} keeps state between calls; a kernel must not."


def _importable(name: str) -> bool:
    refused = any(name == r or name.startswith(r + ".") for r in IMPORTS_REFUSED)
    return name.split(".")[0] in IMPORTS and not refused


def _attribute_refused(name: str) -> bool:
    return name in ATTRIBUTES_REFUSED or name in NAMES_REFUSED - {"compile", "vars", "input"} or _dunder(name)


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__") and name not in DUNDERS_ALLOWED


def _keeps(name: str) -> str:
    return f"{name} keeps results from one call to the next; a kernel must compute them."


def _not_allowed(module: str) -> str:
    return f"It imports {module}; a kernel may import jax, numpy, functools, math and typing only."


def _no_place(name: str) -> str:
    return f"{name} has no place in a kernel; remove it."


def _entry(tree: ast.Module, entry: str, params: Sequence[str], static: Sequence[str]) -> Diagnostic | None:
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    if entry not in functions:
        assigned = [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
        if entry in assigned:  # e.g. ``kernel = jax.jit(_kernel)``: its parameters show when it is traced
            return None
        there = ", ".join(functions) or "none"
        return Diagnostic(kind="entry", message=f"There is no function {entry}; the module defines: {there}.")
    function = functions[entry]
    arguments = function.args
    named = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    known = [*named, *(a.arg for a in arguments.kwonlyargs)]
    without_default = named[: len(named) - len(arguments.defaults)]
    wrong_order = arguments.vararg is None and named[: len(params)] != list(params)
    missing = arguments.kwarg is None and any(s not in known for s in static)
    if wrong_order or missing or any(n not in (*params, *static) for n in without_default):
        told = f"{entry}({', '.join(known)}) must take the reference's parameters ({', '.join([*params, *static])})."
        return Diagnostic(kind="entry", line=function.lineno, message=told)
    return None

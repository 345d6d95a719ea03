"""The direction of imports (design: magics, widgets -> run, modes -> agents -> authors, evaluate -> tpu -> task)."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOPS = {"maxkernel_nb": "maxkernel_nb", "magics": "maxkernel_nb.magics", "widgets": "maxkernel_nb.widgets",
        "jaxbench": "jaxbench"}
FRONTS = ("maxkernel_nb.magics", "maxkernel_nb.widgets")
NOTEBOOK = {"IPython", "ipykernel", "ipywidgets", "anywidget", "traitlets"}
FORBIDDEN = {"nest_asyncio", "jupyter_ui_poll", "matplotlib.pyplot", "pylab"}
# Folder -> what it may never import, directly.
DRIVERS = tuple(f"maxkernel_nb.{name}" for name in ("run", "api", "engine.loop", "engine.runtime"))
LOWER = {
    "maxkernel_nb.tpu": ("maxkernel_nb.evaluate", "maxkernel_nb.authors", "maxkernel_nb.agents", "maxkernel_nb.modes",
                         "maxkernel_nb.tasks", "maxkernel_nb.engine", *DRIVERS),
    "maxkernel_nb.tasks": ("maxkernel_nb.evaluate", "maxkernel_nb.authors", "maxkernel_nb.agents",
                           "maxkernel_nb.modes", "maxkernel_nb.engine", *DRIVERS),
    "maxkernel_nb.evaluate": ("maxkernel_nb.authors", "maxkernel_nb.agents", "maxkernel_nb.modes", *DRIVERS),
    "maxkernel_nb.authors": ("maxkernel_nb.agents", "maxkernel_nb.modes", *DRIVERS),
    "maxkernel_nb.agents": ("maxkernel_nb.modes", "maxkernel_nb.api", "maxkernel_nb.engine.loop"),
    "maxkernel_nb.document": ("maxkernel_nb.evaluate", "maxkernel_nb.authors", "maxkernel_nb.agents",
                              "maxkernel_nb.modes", *DRIVERS),
}


def modules():
    for folder, package in TOPS.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            inner = path.relative_to(ROOT / folder)
            if "node_modules" in inner.parts or "frontend" in inner.parts:
                continue
            parts = [*package.split("."), *inner.with_suffix("").parts]
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


TREES = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in modules()}


def imports(tree, at_import_only=False, types=True):
    """Imported module names; ``from a import b`` gives both ``a`` and ``a.b``."""
    for node in _nodes(tree, at_import_only, types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _nodes(node, at_import_only, types):
    for child in ast.iter_child_nodes(node):
        if at_import_only and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            continue
        if not types and isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from _nodes(child, at_import_only, types)


def inside(name, package):
    return name == package or name.startswith(package + ".")


ENGINE = [n for n in TREES if inside(n, "maxkernel_nb") and not any(inside(n, front) for front in FRONTS)]


@pytest.mark.parametrize("name", ENGINE)
def test_the_engine_knows_no_notebook(name):
    found = set(imports(TREES[name]))
    assert not {i for i in found if i.split(".")[0] in NOTEBOOK}
    assert not {i for i in found if any(inside(i, front) for front in FRONTS)}


def test_only_its_command_in_the_notebook_knows_jaxbench():
    assert [n for n, tree in TREES.items() if not inside(n, "jaxbench")
            and any(inside(i, "jaxbench") for i in imports(tree))] == ["maxkernel_nb.magics.bench"]


def test_lower_folders_do_not_import_higher_ones():
    wrong = [
        (name, found)
        for folder, higher in LOWER.items() for name in TREES if inside(name, folder)
        for found in imports(TREES[name], types=False) if any(inside(found, h) for h in higher)
    ]
    assert wrong == []


def test_modules_import_in_no_circle():
    """Counting what is imported while a module is being imported (lazy and typing-only imports cannot lock)."""
    edges = {n: {i for i in imports(t, at_import_only=True, types=False) if i in TREES and i != n}
             for n, t in TREES.items()}
    for name in edges:  # ``from package import module`` needs the package too, which every module has anyway
        edges[name] -= {name.rpartition(".")[0]}
    assert _circle(edges) == []


def _circle(edges):
    done, path = set(), []

    def visit(name):
        if name in path:
            return [*path[path.index(name):], name]
        if name in done:
            return []
        path.append(name)
        for following in sorted(edges[name]):
            if found := visit(following):
                return found
        path.pop()
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := visit(name))), [])


@pytest.mark.parametrize("name", sorted(TREES))
def test_what_a_notebook_must_never_meet(name):
    tree = TREES[name]
    assert not {i for i in imports(tree) if any(inside(i, f) for f in FORBIDDEN)}
    calls = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    attributes = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    assert "do_one_iteration" not in attributes
    assert "set_next_input" not in attributes
    if not name.startswith("jaxbench"):  # its command line prints
        assert "print" not in calls


def test_importing_the_package_imports_nothing_heavy():
    heavy = "jax", "numpy", "pydantic", "IPython", "anthropic", "matplotlib", "optuna"
    code = f"import sys, maxkernel_nb; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

"""Loading costs next to nothing and leaves nothing behind."""

import json
import subprocess
import sys

HEAVY = ("jax", "anthropic", "matplotlib", "pydantic", "numpy", "anywidget", "ipywidgets", "optuna", "sqlite3")
MEASURE = f"""
import contextlib, io, json, sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
before, said = set(sys.modules), io.StringIO()
start = time.perf_counter()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    shell.run_line_magic("load_ext", "maxkernel_nb")
seconds = time.perf_counter() - start
print(json.dumps([seconds, said.getvalue(), [m for m in {HEAVY!r} if m in sys.modules and m not in before]]))
"""


def test_loading_is_quick_silent_and_light(tmp_path):
    ran = subprocess.run([sys.executable, "-c", MEASURE], cwd=tmp_path, capture_output=True, text=True, check=True)
    seconds, said, heavy = json.loads(ran.stdout.splitlines()[-1])
    assert (said, heavy) == ("", [])
    assert seconds < 0.3


def snapshot(shell):
    getattr(shell.magics_manager, "load_all_lazy_magics", lambda: None)()  # IPython 9 registers its own when used
    formatter = shell.display_formatter.ipython_display_formatter
    hooks = shell.strdispatchers.get("complete_command")
    return {
        "magics": {kind: sorted(found) for kind, found in shell.magics_manager.magics.items()},
        "registry": sorted(shell.magics_manager.registry),
        "configurables": [type(c).__name__ for c in shell.configurables],
        "formatter": (sorted(map(str, formatter.type_printers)), sorted(map(str, formatter.deferred_printers))),
        "completion": sorted(map(str, hooks.strs)) if hooks else [],
        "names": sorted(n for n in shell.user_ns if not n.startswith("_")),
    }


def test_unloading_restores_everything(shell):
    before = snapshot(shell)
    for _ in range(2):
        shell.run_line_magic("load_ext", "maxkernel_nb")
        assert snapshot(shell) != before
        shell.run_line_magic("unload_ext", "maxkernel_nb")
        assert snapshot(shell) == before


def test_unloading_after_a_run_restores_everything(shell, tmp_path):
    import fake_api

    before = snapshot(shell)
    api = fake_api.install(shell, tmp_path)
    shell.run_cell("%%maxkernel auto --policy propose\ndef f(x):\n    return x\n")
    api.live["f-1"].wait_end(10)
    shell.run_line_magic("unload_ext", "maxkernel_nb")
    after = snapshot(shell)
    api.bench.engine.close()
    assert "f" in after.pop("names") and before.pop("names") is not None
    assert after == before


def test_disabled_cells_run_as_plain_python(api, cell, shell, monkeypatch):
    monkeypatch.setenv("MAXKERNEL_DISABLE", "1")
    assert "plain Python" in repr(cell("%%maxkernel auto\ndef f(x):\n    return x + 1\n"))
    assert shell.user_ns["f"](1) == 2
    assert api.calls == []

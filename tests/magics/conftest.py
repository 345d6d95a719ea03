import fake_api
import pytest
from IPython.core.interactiveshell import InteractiveShell


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A fresh terminal shell in an empty folder, without any settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    for name in ("CHIP", "POLICY", "BUDGET", "PROJECT", "DISABLE", "AUTHOR"):
        monkeypatch.delenv(f"MAXKERNEL_{name}", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance()
    made.history_manager.enabled = False
    yield made
    made.run_line_magic("unload_ext", "maxkernel_nb")
    made.history_manager.end_session()
    InteractiveShell.clear_instance()


@pytest.fixture
def api(shell, tmp_path):
    """The extension is loaded; runs are real, their author and evaluator scripted."""
    made = fake_api.install(shell, tmp_path)
    yield made
    made.bench.engine.close()


@pytest.fixture
def cell(shell):
    """Runs a cell and gives its value; an error in the cell is raised."""

    def run(text):
        result = shell.run_cell(text, store_history=True)
        result.raise_error()
        return result.result

    return run

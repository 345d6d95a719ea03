"""The quickstart's smaller task, from its notebook, on Colab's kernel stack."""

import os
from pathlib import Path

import nbformat
import pytest

pytestmark = [
    pytest.mark.skipif("MAXKERNEL_COLAB_PINS" not in os.environ, reason="needs Colab's kernel stack: make colab-pins"),
    pytest.mark.slow,
    pytest.mark.tpu_compiler,
]
NOTEBOOK = Path(__file__).resolve().parents[2] / "example_notebooks" / "01_quickstart.ipynb"
ENDS = ("accepted", "proposed", "kept reference")


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The notebook as far as its first run, executed by nbclient."""
    from nbclient import NotebookClient

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    first = next(n for n, cell in enumerate(notebook.cells) if "%%maxkernel" in cell.source)
    notebook.cells = notebook.cells[: first + 1]
    folder = tmp_path_factory.mktemp("quickstart")
    client = NotebookClient(notebook, timeout=400, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    return client.execute()


def test_the_run_ends_with_a_report(executed):
    [output] = executed.cells[-1].outputs
    assert output.data["text/plain"].startswith("maxkernel run gemm_bias_gelu-1: ")
    assert output.data["text/plain"].endswith(ENDS)
    assert "modelled" in output.data["text/html"]


def test_candidates_were_compiled_here_and_passed_every_check(executed):
    html = executed.cells[-1].outputs[0].data["text/html"]
    assert "No candidate passed" not in html
    assert "libtpu 0.0.23" in html


def test_nothing_but_the_report_is_printed(executed):
    assert [len(cell.get("outputs", [])) for cell in executed.cells if cell.cell_type == "code"] == [0, 1]

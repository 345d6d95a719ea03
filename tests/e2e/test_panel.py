"""A person's way through a run: see the panel, click Accept, use the function. Real JupyterLab, real clicks."""

import nbformat
import pytest
from jupyter_lab import NotebookPage
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

# A real engine and journal; only author and evaluator are scripted, so that this takes seconds.
SCRIPTED = "import fake_api, pathlib\napi = fake_api.install(get_ipython(), pathlib.Path.cwd() / {folder!r})"
CELL = "%%maxkernel auto\ndef f(x):\n    return x"


@pytest.fixture
def notebook(lab, page, name):
    cells = [SCRIPTED.format(folder=name), CELL, "f", "print(api.live['f-1'].state.outcome)"]
    opened = NotebookPage(page, lab.notebook(f"{name}.ipynb", cells))
    opened.path = lab.root / f"{name}.ipynb"
    opened.run(0, 1)
    return opened


def button(notebook, name):
    return notebook.output(1).get_by_role("button", name=name)


def test_accept_binds_the_function(notebook):
    button(notebook, "Accept").first.click()
    expect(notebook.output(1).get_by_text("Accepted: f is bound")).to_be_visible()
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("verified kernel f of run f-1")


def test_reject_keeps_the_function(notebook):
    button(notebook, "Reject").first.click()
    expect(notebook.output(1).get_by_text("was rejected").first).to_be_visible()
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("<function __main__.f")


def test_stop_ends_a_run_that_waits(notebook):
    button(notebook, "Stop").first.click()
    notebook.run(3)
    expect(notebook.output(3)).to_contain_text("stopped")


def test_the_saved_notebook_reads_without_a_kernel(notebook):
    button(notebook, "Accept").first.click()
    expect(notebook.output(1).get_by_text("Accepted: f is bound")).to_be_visible()
    expect(notebook.output(1).get_by_role("article")).to_be_visible()
    notebook.save()
    saved = nbformat.read(notebook.path, as_version=4)
    [output] = saved.cells[1].outputs
    assert output.data["text/plain"] == "maxkernel run f-1: accepted"
    assert "<article" in output.data["text/html"]
    assert "widgets" not in saved.metadata
    notebook.page.goto(notebook.page.url)
    notebook.wait_idle()
    expect(notebook.output(1).get_by_role("article")).to_contain_text("Accepted: f is bound")

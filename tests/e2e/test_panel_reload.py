"""A panel after its page was reloaded or its kernel restarted: live again, or a sentence that says what to do."""

import nbformat
import pytest
from jupyter_lab import NotebookPage
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPTED = "import fake_api, pathlib, time\nfolder = pathlib.Path.cwd() / {folder!r}\n" \
           "api = fake_api.install(get_ipython(), folder)"
CELL = "%%maxkernel auto\ndef f(x):\n    return x"
BUSY = "while not (folder / 'go').exists(): time.sleep(0.05)"
AGAIN = "import os\nos.environ['MAXKERNEL_PROJECT'] = {folder!r}\n%load_ext maxkernel_nb"


@pytest.fixture
def notebook(lab, page, name):
    page.on("dialog", lambda dialog: dialog.accept())
    cells = [SCRIPTED.format(folder=name), CELL, BUSY, AGAIN.format(folder=name)]
    opened = NotebookPage(page, lab.notebook(f"{name}.ipynb", cells))
    opened.path = lab.root / f"{name}.ipynb"
    opened.folder = lab.root / name
    opened.run(0, 1)
    expect(button(opened, "Accept kernel")).to_be_visible()
    opened.save()
    return opened


def button(notebook, name):
    return notebook.output(1).get_by_role("button", name=name, exact=True)


def stored(notebook):
    [output] = nbformat.read(notebook.path, as_version=4).cells[1].outputs
    return output.data


def reload(notebook):
    notebook.page.goto(notebook.page.url)


def decided_and_kept(notebook):
    button(notebook, "Accept kernel").click()
    expect(notebook.output(1).get_by_role("article")).to_contain_text("Accepted: f is bound")
    notebook.save()
    assert "<article" in stored(notebook)["text/html"]
    assert stored(notebook)["text/plain"] == "maxkernel run f-1: accepted"


def test_a_page_reloaded_in_mid_run_shows_the_live_panel_and_its_report_at_the_end(notebook):
    reload(notebook)
    expect(button(notebook, "Accept kernel")).to_be_enabled()
    decided_and_kept(notebook)


def test_a_page_reloaded_while_a_cell_runs_goes_on_when_the_cell_ends(notebook):
    notebook.run(2)
    expect(notebook.page.locator(".jp-CodeCell").nth(2).locator(".jp-InputArea-prompt")).to_contain_text("*")
    reload(notebook)
    expect(notebook.output(1)).to_contain_text("Loading widget")
    (notebook.folder / "go").touch()
    expect(button(notebook, "Accept kernel")).to_be_enabled()
    decided_and_kept(notebook)


def test_a_restarted_kernel_is_said_with_the_way_back_and_then_replaced_by_the_report(notebook):
    assert "%maxkernel resume f-1" in stored(notebook)["text/html"]  # what is read where no panel can be drawn
    notebook.page.evaluate("""() => [...window.jupyterapp.shell.widgets('main')]
        .find(w => w.isVisible && w.sessionContext).sessionContext.session.kernel.restart()""")
    expect(notebook.output(1)).to_contain_text("The kernel was restarted. This run is kept")
    expect(notebook.output(1)).to_contain_text("%maxkernel resume f-1 goes on without repeating finished steps")
    expect(notebook.output(1)).to_contain_text("interrupted")
    expect(button(notebook, "Accept kernel")).to_have_count(0)
    expect(button(notebook, "Stop")).to_have_count(0)
    notebook.wait_idle()
    notebook.run(3)
    report = notebook.output(1).get_by_role("article")
    expect(report).to_contain_text("%maxkernel resume f-1 goes on in this kernel without repeating finished steps")

"""The lab extension where things are odd: no kernel, another language, sealed cells, unsaved changes, a dead kernel."""

import json
import re
import sys

import nbformat
import pytest
from lab_page import ACCEPTED, FUNCTION, MARKED, LabPage, scripted
from nbformat.v4 import new_code_cell, new_output
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

BUTTON = re.compile("^Optimise with MaxKernel")


def button(opened):
    return opened.page.locator(".jp-cell-toolbar").get_by_role("button", name=BUTTON)


def toolbar_is_there(opened):
    expect(opened.page.locator(".jp-cell-toolbar").get_by_role("button", name=re.compile("^Insert a cell below"))
           ).to_be_visible()


def said(opened, words):
    expect(opened.page.get_by_text(re.compile(words)).first).to_be_visible()


def test_a_kernel_of_another_language_gets_no_button_until_python_is_chosen(lab, page, name):
    folder = lab.root.parent / "data" / "kernels" / "other"
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "other_language", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "Other", "language": "ruby"}))
    address = lab.notebook(f"{name}.ipynb", ["def f(x)\n  x\nend", FUNCTION], kernel="other")
    opened = LabPage(page, address)
    for number in (0, 1):
        opened.select(number)
        toolbar_is_there(opened)
        expect(button(opened)).to_have_count(0)
    enabled = "() => window.jupyterapp.commands.isEnabled('maxkernel:auto')"
    assert page.evaluate(enabled) is False
    opened.script("panel.sessionContext.changeKernel({name: 'python3'})")
    expect(button(opened)).to_be_visible()
    assert page.evaluate(enabled) is True


def test_without_a_kernel_the_button_says_so_and_the_cell_stays(fresh):
    fresh.ask("1")
    fresh.script("panel.sessionContext.shutdown()")
    expect(fresh.page.get_by_text("No Kernel", exact=True).first).to_be_visible()
    fresh.on_cell(1, "^Optimise with MaxKernel")
    said(fresh, "This notebook has no kernel; choose one, then start again")
    assert fresh.sources()[1:] == [FUNCTION, "z = 1"]


def test_a_sealed_cell_is_left_as_it_is_and_the_kernel_is_bound(fresh):
    fresh.optimise(1)
    expect(fresh.proposal).to_be_visible()
    fresh.script("panel.content.widgets[1].model.setMetadata('editable', false)")
    expect(fresh.proposal.get_by_role("alert")).to_have_text(re.compile("This cell is read-only: accepting binds"))
    fresh.on_cell(1, "^Optimise with MaxKernel")
    said(fresh, "This cell is read-only: MaxKernel writes its line into the cell")
    fresh.choose("Accept all")
    expect(fresh.proposal).to_be_hidden()
    fresh.ended("accepted BoundKernel")
    assert fresh.sources()[1:] == [MARKED, "z = 1"]


def test_a_file_that_cannot_be_written_and_outputs_that_are_not_trusted(lab, page, name):
    """JupyterLab lets such a notebook be changed on the page, to be saved as a copy; so the edit is made there too."""
    address = lab.notebook(f"{name}.ipynb", [scripted(name), FUNCTION])
    path = lab.root / f"{name}.ipynb"
    made = nbformat.read(path, as_version=4)
    script = {"text/html": "<script>window.hacked = 1</script><b>stored</b>"}
    made.cells.append(new_code_cell("1", outputs=[new_output("display_data", data=script)]))
    nbformat.write(made, path)

    def sealed(route):
        if route.request.method != "GET":
            route.abort()
            return
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "writable": False})

    page.route(re.compile(rf"/api/contents/{name}\.ipynb(\?|$)"), sealed)
    opened = LabPage(page, address)
    said(opened, "read-only")
    opened.run(0)
    opened.optimise(1)
    expect(opened.proposal).to_be_visible()
    opened.choose("Accept all")
    opened.has_source(1, ACCEPTED)
    opened.select(1)
    page.keyboard.press("Control+z")
    opened.has_source(1, MARKED)
    assert page.evaluate("window.hacked") is None


def test_a_page_left_with_unsaved_changes_shows_the_proposal_again(notebook):
    notebook.has_source(1, MARKED)
    notebook.page.on("dialog", lambda dialog: dialog.accept())
    notebook.page.goto(notebook.page.url if "reset" in notebook.page.url else f"{notebook.page.url}?reset")
    notebook.wait_idle()
    notebook.has_source(1, FUNCTION)  # the magic line was never saved
    expect(notebook.proposal).to_be_visible()
    notebook.choose("Accept all")
    notebook.has_source(1, ACCEPTED)
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    notebook.has_source(1, FUNCTION)


def test_a_kernel_that_dies_by_itself_is_said_in_the_panel_at_once(notebook):
    panel = notebook.output(1)
    expect(panel.get_by_role("button", name="Accept kernel", exact=True)).to_be_visible()
    notebook.script("void panel.sessionContext.session.kernel.requestExecute({code: 'import os; os._exit(1)'})")
    expect(panel).to_contain_text("The kernel was restarted. This run is kept")  # by the server, which sees it die
    expect(panel.get_by_role("button", name="Accept kernel", exact=True)).to_have_count(0)
    expect(notebook.proposal).to_be_hidden()


def test_a_click_while_the_cell_that_loads_maxkernel_runs_waits_for_it(lab, page, name):
    """A kernel with subshells answers the greeting at once: there is no MaxKernel yet."""
    slow = "import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)\n"
    (lab.root / name).mkdir()
    opened = LabPage(page, lab.notebook(f"{name}/n.ipynb", [slow + scripted("."), FUNCTION]))
    opened.run(0)
    opened.on_cell(1, "^Optimise with MaxKernel")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    (lab.root / name / "go").touch()
    page.get_by_role("dialog").get_by_role("button", name="Start", exact=True).click()
    expect(opened.proposal).to_be_visible()
    assert opened.sources() == [slow + scripted("."), MARKED]

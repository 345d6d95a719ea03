"""The lab extension by clicks: from a plain cell to an edited one and back. Real JupyterLab and kernel, fake author."""

import json
import re
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from accessibility import serious
from engine_bench import Bench
from lab_page import ACCEPTED, FUNCTION, KEPT, KERNEL, MARKED, LabPage, scripted
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

EVERYWHERE = pytest.mark.parametrize("server", ["lab", "notebook7"], indirect=True)


@EVERYWHERE
def test_from_a_plain_cell_to_an_accepted_edit_and_back_with_ctrl_z(notebook):
    notebook.has_source(1, MARKED)
    notebook.choose("Accept all")
    expect(notebook.proposal).to_be_hidden()
    notebook.has_source(1, ACCEPTED)
    notebook.has_source(2, KEPT)
    notebook.run(3)  # the tests, with jax alone: right in interpret mode
    expect(notebook.output(3)).to_contain_text("c3: error 0, allowed")
    expect(notebook.output(1).get_by_text("Accepted: f is bound").first).to_be_visible()
    notebook.ended("accepted BoundKernel")
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    notebook.has_source(1, MARKED)
    expect(notebook.page.locator(".jp-CodeCell")).to_have_count(3)  # the cells below are gone
    notebook.says("print(type(f).__name__)", "function")


def test_ctrl_z_restores_the_exact_bytes_after_cells_came_below(notebook):
    notebook.choose("Accept all")
    notebook.has_source(2, KEPT)
    notebook.on_cell(1, "^Insert a cell below")
    expect(notebook.page.locator(".jp-CodeCell")).to_have_count(6)
    notebook.has_source(2, "")
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    notebook.has_source(1, MARKED)
    expect(notebook.page.locator(".jp-CodeCell")).to_have_count(4)
    assert notebook.sources()[2:] == ["", "z = 1"]


@EVERYWHERE
def test_one_change_is_rejected_and_the_other_accepted(notebook):
    expect(notebook.proposal.get_by_text("Change 2 of 2")).to_be_visible()
    notebook.proposal.get_by_role("button", name="Reject change 1").click()
    notebook.proposal.get_by_role("button", name="Comment on change 1").click()
    notebook.proposal.get_by_role("textbox", name="Comment on change 1").fill("keep this line dd")
    notebook.choose("Accept 1 of 2")
    expect(notebook.proposal).to_be_hidden()
    notebook.has_source(1, KERNEL.replace("x + 0", "x").rstrip("\n"))
    said = notebook.ask("print(*[p.decision.comment for p in api.live['f-1'].state.proposals.values() if p.decision])")
    assert said == "change 1: keep this line dd"
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    notebook.has_source(1, MARKED)


def test_reject_leaves_the_exact_bytes(notebook):
    before = notebook.sources()
    notebook.choose("Reject")
    expect(notebook.proposal).to_be_hidden()
    notebook.ended("rejected function")
    assert notebook.sources() == before


@EVERYWHERE
def test_a_cell_that_was_edited_gets_a_new_comparison_and_is_not_overwritten(notebook):
    notebook.select(1)
    notebook.page.keyboard.press("Control+End")
    notebook.page.keyboard.type(" + 41")
    expect(notebook.proposal.get_by_role("alert")).to_contain_text("changed since")
    expect(notebook.proposal).to_contain_text("return y + 41")
    notebook.choose("Accept")
    expect(notebook.proposal).to_be_hidden()
    notebook.has_source(1, ACCEPTED)
    notebook.select(1)
    notebook.page.keyboard.press("Control+z")
    notebook.has_source(1, f"{MARKED} + 41")


def test_a_moved_cell_keeps_its_proposal_and_gets_the_edit(notebook):
    notebook.proposal.get_by_role("button", name="Reject change 1").click()
    notebook.on_cell(1, "^Move this cell down")
    notebook.has_source(2, MARKED)
    expect(notebook.cell(2).get_by_role("region", name=re.compile("^Proposed kernel"))).to_be_visible()
    notebook.choose("Accept 1 of 2")  # what was chosen is still chosen
    notebook.has_source(2, KERNEL.replace("x + 0", "x").rstrip("\n"))
    assert notebook.source(1) == "z = 1"


@EVERYWHERE
def test_a_deleted_cell_is_said_and_the_proposal_stays_open(notebook):
    notebook.delete(1)
    expect(notebook.page.get_by_text("The cell of run f-1 was deleted").first).to_be_visible()
    notebook.says("print(api.live['f-1'].state.open_proposal is not None, type(f).__name__)", "True function")


@EVERYWHERE
def test_after_a_restart_the_sidebar_resumes_the_run_from_the_disk(server, page, name):
    (server.root / name).mkdir()
    opened = LabPage(page, server.notebook(f"{name}/n.ipynb", [scripted("."), FUNCTION, "z = 1"]))
    opened.run(0)
    opened.optimise(1)
    expect(opened.proposal).to_be_visible()
    opened.open_sidebar()
    opened.restart()
    expect(opened.proposal).to_be_hidden()
    expect(opened.sidebar).to_contain_text("a proposal waits for you")  # as the journal has it
    expect(opened.sidebar.get_by_role("button", name="Stop f-1")).to_have_count(0)
    opened.wait_idle()
    opened.run(0)
    opened.sidebar.get_by_role("button", name="Resume f-1").click()
    expect(opened.cell(1).get_by_role("region", name=re.compile("^Proposed kernel"))).to_be_visible()
    opened.choose("Accept all")
    opened.has_source(1, ACCEPTED)
    opened.ended("accepted BoundKernel")


def test_questions_are_answered_by_clicks_in_the_panel_and_in_the_cell(fresh):
    fresh.optimise(1, mode="hitl")
    fresh.output(1).get_by_role("button", name="Approve", exact=True).click()
    question = fresh.cell(1).get_by_role("region", name=re.compile("^Take this kernel on"))
    expect(question).to_be_visible()
    fresh.choose("Take it")
    expect(question).to_be_hidden()
    fresh.output(1).get_by_role("button", name=re.compile("^Judge it in full")).click()
    fresh.output(1).get_by_role("button", name="Finish with the best so far", exact=True).click()
    expect(fresh.proposal).to_be_visible()
    fresh.choose("Accept all")
    fresh.has_source(1, ACCEPTED)
    assert fresh.ask("print(*{q.answer.via for q in api.live['f-1'].state.questions.values() if q.answer})")


def test_an_auto_run_continues_in_hitl_from_the_sidebar(notebook):
    notebook.open_sidebar().get_by_role("button", name="Continue in HITL f-1").click()
    expect(notebook.proposal).to_be_hidden()
    expect(notebook.sidebar).to_contain_text("a question waits for you")
    expect(notebook.sidebar.locator(".mkl-run-name")).to_have_text("f-1 · hitl")
    notebook.says("print(api.live['f-1'].state.open_question.title)", "What next?")
    notebook.ask("api.live['f-1'].answer('finish')")
    expect(notebook.cell(1).get_by_role("region", name=re.compile("^Proposed kernel"))).to_be_visible()
    notebook.choose("Accept all")
    notebook.has_source(1, ACCEPTED)


def test_a_chosen_default_is_what_the_magics_use(fresh):
    fresh.page.evaluate("() => window.jupyterapp.commands.execute('settingeditor:open', {query: 'MaxKernel'})")
    fresh.page.locator("select[id$=_chip]").select_option("v5e")
    fresh.page.get_by_role("tab", name=re.compile(r"\.ipynb")).click()
    try:
        fresh.says("print(get_ipython().magics_manager.registry['MaxKernelMagics'].lab.settings)", "{'chip': 'v5e'}")
        fresh.optimise(1)
        expect(fresh.proposal).to_be_visible()
        fresh.says("print(api.calls[-1]['chip'])", "v5e")
    finally:
        fresh.page.evaluate("() => window.jupyterapp.serviceManager.settings.save('maxkernel-nb:plugin', '{}')")


@EVERYWHERE
def test_a_second_tab_shows_the_same_proposal_and_the_decision(notebook):
    other = LabPage(notebook.page.context.new_page(), notebook.page.url.replace("&reset", ""))
    expect(other.proposal).to_be_visible()
    notebook.choose("Accept all")
    expect(notebook.proposal).to_be_hidden()
    expect(other.proposal).to_be_hidden()
    notebook.has_source(1, ACCEPTED)


@EVERYWHERE
def test_by_keyboard_alone(notebook):
    notebook.cell(1).press("Escape")
    notebook.page.keyboard.press("Alt+F8")
    focused = notebook.page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", "Accept change 1")
    notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Space")
    expect(notebook.proposal.get_by_role("button", name="Reject change 1")).to_have_attribute("aria-pressed", "true")
    accept = notebook.proposal.locator(".mkl-choices").get_by_role("button", name="Accept 1 of 2")
    for _ in range(20):
        if accept.evaluate("e => e === document.activeElement"):
            break
        notebook.page.keyboard.press("Tab")
    notebook.page.keyboard.press("Enter")
    expect(notebook.proposal).to_be_hidden()
    notebook.has_source(1, KERNEL.replace("x + 0", "x").rstrip("\n"))


def test_the_sidebar_lists_the_run_and_finds_its_cell(notebook):
    sidebar = notebook.open_sidebar()
    expect(sidebar).to_contain_text("a proposal waits for you")
    sidebar.get_by_role("button", name="Show cell f-1").click()
    expect(notebook.page.locator(".jp-CodeCell.jp-mod-active").get_by_role("region", name="Proposed")).to_be_visible()
    status = notebook.page.get_by_role("button", name="MaxKernel: 1 running, 1 waiting for you")
    expect(status).to_be_visible()
    sidebar.get_by_role("searchbox", name="Filter").fill("search")
    expect(sidebar).to_contain_text("No run matches")
    sidebar.get_by_role("searchbox", name="Filter").fill("f-1 auto")
    sidebar.get_by_role("button", name="Stop f-1").click()
    expect(sidebar.locator(".mkl-run-line")).to_have_text("stopped")
    expect(notebook.proposal).to_be_hidden()
    expect(status).to_be_hidden()


@EVERYWHERE
def test_axe_finds_nothing_serious_light_dark_narrow_and_wide(notebook):
    page = notebook.page
    notebook.proposal.get_by_role("button", name="Reject change 1").click()
    expect(notebook.open_sidebar()).to_be_visible()
    fits = """width => {
        const box = document.querySelector('.mkl-proposal').getBoundingClientRect();
        return box.width > 0 && box.left >= 0 && box.right <= width;
    }"""
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
        expect(page.locator(f"body[data-jp-theme-name='{theme}']")).to_be_attached()
        for width in (1280, 800, 560):
            page.set_viewport_size({"width": width, "height": 1000})
            page.wait_for_function(fits, arg=width)
            notebook.settle()
            assert serious(page, ".mkl-proposal") == []
            assert serious(page, "#maxkernel-runs") == []


@pytest.mark.parametrize("server", ["lab_together", "notebook7_together"], indirect=True)
def test_with_collaboration_on_an_edit_is_written_once_and_undone_for_everyone(server, page, name):
    cells = [scripted(name), FUNCTION, "z = 1"]
    mine = LabPage(page, server.notebook(f"{name}.ipynb", cells))
    mine.run(0)
    mine.optimise(1)
    expect(mine.proposal).to_be_visible()
    theirs = LabPage(page.context.new_page(), page.url)
    expect(theirs.proposal).to_be_visible()
    mine.choose("Accept all")
    for view in (mine, theirs):
        expect(view.proposal).to_be_hidden()
        view.has_source(1, ACCEPTED)
    mine.select(1)
    mine.page.keyboard.press("Control+z")
    for view in (mine, theirs):
        view.has_source(1, MARKED)


def test_the_server_lists_runs_without_a_kernel_and_only_to_its_own(lab):
    Bench(lab.root / "quiet").run().wait(10).accept().wait_end(10).close()
    address = f"{lab.url}/maxkernel/runs?path="
    with urlopen(Request(f"{address}quiet", headers={"Authorization": f"token {lab.token}"})) as answer:
        assert [(run["id"], run["outcome"]) for run in json.load(answer)["runs"]] == [("f-1", "accepted")]
    for path, token, code in (("quiet", "wrong", 403), ("../..", lab.token, 404)):
        with pytest.raises(HTTPError) as refused:
            urlopen(Request(f"{address}{path}", headers={"Authorization": f"token {token}"}))
        assert refused.value.code == code

"""Starting, deciding and looking at runs, over the real engine with a scripted author."""

import pytest

from maxkernel_nb import events as ev
from maxkernel_nb.engine.binding import BoundKernel
from maxkernel_nb.errors import UsageError

CELL = "%%maxkernel auto {}\ndef f(x):\n    return x\n"


@pytest.fixture
def waiting(api, cell):
    """A run whose proposal waits for a decision."""
    run = cell(CELL.format(""))
    return run.wait(10)


def test_the_cell_returns_the_run_at_once_and_asks_by_default(waiting, api):
    assert api.calls[0]["policy"] == "ask"
    assert waiting.id == "f-1" and waiting.state.open_proposal


def test_accept_binds_the_name_before_the_next_cell(waiting, cell, shell):
    assert "Accepted: f is bound to the kernel" in repr(cell("%maxkernel accept"))
    assert isinstance(shell.user_ns["f"], BoundKernel)
    assert waiting.state.proposals.popitem()[1].decision.via == "magic"


def test_undo_gives_the_reference_back(waiting, cell, shell):
    reference = shell.user_ns["f"]
    cell("%maxkernel accept f-1 --comment 'looks right'")
    cell("%maxkernel undo")
    assert shell.user_ns["f"] is reference


def test_reject_leaves_the_function(waiting, cell, shell):
    reference = shell.user_ns["f"]
    assert "rejected" in repr(cell("%maxkernel reject f-1"))
    assert shell.user_ns["f"] is reference
    with pytest.raises(UsageError, match="no open proposal"):
        cell("%maxkernel accept")


def test_an_unknown_hunk_changes_nothing(waiting, cell):
    with pytest.raises(UsageError, match="no hunk 99"):
        cell("%maxkernel accept f-1 99")
    assert waiting.state.open_proposal


def test_a_proposal_left_open_can_be_accepted_after_the_run(api, cell, shell):
    cell(CELL.format("--policy propose")).wait_end(10)
    cell("%maxkernel accept")
    assert isinstance(shell.user_ns["f"], BoundKernel)


def test_stop_ends_the_run_and_names_the_way_back(waiting, cell):
    assert "resume f-1 continues" in repr(cell("%maxkernel stop"))
    assert waiting.state.ended
    assert "ended already" in repr(cell("%maxkernel stop"))
    with pytest.raises(UsageError, match="nothing to pause"):
        cell("%maxkernel pause")


def test_wait_says_what_is_needed(waiting, cell):
    assert "%maxkernel accept f-1" in repr(cell("%maxkernel wait"))
    waiting.reject()
    waiting.wait_end(10)
    assert "ended, rejected" in repr(cell("%maxkernel wait f-1"))


def test_interrupting_a_wait_says_that_the_run_goes_on(waiting, cell, monkeypatch):
    def interrupted(self, timeout=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(type(waiting), "wait", interrupted)
    with pytest.raises(Exception, match="f-1 goes on"):
        cell("%maxkernel wait")
    assert not waiting.state.ended


def test_list_show_cost_and_report(waiting, cell, tmp_path):
    assert "f-1" in repr(cell("%maxkernel list")) and "waiting" in repr(cell("%maxkernel list"))
    assert "<table>" in cell("%maxkernel list")._repr_html_()
    assert "maxkernel run f-1" in repr(cell("%maxkernel show"))
    assert "no cap" in repr(cell("%maxkernel cost")) or "of" in repr(cell("%maxkernel cost"))
    said = repr(cell("%maxkernel report"))
    assert said == "Report of run f-1: .maxkernel/reports/f-1.html"
    assert "<html" in (tmp_path / ".maxkernel/reports/f-1.html").read_text()


@pytest.mark.parametrize("line, file, begins", [
    ("--md", ".maxkernel/reports/f-1.md", b"# maxkernel run f-1: waiting for you"),
    ("--png", ".maxkernel/reports/f-1.png", b"\x89PNG"), ("--ipynb", ".maxkernel/reports/f-1.ipynb", b"{"),
    ("f-1 here.md", "here.md", b"# maxkernel run f-1"), ("f-1 here.html", "here.html", b"<!doctype html>"),
])
def test_a_report_is_one_file_in_the_form_asked_for(waiting, cell, tmp_path, line, file, begins):
    cell(f"%maxkernel report {line}")
    written = (tmp_path / file).read_bytes()
    assert written.startswith(begins)
    if file.endswith("ipynb"):
        import nbformat

        made = nbformat.reads(written.decode(), as_version=4)
        nbformat.validate(made)
        assert "<article" in made.cells[0].outputs[0].data["text/html"]


def test_a_report_in_two_forms_is_refused(waiting, cell):
    with pytest.raises(Exception, match="keep one of --md, --png"):
        cell("%maxkernel report --png --md")


def test_cost_tells_model_calls_apart_by_sub_agent_and_by_round(waiting, cell):
    assert "Model calls" not in repr(cell("%maxkernel cost"))
    usage = ev.ModelUsage(input_tokens=250, cache_read_tokens=750, output_tokens=1200)
    for key, dollars in (("implement:1/implementer", 0.05), ("attack:2/profiler", None)):
        role = key.rpartition("/")[2]
        waiting.emit(ev.ConversationOpened(key=key, role=role, prompt="..."))
        waiting.emit(ev.ModelReplied(key=key, role=role, model="m", usage=usage, dollars=dollars))
    said = cell("%maxkernel cost f-1")
    rows = [line.split() for line in repr(said).splitlines()]
    assert ["implementer", "1", "1,000", "75%", "1,200", "0.0500", "0"] in rows
    assert "round 2      1      1,000      75%             1,200       0.0000 and 1 of unknown price" in repr(said)
    assert ["all", "2", "2,000", "75%", "2,400", "0.0500", "and", "1", "of", "unknown", "price", "0"] in rows
    assert said._repr_html_().count("<table>") == 2 and "$" not in said._repr_html_()


def test_a_run_of_an_earlier_kernel_is_shown_but_not_decided(waiting, api, cell):
    waiting.stop().wait_end(10)
    waiting.close()
    api.live.clear()
    assert "f-1" in repr(cell("%maxkernel show f-1"))
    with pytest.raises(UsageError, match="%maxkernel resume f-1"):
        cell("%maxkernel accept f-1")


def test_without_runs_every_command_says_how_to_start_one(api, cell):
    assert "%%maxkernel auto" in repr(cell("%maxkernel list"))
    with pytest.raises(UsageError, match="no runs yet"):
        cell("%maxkernel stop")


def test_help_version_and_doctor(api, cell):
    assert "--chip" in repr(cell("%maxkernel help auto"))
    assert "--chip" in repr(cell("%%maxkernel auto --help\npass\n"))
    assert "%maxkernel accept [RUN]" in repr(cell("%maxkernel help accept"))
    assert "jax" in repr(cell("%maxkernel version"))
    assert "TPU compiler" in repr(cell("%maxkernel doctor"))
    with pytest.raises(UsageError, match="did you mean 'accept'"):
        cell("%maxkernel help acept")


def test_question_marks_show_the_help(api, shell):
    assert "--shapes TEXT" in shell.object_inspect_text("%%maxkernel")
    assert "accept [RUN]" in shell.object_inspect_text("%maxkernel")


def test_a_finished_run_of_an_earlier_kernel_needs_no_resuming(waiting, api, cell):
    waiting.reject()
    waiting.wait_end(10)
    waiting.close()
    api.live.clear()
    for command in ("accept", "stop"):
        with pytest.raises(UsageError, match=r"ended in an earlier kernel, rejected.*%maxkernel show f-1") as caught:
            cell(f"%maxkernel {command} f-1")
        assert "resume" not in str(caught.value)


def test_doctor_looks_at_the_projects_own_folder(api, cell, tmp_path):
    assert f"{tmp_path}/.maxkernel can be written" in repr(cell("%maxkernel doctor"))
    cell("%config MaxKernel.project = 'other'")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".maxkernel").write_text("")
    said = repr(cell("%maxkernel doctor"))
    assert "Folder" in said and "other/.maxkernel is a file, where a folder is needed" in said

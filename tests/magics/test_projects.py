"""Which folder's runs the commands are about, when the working folder changes or a cell names another one."""

import os

import fake_api
import pytest
from engine_bench import Bench

CELL = "%%maxkernel auto {}\ndef f(x):\n    return x\n"


def test_the_project_stays_where_the_first_run_began(api, cell, tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "first").mkdir()
    cell("import os; os.chdir('first')")
    cell(CELL.format("--policy propose")).wait_end(10)
    cell("os.chdir('../deep')")
    cell(CELL.format("--policy propose")).wait_end(10)
    assert [call["project"] for call in api.calls] == [str(tmp_path / "first")] * 2
    cell(CELL.format("--policy propose --project here")).wait_end(10)
    assert api.calls[-1]["project"] == str(tmp_path / "deep" / "here")
    cell("%config MaxKernel.project = 'set'")
    cell(CELL.format("--policy propose")).wait_end(10)
    assert api.calls[-1]["project"] == str(tmp_path / "first" / "set")


@pytest.fixture
def elsewhere(api, cell, tmp_path, monkeypatch):
    """A waiting run of this process in another folder than the settings'; the fake knows folders apart."""
    monkeypatch.setattr("maxkernel_nb.engine.loop._engine", api.bench.engine)
    here, find = api.bench, api.find_run
    other = Bench.__new__(Bench)
    other.__dict__.update(here.__dict__, project=here.project.__class__(tmp_path / "other").prepare())
    live = lambda project: [r for r in api.live.values() if str(r.project.root) == str(project)]  # noqa: E731
    monkeypatch.setattr(api, "runs", lambda project: [fake_api.Summary(r) for r in live(project)])
    monkeypatch.setattr(api, "find_run", lambda run_id, project: find(
        run_id if run_id in [r.id for r in live(project)] else f"{run_id} in {project}"))
    api.bench = other
    run = cell(CELL.format("--project other")).wait(10)
    api.bench = here
    here.engine.add(run)
    return run


def test_commands_find_a_run_that_its_cell_put_elsewhere(elsewhere, cell, tmp_path):
    assert f"{elsewhere.id} in other" in repr(cell("%maxkernel list"))
    assert str(tmp_path / "other") in str(elsewhere.project.root)
    assert "Accepted: f is bound" in repr(cell("%maxkernel accept"))
    assert "ended already" in repr(cell(f"%maxkernel stop {elsewhere.id}"))


def test_a_later_run_here_hides_none_elsewhere(elsewhere, api, cell):
    here = cell(CELL.format("")).wait(10)
    assert here.project.root != elsewhere.project.root
    listed = repr(cell("%maxkernel list"))
    assert here.id in listed and f"{elsewhere.id} in {os.path.relpath(elsewhere.project.root)}" in listed
    cell(f"%maxkernel reject {elsewhere.id}")
    assert elsewhere.wait_end(10) is not None and here.state.open_proposal
    elsewhere.close()
    assert f"{elsewhere.id} in" in repr(cell("%maxkernel list"))
    assert "ended already" in repr(cell(f"%maxkernel stop {elsewhere.id}"))

"""The server extension: a project's runs from their journals, for whoever may read the server, and nothing else."""

import pytest
from engine_bench import Bench

from maxkernel_nb.widgets.server import recorded_runs


@pytest.fixture
def project(tmp_path):
    bench = Bench(tmp_path / "root" / "work")
    bench.run().wait(10).accept().wait_end(10).close()
    bench.run(folder="f-2").wait(10)
    yield tmp_path / "root"
    bench.engine.close()


def test_runs_of_the_project_a_notebook_is_in(project):
    runs = {run.id: run for run in recorded_runs(project / "work", project)}
    assert (runs["f-1"].outcome, runs["f-1"].speedup, runs["f-1"].live) == ("accepted", 2.0, False)
    assert runs["f-2"].waits == "proposal" and "in process" in runs["f-2"].status
    (project / "work" / "deep").mkdir()
    assert len(recorded_runs(project / "work" / "deep", project)) == 2
    assert recorded_runs(project, project) == []
    assert recorded_runs(project / "work", project / "work" / "deep") == []


def test_a_broken_journal_is_a_line_not_an_error(project):
    (project / "work" / ".maxkernel" / "runs" / "odd-1").mkdir()
    assert "odd-1" in [run.id for run in recorded_runs(project / "work", project)]

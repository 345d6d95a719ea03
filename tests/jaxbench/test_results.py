"""Results survive crashes, interrupts and reruns; reports say the same in all forms; progress loses no line."""

from __future__ import annotations

import io
import json

import pytest

from jaxbench import harness as harness_module
from jaxbench import report
from jaxbench.cli import Console, execute, main
from jaxbench.harness import Harness, line
from jaxbench.progress import Bar
from jaxbench.results import Kind, Result, ResultFile, Status, done
from jaxbench.suites import own
from maxkernel_nb.errors import JournalError, UsageError
from maxkernel_nb.store import Project
from maxkernel_nb.task import GateName, Outcome, Verdict


def reference(task="8p_GEMM", ms=5.0, **more):
    facts = {"tier": "production", "size": "full", "evidence": "modelled", "flops": 1e12, "min_bytes": 1e9}
    return Result(task=task, suite="jaxbench", kind=Kind.REFERENCE, status=Status.OK, reference_ms=ms,
                  **{**facts, **more})


def kernel(task="8p_GEMM", ms=2.5, status=Status.OK, **more):
    facts = {"author": "recipes", "mode": "auto", "kernel_ms": ms if status is Status.OK else None}
    return reference(task, **{**facts, **more}).model_copy(update={"kind": Kind.OPTIMIZED, "status": status})


def test_a_result_comes_back_as_it_was_written(tmp_path):
    verdict = Verdict(gate=GateName.CHECK, outcome=Outcome.PASS, summary="fine", case="small", seed=1,
                      numbers={"worst_error_ratio": float("inf")})
    file = ResultFile(tmp_path / "deep" / "results.jsonl")
    file.append(result := kernel(verdicts=(verdict,), versions={"jax": "0.10.2"}, seeds=(0, 1, 2)))
    assert file.read() == (result,)


def test_the_last_answer_to_a_question_counts_and_faults_are_asked_again(tmp_path):
    file = ResultFile(tmp_path / "results.jsonl")
    for ms in (5.0, 6.0):
        file.append(reference(ms=ms))
    file.append(fault := reference("9p_SwiGLU_MLP").model_copy(update={"status": Status.INFRASTRUCTURE}))
    first, second = file.read()
    assert first.reference_ms == 6.0 and second == fault
    assert done(file.read()) == {first.key()}
    assert reference(chip="v5e").key() != first.key() and reference(versions={"jax": "0.7.2"}).key() != first.key()


def test_a_line_cut_short_by_a_crash_costs_only_itself(tmp_path):
    file = ResultFile(tmp_path / "results.jsonl")
    file.append(reference())
    with open(file.path, "a") as raw:
        raw.write('{"task": "9p_Sw')
    file.append(reference("12p_RMSNorm"))
    assert [r.task for r in file.read()] == ["8p_GEMM", "12p_RMSNorm"]


def test_a_line_of_another_version_is_named(tmp_path):
    file = ResultFile(tmp_path / "results.jsonl")
    file.append(reference())
    with open(file.path, "a") as raw:
        raw.write(json.dumps({**reference().to_dict(), "mood": "good"}) + "\n")
    with pytest.raises(JournalError, match=r"Line 2 of .* is no result of this version \(mood: "):
        file.read()


def test_a_file_that_cannot_be_written_names_the_way_out(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(JournalError, match="pass another file with --results"):
        ResultFile(tmp_path / "taken" / "results.jsonl").append(reference())


@pytest.fixture
def modelled(monkeypatch):
    """Items done so far; the third interrupts, as Ctrl-C does."""
    asked = []

    def model(self, task, short):
        asked.append(task.name)
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"evidence": "modelled", "reference_ms": 1.0}

    monkeypatch.setattr(harness_module.Harness, "_modelled", model)
    return asked


def test_an_interrupt_keeps_what_is_done_and_resume_goes_on(tmp_path, modelled, capsys):
    words = ["run", "41k", "8p", "19k", "27k", "--project", str(tmp_path)]
    assert main(words) == 130
    assert "2 done; results in" in (told := capsys.readouterr().out) and "--resume goes on" in told
    assert main([*words, "--resume"]) == 0
    assert "2 done, 2 known already" in capsys.readouterr().out
    assert len(modelled) == 5 and len(ResultFile(tmp_path / ".maxkernel/bench/results.jsonl").read()) == 4


def test_a_smoke_run_states_wall_clock_as_that_of_this_cpu(tmp_path, modelled):
    with Harness(Project(tmp_path), ResultFile(tmp_path / "r.jsonl")) as made:
        (result,) = made.run(own(["12p"]), "smoke").results
    assert result.cpu_wall_ms > 0 and result.evidence == "modelled"
    assert "wall clock on this CPU" in harness_module.line(result) and "rms error against float64" in result.notes[0]


def test_a_report_says_the_same_as_text_markdown_and_html(tmp_path):
    results = [reference(published_ms=5.3), kernel(algebra_ms=4.0, algebra="sum"),
               kernel("9p_SwiGLU_MLP", status=Status.REFUSED, reason="check: Wrong <values> | here")]
    told = report.text_report(results)
    assert "geometric mean 1.41x (n = 2, 1 failures as 1x, 0 clipped)" in told and "2.00x" in told
    assert "not measured" in told and "0.94" in told
    written = {p.name: p for p in report.write_report(results, tmp_path)}
    markdown, page = written["report.md"].read_text(), written["report.html"].read_text()
    assert "1.25 x 1.60" in markdown and r"Wrong <values> \| here" in markdown
    assert "Wrong &lt;values&gt; | here" in page and page.count("data:image/png;base64,") == 3
    pictures = [p for name, p in written.items() if name.endswith(".png")]
    assert len(pictures) == 3 and all(p.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" for p in pictures)


def test_of_several_tries_the_best_is_reported():
    slow, fast, wrong = kernel(ms=4.0), kernel(ms=2.5), kernel(status=Status.REFUSED)
    assert "2.00x" in report.text_report([slow, fast, wrong]) and "1 of 1 tasks" in report.text_report([fast, wrong])


def test_a_report_without_results_says_how_to_make_some(tmp_path, capsys):
    assert main(["report", "--project", str(tmp_path)]) == 2
    assert "python -m jaxbench run --all" in capsys.readouterr().err


def test_report_as_json_has_the_derived_figures(tmp_path, capsys):
    ResultFile(tmp_path / "r.jsonl").append(kernel())
    assert main(["report", "--results", str(tmp_path / "r.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["speedup"] == 2.0


def test_progress_in_a_notebook_shows_all_lines_and_the_remaining_time(tmp_path, modelled):
    shown, told = [], []
    console = Console(told.append, lambda total: Bar(total, show=lambda bar, lines: shown.append((bar, lines))))
    assert execute(["run", "41k", "8p"], console, str(tmp_path)) == 0
    assert shown[0][0].startswith("0/2") and "41k_Gemm_Add_ReLU" in shown[0][0]
    assert shown[-1][0] == "2/2 tasks" and [line.split("_")[0] for line in shown[-1][1]] == ["41k", "8p"]
    assert told[-1].startswith("2 done; results in")


def test_progress_in_a_terminal_keeps_lines_and_bar_apart():
    written, bar = [], io.StringIO()
    with Bar(2, write=written.append, bar_file=bar) as progress:
        progress.working("a")
        progress.done("a is done")
    assert written == ["a is done"] and "a is done" not in bar.getvalue()


def test_in_a_notebook_lines_come_live_and_in_a_batch_run_with_the_result(tmp_path, modelled, monkeypatch):
    from maxkernel_nb.magics import bench

    shown = []
    monkeypatch.setattr(bench, "display", lambda data, **more: shown.append(data) or _Handle(shown))
    assert "1 done" in repr(bench.bench(["run", "41k"], str(tmp_path)))
    assert shown[0]["text/plain"].startswith("0/1") and "1/1 tasks" in shown[-1]["text/plain"]
    seen = len(shown)
    told = repr(bench.bench(["run", "8p"], str(tmp_path), batch=True))
    assert told.startswith("8p_GEMM") and "1 done" in told and len(shown) == seen
    with pytest.raises(UsageError, match="No task 'x9'"):
        bench.bench(["run", "x9"], str(tmp_path))
    assert "<div class=\"jaxbench\">" in bench.bench(["report"], str(tmp_path))._repr_mimebundle_()["text/html"]


class _Handle:
    def __init__(self, shown):
        self.shown = shown

    def update(self, data, **more):
        self.shown.append(data)


def test_a_kernel_s_line_gives_both_times_and_says_when_there_is_none():
    assert "2.5 ms against 5 ms, 2.00x modelled" in line(kernel(kernel_hash="k"))
    assert line(kernel(kernel_hash="k", ms=None)).endswith("verified, not timed")

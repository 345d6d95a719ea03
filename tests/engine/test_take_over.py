"""``take_over``: a run of another mode goes on step by step, from what it found."""

import pytest
from engine_bench import GOOD, Bench

from maxkernel_nb import api
from maxkernel_nb import events as ev
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine import loop
from maxkernel_nb.engine.loop import Engine
from maxkernel_nb.errors import UsageError
from maxkernel_nb.evaluate.fake import FakeEvaluator

OPTIONS = {"policy": "propose", "budget": Budget().to_dict(), "tuning_points": 12}


@pytest.fixture
def engine(monkeypatch):
    made = Engine()
    monkeypatch.setattr(made, "evaluator", lambda *about: FakeEvaluator())
    monkeypatch.setattr(api, "get_engine", lambda: made)
    monkeypatch.setattr(loop, "get_engine", lambda: made)
    yield made
    made.close()


def ended(root, policy="propose", mode="auto", author=None):
    """A run of an earlier kernel."""
    bench = Bench(root)
    run = bench.run(author or ScriptedAuthor([GOOD]), mode_name=mode, policy=policy).wait(10)
    run.emit(ev.OptionsChanged(options=OPTIONS))
    return bench, run


def go(function, root):
    return function("f-1", project=root, author=ScriptedAuthor([GOOD]), namespace={}).wait(10)


def test_the_best_kernel_is_on_the_table_and_a_resumed_run_asks_the_same(tmp_path, engine):
    bench, before = ended(tmp_path)
    before.close()
    run = go(api.take_over, tmp_path)
    assert (run.state.mode, run.state.open_question.title) == ("hitl", "What next?")
    assert run.state.open_question.editable == GOOD and run.state.spend.judged == before.state.spend.judged
    asked = run.state.open_question.question
    run.stop().wait_end(10)
    run.close()
    again = go(api.resume, tmp_path)
    assert again.state.open_question.question == asked and len(again.state.candidates) == 1
    again.answer("finish").wait(10)
    assert again.state.open_proposal is not None
    again.reject().wait_end(10)
    bench.engine.close()


def test_a_run_without_a_kernel_yet_goes_on_at_its_plan(tmp_path, engine):
    bench, before = ended(tmp_path, author=ScriptedAuthor(["def f(x):\n    return x - 1\n# wrong\n"]))
    assert before.state.best is None and before.state.outcome is ev.RunOutcome.DECLINED
    before.close()
    run = go(api.take_over, tmp_path)
    assert run.state.open_question.title == "Approve this plan?"
    run.answer("finish").wait_end(10)
    bench.engine.close()


def test_a_run_that_asks_already_or_is_accepted_is_not_taken_over(tmp_path, engine):
    bench, run = ended(tmp_path / "asks", mode="hitl", policy="ask")
    with pytest.raises(UsageError, match="step by step already"):
        go(api.take_over, tmp_path / "asks")
    run.stop().wait_end(10).close()
    other, run = ended(tmp_path / "done")
    run.accept().wait_end(10).close()
    with pytest.raises(UsageError, match="undo f-1 first"):
        go(api.take_over, tmp_path / "done")
    bench.engine.close()
    other.engine.close()

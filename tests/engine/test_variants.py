"""Other kernels for the same function: the judge's time of the whole decides which one is proposed."""

from engine_bench import GOOD

from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.budget import Budget
from maxkernel_nb.evaluate.base import ALL_GATES, TUNING_GATES
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.task import Plan

FAST, FASTER_WRONG, SLOW = (f"def f(x):\n    return x + {n}\n# time={t}\n{mark}"
                            for n, t, mark in ((1, 0.5, ""), (2, 0.25, "# wrong\n"), (3, 1.5, "")))


class SeveralWays(ScriptedAuthor):
    """``ways``: the source of each other plan."""

    def __init__(self, ways, first=GOOD):
        super().__init__([first])
        self.ways = ways

    async def other_plans(self, view):
        return tuple(Plan(strategy=f"way {n}", summary="another") for n in range(len(self.ways)))

    async def implement(self, view, plan):
        made = await super().implement(view, plan)
        if not plan.strategy.startswith("way "):
            return made
        return made.model_copy(update={"source": self.ways[int(plan.strategy[4:])]})


def test_the_fastest_way_that_passes_every_check_is_proposed(bench):
    run = bench.run(SeveralWays([SLOW, FASTER_WRONG, FAST])).wait(10)
    assert run.state.candidates[run.state.best].candidate.source == FAST
    assert run.state.speedup == 4.0 and run.state.plan.strategy == "way 2"
    assert any("Of 4 ways" in note.text for note in run.state.notes)


def test_the_first_plan_stays_where_no_other_is_faster(bench):
    evaluator = FakeEvaluator()
    run = bench.run(SeveralWays([SLOW]), evaluator).wait(10)
    assert run.state.candidates[run.state.best].candidate.source == GOOD and run.state.plan.strategy != "way 0"
    assert [gates for _, gates in evaluator.judged] == [ALL_GATES, TUNING_GATES]


def test_a_small_budget_is_spent_on_the_first_plan(bench):
    evaluator = FakeEvaluator()
    run = bench.run(SeveralWays([FAST]), evaluator, budget=Budget(judged=2)).wait(10)
    assert run.state.candidates[run.state.best].candidate.source == GOOD and len(evaluator.judged) == 1


def test_where_the_first_plan_comes_to_nothing_another_is_tried(bench):
    run = bench.run(SeveralWays([FASTER_WRONG, SLOW], first="def f(x):\n    return x - 1\n# wrong\n")).wait(10)
    assert run.state.candidates[run.state.best].candidate.source == SLOW and run.state.plan.strategy == "way 1"

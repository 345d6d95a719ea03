"""A point's own lower bound grows with the traffic of its blocks and is never above the profile of what it renders."""

import asyncio

import pytest

from maxkernel_nb.authors.base import TaskView
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.errors import Declined
from maxkernel_nb.evaluate.base import TUNING_GATES
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import Project
from maxkernel_nb.tasks.build import build_task


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return Project(tmp_path_factory.mktemp("bounds")).prepare()


@pytest.fixture(scope="module")
def drawn(project):
    """A view, its plan, and candidates at several points."""

    def product(x, w):
        return x @ w

    built = build_task(product, source="def product(x, w):\n    return x @ w\n",
                       shapes="x: bf16[2048,4096], w: bf16[4096,2048]", store=project.objects)
    view, author = TaskView(task=built.task, trace=built.trace), RecipeAuthor()
    plan = asyncio.run(author.plan(view))
    first = asyncio.run(author.implement(view, plan))
    found = []
    for m, n in ((1024, 1024), (512, 512), (256, 256)):
        try:
            found.append(author.retune(view, plan, first, {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": 1024}))
        except Declined:
            continue
    return built.task, found


def test_smaller_blocks_have_the_higher_bound(drawn):
    bounds = [c.bound_ms for c in drawn[1]]
    assert len(bounds) == 3 and bounds == sorted(bounds) and bounds[0] < bounds[-1]


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_no_kernel_is_modelled_faster_than_its_bound(drawn, project):
    task, candidates = drawn
    evaluator = LocalEvaluator(project.objects)

    async def times():
        return [(await evaluator.judge(task, c, TUNING_GATES)).assessment.modelled_ms for c in candidates]

    try:
        modelled = asyncio.run(times())
    finally:
        evaluator.close()
    assert all(time >= candidate.bound_ms for time, candidate in zip(modelled, candidates, strict=True)), modelled

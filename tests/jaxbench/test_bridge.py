"""jaxbench tasks as the judge gets them: sizes, inputs that fit together, and an honest answer accepted."""

from __future__ import annotations

import numpy as np
import pytest

import jaxbench
from jaxbench import bridge
from jaxbench.cases import RAGGED, case_dims
from maxkernel_nb.engine.loop import get_engine
from maxkernel_nb.evaluate.inputs import draw
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Candidate, CaseRole, GateName

SAMPLED = ("6p", "7p", "10p", "11p")
HONEST = '''

from jax.experimental import pallas as pl


def _copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


def kernel({params}{star}):
    """The reference, and a little of its result through a kernel."""
    y = reference({params}{passed})
    flat = y.reshape(-1)
    copied = pl.pallas_call(_copy, out_shape=jax.ShapeDtypeStruct((1, 128), y.dtype))(flat[None, :128])
    return flat.at[:128].set(copied[0]).reshape(y.shape)
'''


@pytest.mark.parametrize("bench", jaxbench.tasks(), ids=[t.id for t in jaxbench.tasks()])
def test_check_sizes_differ_and_are_small(bench):
    sizes = case_dims(bench)
    checks = [d for name, d in sizes.items() if name not in (RAGGED, "long")]  # long: the full length, few heads
    shapes = {tuple(s.shape for s in bench.inputs(d)) for d in sizes.values()}
    assert len(checks) == 3 and len(shapes) == len(sizes)
    assert all(bench.flops_formula(d) <= 3e9 for name, d in sizes.items() if name != "long")
    assert all(bench.flops_formula(d) <= 5e9 for d in sizes.values())
    assert RAGGED in sizes or bench.number == "28k"  # its norm fixes the width, and a tile divides that
    assert all(bench.full[name] == d[name] for d in sizes.values() for name in bench.static())


@pytest.mark.parametrize("number", SAMPLED)
def test_inputs_that_fit_together_keep_their_contract_at_every_size_and_seed(number):
    bench = jaxbench.task(number)
    sizes = case_dims(bench)
    for case in bridge.cases(bench)[1:3]:
        assert case.maker
        first, second = (dict(zip(bench.params, draw(case, seed), strict=True)) for seed in (0, 1))
        assert not np.array_equal(*(a[bench.params[0]].astype(np.float32) for a in (first, second)))
        if number in ("6p", "7p"):
            pages = first["page_indices"].ravel()
            assert sorted(pages) == list(range(pages.size)) and list(pages) != sorted(pages)
            most = sizes[case.name].page_size * sizes[case.name].pages_per_seq
            assert first["kv_lens"].max() == most and first["kv_lens"].min() <= 1
        if number == "11p":
            assert first["group_sizes"].min() == 0 and first["group_sizes"].sum() <= len(first["lhs"])


def test_published_inputs_are_the_same_for_every_seed():
    case = bridge.cases(jaxbench.task("8p"), "published")[1]
    first, second = draw(case, 0), draw(case, 1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.fixture(scope="module")
def evaluator(tmp_path_factory):
    made = LocalEvaluator(ObjectStore(tmp_path_factory.mktemp("objects")))
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["6p", "12p", "46k"])
def test_the_judge_accepts_an_honest_answer(number, evaluator):
    bench = jaxbench.task(number)
    task = bridge.build(bench, evaluator.store).task
    assert [c.role for c in task.cases][:2] == [CaseRole.TIMING, CaseRole.CHECK]
    star = "".join(f", {w}" for w in (["*", *task.static] if task.static else []))
    passed = "".join(f", {n}={n}" for n in task.static)
    source = task.source + HONEST.format(params=", ".join(task.params), star=star, passed=passed)
    gates = (GateName.SCREEN, GateName.TRACE, GateName.CHECK)
    candidate = Candidate(source=source, entry="kernel", author="test")
    judged = get_engine().submit(evaluator.judge(task, candidate, gates)).result()
    assert judged.assessment.correct, [v.summary for v in judged.assessment.failed]

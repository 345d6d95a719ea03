"""Cases whose inputs a function makes: the same in every process, new for every seed, edges on floats only."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from maxkernel_nb.errors import TaskError, UsageError
from maxkernel_nb.evaluate.inputs import Variant, draw
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Case, CaseRole
from maxkernel_nb.tasks.build import build_task
from maxkernel_nb.tasks.makers import made_case


def page_table(pages):
    def make(key):
        return jax.random.normal(key, (pages, 128), jnp.bfloat16), jax.random.permutation(key, pages).astype(jnp.int32)

    return make


def gather(x, table):
    return x[table]


def case(name="small", pages=16, role=CaseRole.CHECK):
    return made_case(name, role, ("x", "table"), page_table(pages))


def test_every_seed_gives_other_arrays_that_keep_the_invariant():
    made = case()
    first, again, other = (draw(made, seed) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0].astype(np.float32), other[0].astype(np.float32))
    assert sorted(other[1]) == list(range(16)) and first[0].dtype.name == "bfloat16"


def test_it_travels_as_data():
    made = case()
    copy = Case.from_dict(json.loads(json.dumps(made.to_dict())))
    assert all(np.array_equal(a, b) for a, b in zip(draw(made, 3), draw(copy, 3), strict=True))
    assert [(a.shape, a.dtype) for a in copy.args] == [((16, 128), "bfloat16"), ((16,), "int32")]


def test_edges_change_floats_and_leave_indices():
    made = case()
    zeros, large, plain = (draw(made, 0, v) for v in (Variant.ZEROS, Variant.LARGE, Variant.DRAWN))
    assert not zeros[0].any() and np.array_equal(zeros[1], plain[1])
    assert np.array_equal(large[0].astype(np.float32), 64 * plain[0].astype(np.float32))


def test_a_task_can_be_given_all_its_cases(tmp_path):
    cases = [case("timing", 256, CaseRole.TIMING), *(case(f"c{n}", n) for n in (8, 16, 24))]
    inputs = {a.name: a for a in cases[0].args}
    built = build_task(gather, inputs=inputs, cases=cases, store=ObjectStore(tmp_path))
    assert [c.name for c in built.task.cases] == ["timing", "c8", "c16", "c24"]
    assert all(built.task.reference(c.name).own for c in built.task.check_cases)
    with pytest.raises(UsageError, match="1 timing cases and 2 check cases"):
        build_task(gather, inputs=inputs, cases=cases[:3], store=ObjectStore(tmp_path))


def test_a_function_that_looks_at_the_key_or_gives_too_little_is_refused():
    with pytest.raises(TaskError, match="gives 1 arrays for the 2 parameters x, table"):
        made_case("bad", CaseRole.CHECK, ("x", "table"), lambda key: [jax.random.normal(key, (8,))])
    with pytest.raises(TaskError, match="cannot be made from a key"):
        made_case("bad", CaseRole.CHECK, ("x",), lambda key: [np.asarray(jax.random.bits(key, (8,)))])

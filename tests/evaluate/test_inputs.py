import numpy as np
import pytest

from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.evaluate.inputs import Variant, draw, unchanged
from maxkernel_nb.task import ArgSpec, Case, CaseRole, Draw


def case(**arguments):
    args = tuple(ArgSpec(name=n, shape=(64, 32), dtype=t, draw=d) for n, (t, d) in arguments.items())
    return Case(name="c", role=CaseRole.CHECK, args=args)


MIXED = case(
    x=("bfloat16", Draw(mean=3.0, std=0.5)),
    y=("bfloat16", Draw(mean=3.0, std=0.5)),
    i=("int32", Draw(kind="integers", low=2, high=9)),
    m=("bool", Draw(kind="bernoulli", mean=0.25)),
    c=("float32", Draw(kind="constant", mean=1.5)),
    n=("int8", Draw(std=400.0)),
    f=("float8_e4m3fn", Draw()),
)


def test_the_same_seed_gives_the_same_arrays_and_another_gives_others():
    first, again, other = draw(MIXED, 0), draw(MIXED, 0), draw(MIXED, 1)
    for a, b in zip(first, again, strict=True):
        assert a.tobytes() == b.tobytes()
    assert not np.array_equal(first[0], other[0]) and not np.array_equal(first[2], other[2])
    assert not np.array_equal(first[0], first[1]), "two arguments of the same description must differ"


def test_draws_follow_their_description():
    x, _, i, m, c, n, f = draw(MIXED, 0)
    names = ["bfloat16", "int32", "bool", "float32", "int8", "float8_e4m3fn"]
    assert [a.dtype.name for a in (x, i, m, c, n, f)] == names
    assert abs(x.astype(float).mean() - 3) < 0.1 and abs(x.astype(float).std() - 0.5) < 0.1
    assert i.min() == 2 and i.max() == 8
    assert 0.15 < m.mean() < 0.35
    assert (c == 1.5).all()
    assert n.min() == -128 and n.max() == 127, "integers are clipped, not wrapped"


@pytest.mark.parametrize("variant, factor", [(Variant.ZEROS, 0), (Variant.LARGE, 64)])
def test_edge_variants_change_drawn_floats_only(variant, factor):
    plain, edge = draw(MIXED, 0), draw(MIXED, 0, variant)
    assert np.array_equal(edge[0].astype(float), plain[0].astype(float) * factor)
    for number in (2, 3, 4, 5):
        assert np.array_equal(edge[number], plain[number])


@pytest.mark.parametrize("number", range(len(MIXED.args)))
def test_a_run_that_writes_into_its_inputs_is_found(number):
    arrays = draw(MIXED, 0)
    with unchanged(arrays):
        _ = arrays[number] * 2
    with pytest.raises(JobRefused, match=f"changes argument {number}"), unchanged(arrays):
        arrays[number][-1, -1] = ~arrays[number][-1, -1] if arrays[number].dtype == bool else 1.0 + number

"""The cell that tests an accepted kernel: run as a notebook would, with jax and numpy alone."""

import numpy as np
import pytest

from maxkernel_nb.document.testcell import cell_of_tests, renamed
from maxkernel_nb.task import ArgSpec, Case, CaseRole, Draw, KernelTask, Parameter, Tolerance, Tree

REFERENCE = "def f(x, g):\n    return (x * g).astype(x.dtype)\n"
KERNEL = '''
import jax
from jax.experimental import pallas as pl

def _kernel(x, g, o):
    o[...] = x[...] * g[...]{}

def f(x, g):
    return pl.pallas_call(_kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, g)
'''


def case(name, role=CaseRole.CHECK, **arrays):
    return Case(name=name, role=role, args=tuple(
        ArgSpec(name=n, shape=shape, dtype=dtype, draw=draw) for n, (shape, dtype, draw) in arrays.items()))


def task(*cases, **changes):
    fields = {"name": "f", "source": REFERENCE, "entry": "f", "params": ("x", "g"), "cases": cases}
    return KernelTask(**{**fields, **changes})


def product(name, rows, role=CaseRole.CHECK):
    return case(name, role, x=((rows, 128), "bfloat16", Draw(mean=1.0)), g=((rows, 128), "bfloat16", Draw()))


def run(text, **namespace):
    exec(compile(text, "cell", "exec"), namespace)
    return namespace


@pytest.mark.parametrize(("change", "words"), [("", None), (" + 0.5", "c8: error")])
def test_a_kernel_is_run_in_interpret_mode_and_a_wrong_one_fails(change, words, capsys):
    pytest.importorskip("jax")
    kernel = run(KERNEL.format(change))["f"]
    text = cell_of_tests(task(product("timing", 4096, CaseRole.TIMING), product("c8", 8), product("c16", 16)), "f-1")
    assert "maxkernel" not in text and "4096" not in text  # not the full size: interpret mode would take hours
    if words is None:
        assert callable(run(text, f=kernel)["test_f"])
        assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["c8", "c16"]
        return
    with pytest.raises(AssertionError, match=words):
        run(text, f=kernel)


def test_a_bound_kernel_is_tested_and_not_the_reference_that_it_calls_off_a_tpu():
    pytest.importorskip("jax")
    right, wrong = run(KERNEL.format(""))["f"], run(KERNEL.format(" + 0.5"))["f"]
    right.kernel = wrong
    with pytest.raises(AssertionError, match="c8: error"):
        run(cell_of_tests(task(product("c8", 8)), "f-1"), f=right)


def test_every_way_of_drawing_and_a_dict_of_arrays_reach_the_function():
    pytest.importorskip("jax")
    drawn = {
        "ids": ((2, 4), "int32", Draw(kind="integers", low=3, high=9)),
        "mask": ((64,), "bool", Draw(kind="bernoulli", mean=0.5)),
        "one": ((3,), "float32", Draw(kind="constant", mean=2.0)),
        "order": ((8,), "int32", Draw(kind="permutation", high=8)),
        "ends": ((5,), "int32", Draw(kind="sorted", low=0, high=17)),
        "sizes": ((4,), "int32", Draw(kind="partition", high=64)),
        "pages": ((2, 3), "int32", Draw(kind="pages", low=0, high=16)),
    }
    items = tuple((name, Tree(kind="array", name=name)) for name in drawn)
    trees = (Parameter(name="p", tree=Tree(kind="dict", items=(*items, ("n", Tree(kind="value", value=5))))),)
    source = "def f(p, twice):\n    return p['one'] * p['n'] * (2 if twice else 1)\n"
    seen = []

    def kernel(p, twice):
        seen.append(p)
        return p["one"] * 10

    run(cell_of_tests(task(case("c", **drawn), source=source, trees=trees, static={"twice": True}), "f-1"), f=kernel)
    given = {name: np.asarray(value) for name, value in seen[0].items()}
    assert given["ids"].min() >= 3 and given["ids"].max() < 9 and given["mask"].dtype == bool and given["n"] == 5
    assert sorted(given["order"]) == list(range(8)) and (np.diff(given["ends"]) >= 0).all()
    assert (given["ends"][0], given["ends"][-1], given["sizes"].sum()) == (0, 16, 64)
    assert len(set(given["pages"].ravel())) == 6


def test_no_cell_where_a_function_made_the_inputs():
    made = product("c8", 8).model_copy(update={"maker": "packed"})
    assert cell_of_tests(task(made), "f-1") == ""


def test_a_persons_own_limits_hold():
    text = cell_of_tests(task(product("c8", 8), tolerance=Tolerance(atol=0.5)), "f-1")
    assert "allowed = max(allowed, 0.5 + 0.0 * scale)" in text


def test_only_the_functions_own_name_is_changed():
    source = "def f(x):\n    'f of x'\n    return f(x.f) if x.sum() > 3 else off(x)\n"
    assert renamed(source, "f", "g") == "def g(x):\n    'f of x'\n    return g(x.f) if x.sum() > 3 else off(x)\n"

"""Inputs: the shapes language, and where a parameter's value is found."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxkernel_nb.errors import UsageError
from maxkernel_nb.evaluate.inputs import draw
from maxkernel_nb.task import Case, CaseRole
from maxkernel_nb.tasks import generators
from maxkernel_nb.tasks.dimensions import resize
from maxkernel_nb.tasks.inputs import parse_shapes, resolve_inputs
from maxkernel_nb.tasks.shapes import DTYPES


def is_one_sentence(error: BaseException) -> bool:
    text = str(error)
    return text.endswith((".", "?")) and "\n" not in text and ". " not in text.replace("e.g. ", "")


names = st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True)
entries = st.tuples(st.sampled_from(sorted(DTYPES)), st.lists(st.integers(1, 99999), max_size=5))
space = st.sampled_from(["", " ", "  "])


@given(st.dictionaries(names, entries, min_size=1, max_size=6), space, st.sampled_from([",", ";", "\n"]))
def test_what_is_written_is_read_back(wanted, gap, comma):
    text = comma.join(f"{gap}{n}{gap}:{gap}{d}{gap}[{','.join(map(str, s))}]{gap}" for n, (d, s) in wanted.items())
    parsed = parse_shapes(text)
    assert [(a.name, a.dtype, a.shape) for a in parsed] == [(n, DTYPES[d], tuple(s)) for n, (d, s) in wanted.items()]


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_in_one_sentence(text):
    try:
        assert parse_shapes(text)
    except UsageError as error:
        assert str(error).endswith((".", "?"))


@pytest.mark.parametrize(
    ("text", "column", "word"),
    [
        ("x bf16[3]", 3, "':'"),
        ("x: f32[4], y: bf17[3]", 15, "bf16"),
        ("x: f32[3", 8, "']'"),
        ("x: f32[0]", 8, "positive"),
        ("x: f32[3,,4]", 8, "positive"),
        ("x: f32[3] y: f32[3]", 11, "','"),
        ("x: f32[3] 0..4", 11, "integer"),
        ("x: i32[3] 5..4", 11, "lower bound"),
    ],
)
def test_a_mistake_is_named_with_its_column(text, column, word):
    with pytest.raises(UsageError, match=f"Column {column} of") as caught:
        parse_shapes(text)
    assert word in str(caught.value)


def test_the_same_argument_twice_is_refused():
    with pytest.raises(UsageError, match="'x' is given twice"):
        parse_shapes("x: f32[3], x: f32[4]")


def test_a_range_bounds_an_index_argument():
    (labels,) = parse_shapes("labels: i32[4096] 0..32000")
    assert (labels.draw.kind, labels.draw.low, labels.draw.high) == ("integers", 0, 32000)


def matmul(x, w, scale=2.0, *, transpose=False):
    return x @ w * scale


SHAPES = "x: bf16[64,32], w: bf16[32,16]"


def test_scalars_and_defaults_are_static_and_written_down():
    found = resolve_inputs(matmul, shapes=SHAPES)
    assert [a.name for a in found.args] == ["x", "w"]
    assert found.static == {"scale": 2.0, "transpose": False}
    assert found.origin == "shapes"


def test_order_is_inputs_then_shapes_then_variables_then_create_inputs():
    namespace = {
        "x": np.ones((5, 6), np.float32),
        "w": np.ones((6, 7), np.float32),
        "create_inputs": lambda: (np.ones((9, 9), np.float32),) * 2,
    }
    one = {"x": np.ones((1, 2), np.float32)}
    assert shapes_of(resolve_inputs(matmul, inputs=one, shapes="w: f32[2,3]", namespace=namespace)) == [(1, 2), (2, 3)]
    assert shapes_of(resolve_inputs(matmul, shapes="x: f32[3,6]", namespace=namespace)) == [(3, 6), (6, 7)]
    assert shapes_of(resolve_inputs(matmul, namespace=namespace)) == [(5, 6), (6, 7)]
    del namespace["x"]
    found = resolve_inputs(matmul, namespace=namespace)
    assert shapes_of(found) == [(9, 9), (6, 7)] and found.origin == "create_inputs, notebook variables"


def shapes_of(found):
    return [a.shape for a in found.args]


def test_a_module_that_bears_a_parameters_name_is_no_input():
    with pytest.raises(UsageError, match="No value for parameter 'x'"):
        resolve_inputs(lambda x: x, namespace={"x": np})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: resolve_inputs(matmul), ["'x'", "--shapes"]),
        (lambda: resolve_inputs(matmul, shapes="x: f32[3,3], v: f32[3]"), ["'v'", "did you mean"]),
        (lambda: resolve_inputs(matmul, inputs={"y": 1}), ["'y'", "x, w"]),
        (lambda: resolve_inputs(matmul, inputs="make", namespace={"make_it": 1}), ["'make'", "make_it"]),
        (lambda: resolve_inputs(matmul, inputs=({"a": object()}, 2)), ["'x.a'", "object", "--static"]),
        (lambda: resolve_inputs(matmul, inputs=({1: np.ones(3)}, 2)), ["'x'", "key 1"]),
        (lambda: resolve_inputs(matmul, shapes="x.a: f32[3,3], x: f32[3]"), ["'x'", "one or the other"]),
        (lambda: resolve_inputs(matmul, shapes=SHAPES, static=["scales"]), ["'scales'", "'scale'"]),
        (lambda: resolve_inputs(lambda *xs: xs[0], shapes="x: f32[3]"), ["*xs"]),
        (lambda: resolve_inputs(lambda n: n, static=["n=3"]), ["No array argument"]),
        (lambda: resolve_inputs(lambda x: x, inputs=(jax.random.key(0),)), ["random key"]),
        (lambda: resolve_inputs(lambda x: x, inputs=(np.zeros((0, 3)),)), ["empty"]),
        (lambda: resolve_inputs(matmul, inputs=lambda a, b: a), ["a, b", "default"]),
        (lambda: resolve_inputs(matmul, inputs=lambda: 1 // 0), ["ZeroDivisionError"]),
        (lambda: resolve_inputs(matmul, shapes=SHAPES, static={"scale": object()}), ["'scale'", "object"]),
    ],
)
def test_bad_input_gets_one_sentence_that_names_it(call, words):
    with pytest.raises(UsageError) as caught:
        call()
    assert is_one_sentence(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_static_values_come_from_the_option_the_notebook_or_the_default():
    def heads(x, n, kind="causal"):
        return x

    found = resolve_inputs(heads, shapes="x: f32[8,8]", static=["n=4", "kind"], namespace={"kind": "full"})
    assert found.static == {"n": 4, "kind": "full"}
    assert resolve_inputs(heads, shapes="x: f32[8,8]", namespace={"n": 3}).static == {"n": 3, "kind": "causal"}


def test_a_default_that_json_cannot_hold_is_left_to_the_function():
    def cast(x, dtype=jnp.bfloat16, act=jax.nn.relu):
        return act(x.astype(dtype))

    assert resolve_inputs(cast, shapes="x: f32[8,8]").static == {}


def test_partial_and_jitted_functions_have_parameters_too():
    found = resolve_inputs(functools.partial(matmul, scale=3.0), shapes=SHAPES)
    assert found.static == {"scale": 3.0, "transpose": False}
    assert [a.name for a in resolve_inputs(jax.jit(matmul), shapes=SHAPES).args] == ["x", "w"]


def test_values_are_described_by_their_statistics():
    rng = np.random.default_rng(0)
    found = resolve_inputs(
        lambda x, mask, labels, q: x,
        inputs=(
            rng.normal(3, 2, (500, 500)).astype(np.float32),
            rng.random((100, 100)) < 0.25,
            rng.integers(0, 500, (4000,)).astype(np.int32),
            rng.integers(-127, 128, (64, 64)).astype(np.int8),
        ),
    )
    x, mask, labels, q = (a.draw for a in found.args)
    assert x.mean == pytest.approx(3, abs=0.1) and x.std == pytest.approx(2, abs=0.1)
    assert mask.kind == "bernoulli" and mask.mean == pytest.approx(0.25, abs=0.03)
    assert (labels.low, labels.high) == (0, 500)
    assert q.kind == "integers" and q.low >= -128 and q.high <= 128


def test_a_bias_of_zeros_is_drawn_with_a_spread_so_that_dropping_it_is_seen():
    (bias,) = resolve_inputs(lambda b: b, inputs=(np.zeros((256,), np.float32),)).args
    assert bias.draw.kind == "normal" and bias.draw.std > 0


def test_minus_infinity_in_a_mask_does_not_spoil_its_statistics():
    mask = np.where(np.tri(64), 0.0, -np.inf).astype(np.float32)
    (arg,) = resolve_inputs(lambda m: m, inputs=(mask,)).args
    assert np.isfinite(arg.draw.mean) and np.isfinite(arg.draw.std)


def test_a_large_variable_is_sampled_and_not_copied():
    class Watched(np.ndarray):
        largest = 0

        def __array_finalize__(self, other):
            if other is not None and not self.flags.owndata and self.base is not None:
                return
            Watched.largest = max(Watched.largest, self.nbytes)

    big = np.zeros((4096, 4096), np.float32).view(Watched)
    Watched.largest = 0
    assert resolve_inputs(lambda x: x, inputs=(big,)).args[0].shape == (4096, 4096)
    assert Watched.largest < big.nbytes / 50


def test_a_generator_at_full_size_is_sampled_and_not_run(monkeypatch):
    """Four outputs of 8 GiB each would not fit here."""
    monkeypatch.setattr(generators, "_drawn", lambda *a: pytest.fail("it was run"))

    def make(key, dtype=jnp.bfloat16):
        a, b, c = jax.random.split(key, 3)
        big = (4096, 1024, 1024)
        return {
            "x": jax.random.normal(a, big, dtype) * 0.02,
            "w": jax.random.uniform(b, big, dtype, 1, 3),
            "i": jax.random.randint(c, (4096, 1024), 0, 1024),
            "n": 8,
        }

    found = resolve_inputs(lambda x, w, i, n: x, inputs=make)
    x, w, i = (a.draw for a in found.args)
    assert x.std == pytest.approx(0.02, rel=0.05) and w.mean == pytest.approx(2, abs=0.05)
    assert (i.low, i.high) == (0, 1024)
    assert found.static == {"n": 8}
    assert resolve_inputs(lambda x, w, i, n: x, inputs=make).args == found.args


def test_a_numpy_generator_with_a_seed_is_run_for_each_seed():
    seeds = []

    def make(seed):
        seeds.append(seed)
        return np.random.default_rng(seed).normal(size=(64, 64)).astype(np.float32)

    (arg,) = resolve_inputs(lambda x: x, inputs=make).args
    assert seeds == [0, 1, 2] and arg.draw.std == pytest.approx(1, abs=0.1)


def test_a_generator_whose_shapes_vary_is_refused():
    def make(seed):
        return np.ones((3 + seed, 2), np.float32)

    with pytest.raises(UsageError, match="different shapes for different seeds"):
        resolve_inputs(lambda x: x, inputs=make)


FITTED = {
    "sorted": (np.repeat([0, 1, 2], 4), lambda v: (np.diff(v) >= 0).all() and v[0] == 0 and v[-1] == 2),
    "permutation": (np.array([2, 0, 1, 3, 5, 4]), lambda v: sorted(v) == list(range(6))),
    "partition": (np.array([3, 0, 1, 4]), lambda v: (v >= 0).all() and v.sum() == 8),
    "pages": (np.arange(16).reshape(2, 8)[:, ::-1], lambda v: sorted(v.flat) == list(range(16))),
}


@pytest.mark.parametrize("kind", FITTED)
def test_integers_that_fit_together_are_drawn_so(kind):
    values, holds = FITTED[kind]
    found = resolve_inputs(lambda x, ids: x, inputs=(np.ones((8, 8), np.float32), values.astype(np.int32)))
    ids = found.args[1]
    assert ids.draw.kind == kind
    case = Case(name="c", role=CaseRole.CHECK, args=found.args)
    drawn = [draw(case, seed)[1] for seed in range(20)]
    assert all(holds(v) for v in drawn) and any(not np.array_equal(v, drawn[0]) for v in drawn)


def test_pages_stay_apart_in_smaller_cases_and_numbers_that_repeat_are_plain_integers():
    table = np.random.default_rng(0).permutation(512).reshape(16, 32).astype(np.int32)
    cache, pages = np.ones((512, 16), np.float32), lambda t: resolve_inputs(lambda x, ids: x, inputs=(cache, t)).args
    spec = pages(table)[1]
    assert (spec.draw.kind, spec.draw.low, spec.draw.high) == ("pages", 0, 512)
    (smaller,) = resize([spec], {512: 128, 16: 2})
    few = resize([spec], {512: 32, 16: 4})[0]
    for seed in range(10):
        drawn, tight = (draw(Case(name="c", role=CaseRole.CHECK, args=(s,)), seed)[0] for s in (smaller, few))
        assert np.unique(drawn).size == 2 * 32 and drawn.max() < 128
        assert all(np.unique(row).size == 32 for row in tight) and tight.max() < 32
    table[0, 0] = table[3, 3]
    assert pages(table)[1].draw.kind == "integers"


def test_numbers_that_add_up_to_no_dimension_are_plain_integers():
    found = resolve_inputs(lambda x, ids: x, inputs=(np.ones((8, 8), np.float32), np.array([3, 0, 1, 5])))
    assert (found.args[1].draw.kind, found.args[1].draw.low, found.args[1].draw.high) == ("integers", 0, 6)


def two(a, b, n=3):
    return a @ b * n


def short():
    return np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("given", "who"), [(short, "short"), (short(), "--inputs"), ((short(),), "--inputs"), ([short()], "--inputs")]
)
def test_too_few_values_are_not_completed_from_what_lies_around(given, who):
    namespace = {"b": np.ones((4, 8), np.float32), "create_inputs": lambda: (short(), short())}
    with pytest.raises(UsageError, match=f"{who} gives 1 value for the 2 parameters a, b; let it give b too") as caught:
        resolve_inputs(two, inputs=given, namespace=namespace)
    assert is_one_sentence(caught.value)


def test_shapes_and_statics_complete_the_values_by_position():
    assert shapes_of(resolve_inputs(two, inputs=short, shapes="b: f32[4,8]")) == [(4, 4), (4, 8)]

    def scaled(n, a):
        return a * n

    assert resolve_inputs(scaled, inputs=short, static=["n=2"]).static == {"n": 2}
    assert resolve_inputs(lambda a, n: a, inputs=short, namespace={"n": 2}).static == {"n": 2}


def test_a_static_without_a_value_asks_for_it():
    with pytest.raises(UsageError, match="--static n has no value; pass --static n=VALUE") as caught:
        resolve_inputs(lambda x, n: x, shapes="x: f32[8]", static=["n"])
    assert "shapes" not in str(caught.value)

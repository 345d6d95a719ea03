"""What an accepted kernel does when it is called. The TPU is a JAX CPU that says it is one; the kernel is plain JAX."""

import warnings
from types import SimpleNamespace

import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

from maxkernel_nb.engine.binding import BoundKernel, MaxKernelNotice, load_entry  # noqa: E402
from maxkernel_nb.errors import TaskError  # noqa: E402
from maxkernel_nb.tasks.inputs import resolve_inputs  # noqa: E402

KERNEL = "def f(x, scale=1.0):\n    return x * scale + 100.0\n"  # 100 apart: which one ran can be seen
VERIFIED = frozenset({(((4,), "float32"),)})


def reference(x, scale=1.0):
    """Scales."""
    return x * scale


@pytest.fixture
def bound(tmp_path):
    path = tmp_path / "f.py"
    path.write_text(KERNEL)
    return BoundKernel(reference, None, KERNEL, path, "f", verified=VERIFIED, static={"scale": 2.0}, chip="v6e")


def _pretend(monkeypatch, kind):
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    monkeypatch.setattr(jax, "devices", lambda: [SimpleNamespace(device_kind=kind)])


@pytest.fixture
def on_tpu(monkeypatch):
    _pretend(monkeypatch, "TPU v6 lite")


def test_away_from_a_tpu_the_reference_runs_and_says_so_once(bound):
    with pytest.warns(MaxKernelNotice, match="computes on cpu"):
        assert bound(jnp.ones(4), scale=2.0)[0] == 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound(jnp.ones(4), scale=2.0)


def test_on_a_tpu_verified_shapes_run_the_kernel_with_its_statics(bound, on_tpu):
    assert bound(jnp.ones(4), scale=2.0)[0] == 102.0
    assert bound(jnp.ones(4), 2.0)[0] == 102.0
    assert jax.jit(lambda x: bound(x=x, scale=2.0))(jnp.ones(4))[0] == 102.0


@pytest.mark.parametrize("args, kwargs, words", [
    ((jnp.ones(5),), {"scale": 2.0}, r"\[\[5\]\] were not verified"),
    ((jnp.ones(4),), {"scale": 3.0}, "scale is not 2.0"),
    ((jnp.ones(4),), {}, "scale is not 2.0"),
    ((1.5, 2.0), {}, "not an array"),
])
def test_on_a_tpu_everything_not_verified_runs_the_reference(bound, on_tpu, args, kwargs, words):
    with pytest.warns(MaxKernelNotice, match=words):
        assert jnp.max(bound(*args, **kwargs)) < 100


def test_the_kernel_is_differentiable_through_the_reference(bound, on_tpu):
    assert jax.grad(lambda x: bound(x, scale=2.0).sum())(jnp.ones(4))[0] == 2.0


def test_it_keeps_the_functions_name_and_docs_and_carries_its_origin(bound):
    assert (bound.__name__, bound.__doc__, bound.reference) == ("reference", "Scales.", reference)


def test_a_text_that_lost_its_function_is_one_sentence(tmp_path):
    with pytest.raises(TaskError, match="no function 'g'"):
        load_entry("x = 1\n", tmp_path / "g.py", "g")


def test_a_kernel_verified_for_another_chip_is_not_run(bound, monkeypatch):
    _pretend(monkeypatch, "TPU v4")
    with pytest.warns(MaxKernelNotice, match="verified for v6e and this is a TPU v4"):
        assert bound(jnp.ones(4), scale=2.0)[0] == 2.0


def test_it_runs_the_text_that_was_accepted_whatever_its_file_says_now(bound, on_tpu):
    bound.path.write_text("def f(x, scale=1.0):\n    return x - 1000.0\n")
    assert bound(jnp.ones(4), scale=2.0)[0] == 102.0


TREE_KERNEL = "def g(x, params):\n    return {'y': x * params['w'] * params['twice'] + 100.0}\n"


def tree_reference(x, params):
    return {"y": x * params["w"] * params["twice"]}


@pytest.fixture
def tree_bound(tmp_path):
    params = {"w": jnp.ones(4), "twice": 2}
    found = resolve_inputs(tree_reference, inputs=(jnp.ones(4), params))
    shapes = frozenset({tuple((a.shape, a.dtype) for a in found.args)})
    return BoundKernel(tree_reference, None, TREE_KERNEL, tmp_path / "g.py", "g", verified=shapes, static={},
                       chip="v6e", trees=found.trees)


def test_a_dict_of_arrays_reaches_the_kernel_and_has_gradients(tree_bound, on_tpu):
    params = {"twice": 2, "w": jnp.full(4, 3.0)}  # the order of a dict does not matter
    assert tree_bound(jnp.ones(4), params)["y"][0] == 106.0
    gradient = jax.grad(lambda w: tree_bound(jnp.ones(4), {"w": w, "twice": 2})["y"].sum())(params["w"])
    assert gradient[0] == 2.0


@pytest.mark.parametrize("params", [
    {"w": jnp.ones(4), "twice": 3}, {"w": jnp.ones(4), "twice": 2, "more": jnp.ones(4)},
])
def test_another_dict_than_the_verified_runs_the_reference(tree_bound, on_tpu, params):
    with pytest.warns(MaxKernelNotice, match="params is built otherwise"):
        assert tree_bound(jnp.ones(4), params)["y"][0] == params["twice"]

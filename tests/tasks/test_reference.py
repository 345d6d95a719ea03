"""The captured reference: executables in another process, and refusals in one sentence."""

from __future__ import annotations

import subprocess
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

from maxkernel_nb import compat
from maxkernel_nb.errors import TaskError
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.task import Case, CaseRole
from maxkernel_nb.tasks.cases import derive_cases
from maxkernel_nb.tasks.reference import capture, store_references
from maxkernel_nb.tasks.shapes import parse_shapes
from maxkernel_nb.tasks.tracing import Tracer


def cases_of(shapes, small):
    timing = Case(name="timing", role=CaseRole.TIMING, args=parse_shapes(shapes))
    return timing, Case(name="small", role=CaseRole.CHECK, args=parse_shapes(small))


def captured(fn, shapes="x: bf16[512,1024]", small="x: bf16[16,32]", static=None):
    return capture(fn, cases_of(shapes, small), static or {})


def call(data, *inputs):
    return export.deserialize(bytearray(data)).call(*inputs)


def test_own_and_oracle_run_on_the_cpu_and_device_is_for_a_tpu():
    def softmax(x):
        return {"p": jax.nn.softmax(x, -1), "top": (x.max(-1),)}

    timing, small = captured(softmax)
    assert (timing.own, timing.oracle, small.device) == (b"", b"", b"")
    assert export.deserialize(bytearray(timing.device)).platforms == ("tpu",)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(16, 32)), jnp.bfloat16)
    own = call(small.own, x)
    assert own["p"].dtype == jnp.bfloat16 and set(own) == {"p", "top"}
    np.testing.assert_array_equal(np.asarray(own["p"]), np.asarray(jax.jit(softmax)(x)["p"]))
    with compat.enable_x64():
        wide = call(small.oracle, jnp.asarray(np.asarray(x, np.float64)))
        assert wide["p"].dtype == np.float64 and wide["top"][0].dtype == np.float64
    xd = np.asarray(x).astype(np.float64)
    want = np.exp(xd) / np.exp(xd).sum(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(wide["p"]), want, rtol=1e-13)


def test_the_reference_is_never_run_and_traced_few_times():
    traced = []

    def watched(x):
        assert isinstance(x, jax.core.Tracer)
        traced.append(x.shape)
        return x * 2

    args = parse_shapes("x: bf16[8192,8192]")
    closed_over = Tracer(watched, ["x"], {})
    with pytest.raises(TaskError, match="changes 'traced' outside itself"):
        capture(watched, derive_cases(args, closed_over), {}, closed_over)
    assert max(traced.count(s) for s in traced) <= 2


def test_exports_are_the_same_for_the_same_function_defined_again(tmp_path):
    texts = []
    for file in ("one.py", "two.py"):
        scope = {"jnp": jnp}
        text = "\n" * len(texts) + "def f(x):\n    return jnp.tanh(x) @ x.T\n"
        exec(compile(text, str(tmp_path / file), "exec"), scope)
        texts.append(captured(scope["f"]))
    assert texts[0] == texts[1]
    assert str(tmp_path).encode() not in texts[0][1].own


def test_an_array_closed_over_is_a_constant_of_the_export():
    w = jnp.arange(32 * 8, dtype=jnp.float32).reshape(32, 8)
    _, small = captured(lambda x: x.astype(jnp.float32) @ w, "x: bf16[512,32]")
    x = jnp.ones((16, 32), jnp.bfloat16)
    np.testing.assert_allclose(np.asarray(call(small.own, x)), np.asarray(jnp.ones((16, 32)) @ w))


def test_positional_only_keyword_only_and_static_parameters_are_passed_by_name():
    def mixed(x, /, scale, *, w, flip=False):
        return (x * scale) @ w if not flip else w

    cases = cases_of("x: f32[512,256], w: f32[256,128]", "x: f32[8,16], w: f32[16,4]")
    _, small = capture(mixed, cases, {"scale": 2, "flip": False})
    out = call(small.own, jnp.ones((8, 16)), jnp.ones((16, 4)))
    np.testing.assert_array_equal(np.asarray(out), np.full((8, 4), 32.0))


def test_a_reference_with_a_pallas_kernel_runs_interpreted_and_compiles_untouched():
    from jax.experimental import pallas as pl

    def doubled(x):
        def kernel(x_ref, o_ref):
            o_ref[...] = x_ref[...] * 2

        return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x) + 1

    timing, small = captured(doubled, "x: f32[256,256]", "x: f32[16,128]")
    x = jnp.ones((16, 128))
    np.testing.assert_array_equal(np.asarray(call(small.own, x)), np.full((16, 128), 3.0))
    with compat.enable_x64():
        np.testing.assert_array_equal(np.asarray(call(small.oracle, np.ones((16, 128)))), np.full((16, 128), 3.0))
    assert "pallas_call" in small.note
    assert "tpu_custom_call" in export.deserialize(bytearray(timing.device)).mlir_module()


GLOBAL = 0
SEEN: list[object] = []


def with_print(x):
    jax.debug.print("{}", x.sum())
    return x


def with_callback(x):
    return jax.pure_callback(lambda a: a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def with_numpy_random(x):
    return x + np.random.standard_normal(x.shape).astype(x.dtype)


def with_global(x):
    global GLOBAL
    GLOBAL += 1
    return x


def with_append(x):
    SEEN.append(1)
    return x


def with_text(x):
    return x, "text"


def with_branch(x):
    return x if x.sum() > 0 else -x


def with_nothing(x):
    x + 1


@pytest.mark.parametrize(
    ("fn", "words"),
    [
        (with_print, "side effect"),
        (with_callback, "calls back into Python"),
        (with_numpy_random, "random numbers without a key"),
        (with_global, "assigns the global 'GLOBAL'"),
        (with_append, "changes 'SEEN'"),
        (with_text, "returns a str"),
        (with_nothing, "returns nothing"),
        (with_branch, "--static"),
    ],
)
def test_what_no_kernel_can_do_is_refused_in_one_sentence(fn, words):
    with pytest.raises(TaskError, match=words) as caught:
        captured(fn)
    text = str(caught.value)
    assert text.startswith(fn.__name__) and text.endswith(".") and "\n" not in text


def inner(x):
    raise KeyError("my own mistake")


def test_a_persons_own_error_keeps_their_traceback_and_nothing_else():
    with pytest.raises(TaskError, match="my own mistake") as caught:
        captured(lambda x: jnp.tanh(inner(x)))
    cause = caught.value.__cause__
    assert isinstance(cause, KeyError)
    frames = traceback.extract_tb(cause.__traceback__)
    assert {f.filename for f in frames} == {__file__}
    assert [f.name for f in frames] == ["<lambda>", "inner"]


def test_linear_algebra_and_random_numbers_with_a_fixed_key_are_plain_jax():
    def both(x):
        return jnp.linalg.cholesky(x @ x.T + 64 * jnp.eye(x.shape[0])) + jax.random.normal(jax.random.key(1), (1,))

    _, small = captured(both, "x: f32[128,128]", "x: f32[16,16]")
    assert small.oracle_dtype == "float64"


def test_references_are_stored_by_their_digest(tmp_path):
    store = ObjectStore(tmp_path)
    items = captured(lambda x: x * 2)
    timing, small = store_references(items, store)
    assert store.get(small.own) == items[1].own and store.get(timing.device) == items[0].device
    assert (timing.own, small.device) == ("", "")


@pytest.mark.slow
def test_a_notebook_without_a_tpu_does_not_load_libtpu():
    code = (
        "from maxkernel_nb.tasks.reference import capture\n"
        "from maxkernel_nb.tasks.shapes import parse_shapes\n"
        "from maxkernel_nb.task import Case, CaseRole\n"
        "args = parse_shapes('x: f32[64,64]')\n"
        "roles = {'timing': CaseRole.TIMING, 'c': CaseRole.CHECK}\n"
        "cases = [Case(name=n, role=r, args=args) for n, r in roles.items()]\n"
        "capture(lambda x: x * 2, cases, {})\n"
        "import glob, sys\n"
        "loaded = 'libtpu.so' in open('/proc/self/maps').read()\n"
        "attached = glob.glob('/dev/accel*') or glob.glob('/dev/vfio/[0-9]*') or glob.glob('/dev/nvidia[0-9]*')\n"
        "sys.exit(1 if loaded and not attached else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""

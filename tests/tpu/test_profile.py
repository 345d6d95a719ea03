"""What a profile says beyond its time, held to programs whose counts are known by hand."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import pallas as pl

from maxkernel_nb import tpu
from maxkernel_nb.errors import UsageError
from maxkernel_nb.evaluate.executor import WorkerKind
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.tpu.failures import CompileFailure
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

ROWS, COLUMNS, BLOCK = 4096, 1024, 512


def profile(results, name):
    return ScheduleProfile.from_dict(results[name]["profile"])


def kernel(results, name):
    return next(o for o in profile(results, name).ops if o.kind == "pallas")


@pytest.mark.tpu_compiler
def test_loops_have_their_trips_and_an_iterations_bytes(v6e):
    (grid,) = kernel(v6e, "elementwise").loops
    assert grid.depth == 1
    assert grid.trips == pytest.approx(ROWS // BLOCK, abs=2)
    assert grid.read_bytes * grid.trips == ROWS * COLUMNS * 4
    assert grid.written_bytes == grid.read_bytes
    assert grid.share == pytest.approx(1, abs=0.05)


@pytest.mark.tpu_compiler
def test_a_loop_inside_the_kernel_is_told_from_the_grid(v6e):
    outer, inner = kernel(v6e, "fori").loops
    assert (outer.depth, inner.depth) == (1, 2)
    assert inner.trips == sum(range(1, 17))
    assert outer.with_inner > outer.bundles
    assert inner.utilisation["eup"] > 0.3 and "eup" not in outer.utilisation
    assert inner.slots["eup"] == 128 * 256 / (8 * 128)  # one tanh a register


@pytest.mark.tpu_compiler
def test_predicated_regions_run_as_often_as_their_condition_holds(v6e):
    runs = {(r.runs, r.chances) for r in kernel(v6e, "causal").regions}
    assert (2 * 36.0, 2 * 64.0) in runs  # blocks on and below the diagonal, of all
    assert (2 * 8.0, 2 * 64.0) in runs  # the first and the last key block of each query block
    assert not any(r.runs == 72 for r in kernel(v6e, "full").regions)


@pytest.mark.tpu_compiler
def test_bytes_by_direction_add_up(v6e):
    op = kernel(v6e, "matmul")
    assert op.read_bytes + op.written_bytes == op.hbm_bytes
    assert op.written_bytes == 2048 * 2048 * 2


@pytest.mark.tpu_compiler
def test_buffers_are_those_of_the_call(v6e):
    buffers = {(b.kind, b.shape, b.copies): b.size for b in kernel(v6e, "causal").buffers if b.kind != "spill"}
    assert buffers["scratch", "f32[256,128]", 1] == 256 * 128 * 4
    assert buffers["input", "bf16[1,256,128]", 2] == 2 * 256 * 128 * 2
    assert buffers["output", "bf16[1,256,128]", 2] == 2 * 256 * 128 * 2


@pytest.mark.tpu_compiler
def test_the_whole_has_its_roofline_point_and_losses(v6e):
    p = profile(v6e, "matmul")
    assert p.intensity == pytest.approx(p.flops / p.hbm_bytes)
    assert p.tflops < 918
    assert p.minimal_bytes == 3 * 2048 * 2048 * 2
    assert 0 < p.startup_ms < p.modelled_ms


@pytest.mark.tpu_compiler
def test_the_evidence_names_loop_copies_and_units(v6e):
    text = profile(v6e, "fori").explain()
    assert "Inner loop, 136 trips" in text and "EUP" in text
    assert "copies" in profile(v6e, "elementwise").explain()


def test_older_journals_profiles_are_read():
    old = {"name": "f", "kind": "fusion", "modelled_ms": 1.0, "compute_ms": 1.0, "memory_ms": 0.5}
    op = OpProfile.from_dict(old)
    assert op.loops == () and op.buffers == () and op.moves == ""
    whole = {"chip": "v6e", "modelled_ms": 1.0, "flops": 0.0, "hbm_bytes": 0.0, "roofline_ms": 0.5, "ops": [old]}
    read = ScheduleProfile.from_dict(whole)
    assert (read.intensity, read.startup_ms, read.copies_ms) == (0.0, 0.0, 0.0)
    assert ScheduleProfile.from_dict(read.to_dict()) == read


@pytest.fixture(scope="module")
def workers():
    pool = LocalPool({WorkerKind.COMPILER: 1})
    yield pool
    pool.close()


def doubled(x):
    def body(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((BLOCK, COLUMNS), lambda i: (i, 0))
    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, grid=(x.shape[0] // BLOCK,), in_specs=[spec], out_specs=spec, out_shape=out)(x)


def sorted_rows(x):
    def body(x_ref, o_ref):
        o_ref[...] = jnp.sort(x_ref[...])

    return pl.pallas_call(body, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


@pytest.mark.tpu_compiler
def test_any_function_can_be_profiled_for_another_chip(workers):
    spec = jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32)
    kernel = tpu.profile(doubled, spec, chip="v5e", executor=workers)
    plain = tpu.profile(lambda x: x * 2, spec, chip="v5e", executor=workers)
    assert kernel.has_pallas and not plain.has_pallas
    assert kernel.ops[0].name.startswith("doubled")
    assert kernel.modelled_ms == pytest.approx(plain.modelled_ms, rel=0.3)
    assert ScheduleProfile.from_dict(kernel.to_dict()) == kernel


@pytest.mark.tpu_compiler
def test_what_cannot_be_compiled_is_diagnosed_with_its_line(workers):
    with pytest.raises(CompileFailure) as caught:
        tpu.profile(sorted_rows, jnp.zeros((8, 128)), executor=workers)
    found = caught.value.diagnosis
    assert found.kind == "unsupported-sort"
    assert found.code == "o_ref[...] = jnp.sort(x_ref[...])"


def test_an_unknown_chip_is_one_sentence():
    with pytest.raises(UsageError, match="did you mean 'v6e'"):
        tpu.profile(doubled, jnp.zeros((512, 1024)), chip="v6")

"""The model held to what the real compiler makes of programs whose counts are known by hand."""

import pytest

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

pytestmark = pytest.mark.tpu_compiler


def profile(results, name):
    return ScheduleProfile.from_dict(results[name]["profile"])


def kernel(results, name):
    return next(o for o in profile(results, name).ops if o.kind == "pallas")


def issued_flops(op, name="v6e"):
    c = chip(name)
    per_core = c.tflops_bf16 * 1e12 / c.cores / (c.clock_ghz * 1e9)
    return op.utilisation["mxu"] * op.bundles * per_core


def test_flops_of_a_kernel_follow_its_grid_conditions_and_loops(v6e):
    assert profile(v6e, "matmul").flops == 2 * 2048**3
    full = 2 * 2 * 2 * 2048 * 2048 * 128
    assert profile(v6e, "full").flops == full
    assert profile(v6e, "causal").flops == full * 36 / 64
    assert profile(v6e, "scan").flops == 37 * 2 * 512**3
    assert profile(v6e, "xla_gemm").flops == 2 * 2048**3


def test_matmul_steps_run_as_often_as_the_grid_says(v6e):
    op = kernel(v6e, "matmul")
    assert op.trips[0] == pytest.approx(4 * 2 * 4, abs=2)
    assert issued_flops(op) == pytest.approx(2 * 2048**3, rel=0.08)  # loads of weights take some slots


def test_skipped_causal_blocks_are_not_counted(v6e):
    share = issued_flops(kernel(v6e, "causal")) / issued_flops(kernel(v6e, "full"))
    assert share == pytest.approx(36 / 64, rel=0.03)
    assert profile(v6e, "causal").modelled_ms < profile(v6e, "full").modelled_ms


def test_hbm_bytes_are_what_the_pipeline_moves(v6e):
    x_reads, y_reads = 2048 * 2048 * 2 * 2, 2048 * 2048 * 2 * 4  # per column of blocks, per row of blocks
    assert kernel(v6e, "matmul").hbm_bytes == x_reads + y_reads + 2048 * 2048 * 2


def test_a_loop_bounded_by_the_program_id_has_the_sum_of_its_trips(v6e):
    assert kernel(v6e, "fori").trips[1] == sum(range(1, 17))
    assert profile(v6e, "fori").notes == ()


def test_a_loop_bounded_by_data_is_counted_conservatively_and_noted(v6e):
    p = profile(v6e, "prefetch")
    assert any("trip count depends on data" in n for n in p.notes)
    assert p.source == "schedule"


def test_constant_tables_decide_which_regions_run(v6e):
    """A splash kernel's block mask: its regions were counted as always run, with a range from none to all."""
    p = profile(v6e, "masked")
    op = kernel(v6e, "masked")
    assert not any("depend" in n for n in p.notes)
    assert op.low_ms is None
    assert (36, 64) in [(r.runs, r.chances) for r in op.regions]


def test_no_kernel_is_faster_than_its_chip(other_chips):
    """A GEMM on v7x, and on v5e, came out below its roofline."""
    for results in other_chips.values():
        p = profile(results, "matmul")
        assert p.modelled_ms >= p.roofline_ms > 0.3 * p.modelled_ms
        assert max(op.utilisation["mxu"] for op in p.ops if op.kind == "pallas") <= 1.0


def test_a_scan_runs_its_body_as_often_as_its_length(v6e):
    assert max(o.trips[0] for o in profile(v6e, "scan").ops if o.trips) == 37


def test_a_streaming_kernel_is_bound_by_hbm(v6e):
    p = profile(v6e, "elementwise")
    assert p.bound_by == "hbm"
    assert p.modelled_ms >= p.roofline_ms
    assert "HBM bandwidth" in p.explain()


@pytest.mark.parametrize("name", ["matmul", "causal", "fori", "scan", "xla_gemm", "elementwise"])
def test_profiles_are_whole_and_explained_in_ten_lines(v6e, name):
    p = profile(v6e, name)
    assert p.modelled_ms >= p.roofline_ms > 0
    assert p.has_pallas == (name not in ("scan", "xla_gemm"))
    assert p.libtpu_version and p.jax_version
    assert v6e[name]["text"] == p.explain()
    assert len(p.explain().splitlines()) <= 10
    assert "modelled" in p.explain() and "measured" not in p.explain()


@pytest.mark.parametrize("name", ["xla_gemm@no_dump", "elementwise@no_dump", "elementwise@garbage"])
def test_without_readable_dumps_hlo_estimates_stand_in_and_say_so(v6e, name):
    p = profile(v6e, name)
    assert p.source == "hlo"
    assert p.modelled_ms > 0
    assert p.error_pct > profile(v6e, "xla_gemm").error_pct
    assert "HLO estimates" in p.explain()
    assert any("unknown form" in n for n in p.notes) == name.endswith("garbage")


def test_dumps_are_deleted_after_each_profile(v6e):
    assert {r["left"] for r in v6e.values()} == {0}


def test_parallel_axes_are_shared_by_the_cores_of_a_megacore_chip(v5p):
    split = kernel(v5p, "causal")
    assert split.trips[0] == pytest.approx(2 * 8 * 8 / 2, abs=2)
    alone = profile(v5p, "elementwise")
    assert any("runs on one of 2 cores" in n for n in alone.notes)
    assert kernel(v5p, "elementwise").trips[0] == pytest.approx(8, abs=2)


def test_explanation_is_deterministic_and_survives_an_empty_profile():
    empty = ScheduleProfile(chip="v6e", modelled_ms=0, flops=0, hbm_bytes=0, roofline_ms=0)
    assert "nothing in this program" in empty.explain()
    op = OpProfile(name="f", kind="fusion", modelled_ms=1, compute_ms=1, memory_ms=0.5, bound_by="mxu")
    one = empty.model_copy(update={"ops": (op,), "modelled_ms": 1.0})
    assert one.explain() == one.explain()

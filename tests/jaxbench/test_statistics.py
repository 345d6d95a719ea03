"""Every figure a report sums up, from results whose answer is known by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxbench import statistics
from jaxbench.results import Kind, Result, Status
from jaxbench.statistics import breakdown, fast_p, geomean, summarise

SPEEDS = st.floats(0.01, 100)


def kernel(task, speedup=None, status=Status.OK, **more):
    times = {"reference_ms": 2.0, "kernel_ms": 2.0 / speedup} if speedup else {}
    return Result(task=task, suite="jaxbench", kind=Kind.OPTIMIZED, status=status, **times, **more)


def test_failures_count_as_the_reference_and_our_faults_do_not_count():
    results = [kernel("a", 4.0), kernel("b", 1.0), kernel("c", status=Status.REFUSED),
               kernel("d", status=Status.NO_KERNEL), kernel("e", status=Status.INFRASTRUCTURE)]
    total = summarise(results)
    assert (total.n, total.verified, total.failed, total.faults) == (4, 2, 2, 1)
    assert total.geomean == pytest.approx(math.sqrt(2)) and total.geomean_verified == pytest.approx(2.0)
    assert total.fast == {0.0: 0.5, 0.5: 0.5, 1.0: 0.25, 1.5: 0.25, 2.0: 0.25, 4.0: 0.0}


def test_one_algebraic_trick_does_not_carry_the_mean():
    total = summarise([kernel("a", 1000.0), kernel("b", 0.001), kernel("c", 1.0)])
    assert total.clipped == 2 and total.geomean == pytest.approx(1.0)


def test_a_verified_kernel_nobody_could_time_is_neither_fast_nor_failed():
    total = summarise([kernel("a"), kernel("b", 2.0)])
    assert (total.verified, total.untimed, total.failed) == (2, 1, 0)
    assert total.geomean == pytest.approx(2.0) and total.fast[0.0] == 0.5


def test_references_are_no_tries():
    reference = Result(task="a", suite="jaxbench", kind=Kind.REFERENCE, status=Status.OK, reference_ms=1.0)
    assert summarise([reference]).n == 0 and summarise([]).geomean is None


def test_classes_are_summed_up_apart():
    found = breakdown([kernel("a", 2.0, tier="fusion"), kernel("b", 8.0, tier="production")], lambda r: r.tier)
    assert {n: round(s.geomean, 9) for n, s in found.items()} == {"fusion": 2.0, "production": 8.0}


def test_a_gain_is_split_into_algebra_and_kernel():
    result = kernel("a", 10.0, algebra_ms=0.5)
    assert statistics.split_gain(result) == (pytest.approx(4.0), pytest.approx(2.5))
    assert statistics.split_gain(kernel("b", 10.0)) == (pytest.approx(1.0), pytest.approx(10.0))
    assert statistics.split_gain(kernel("c", status=Status.REFUSED)) is None


def test_a_published_time_counts_only_where_it_applies():
    def reference(task, note):
        return Result(task=task, suite="jaxbench", kind=Kind.REFERENCE, status=Status.OK, reference_ms=2.0,
                      published_ms=4.0, published_note=note)

    assert statistics.ratio_to_published([reference("a", ""), reference("b", "zero weights")]) == {"a": 0.5}


@given(st.lists(SPEEDS, min_size=1, max_size=30))
def test_the_geometric_mean_lies_between_and_inverts(values):
    mean = geomean(values)
    assert min(values) * 0.999 <= mean <= max(values) * 1.001
    assert geomean([1 / v for v in values]) == pytest.approx(1 / mean)


@given(st.lists(SPEEDS, max_size=30), st.integers(0, 10), st.floats(0, 10), st.floats(0, 10))
def test_fast_p_falls_with_p_and_is_a_share(speeds, failed, p, q):
    n = len(speeds) + failed
    low, high = sorted((p, q))
    assert 0 <= fast_p(speeds, n, high) <= fast_p(speeds, n, low) <= 1


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_what_has_no_geometric_mean_is_refused(bad):
    with pytest.raises(ValueError, match="positive finite"):
        geomean([1.0, bad])


def test_measured_times_are_not_split_by_a_modelled_short_form():
    result = kernel("a", 10.0, algebra_ms=0.5, evidence="measured")
    assert result.algebraic_gain is None and statistics.split_gain(result) == (pytest.approx(1.0), pytest.approx(10.0))


def test_a_reference_is_kept_where_it_is_faster():
    results = [kernel("8p_a", 0.5), kernel("9p_b", 4.0, algebra_ms=1.0, evidence="modelled"),
               kernel("1p_c", status=Status.NO_KERNEL, reason="reference kept"),
               kernel("2p_d", status=Status.INFRASTRUCTURE)]
    told = statistics.kept(results)
    assert (told.n, told.verified, told.answered, told.eight_n) == (3, 2, 3, 2)
    assert told.geomean == pytest.approx(4 ** (1 / 3)) and told.eight == 1.0
    assert told.algebraic == pytest.approx(2 ** (1 / 3))


def test_ours_is_held_against_the_kernels_that_ship_with_jax():
    theirs = [Result(task=task, suite="jaxbench", kind=Kind.RIVAL, status=Status.OK, kernel_ms=1.5)
              for task in ("8p_a", "1p_b")]
    ours = [kernel("8p_a", 0.5), kernel("1p_b", 4.0), kernel("9p_c", 2.0)]
    assert statistics.against(ours, theirs) == {"8p": 0.75, "1p": 3.0}
    assert summarise([*ours, *theirs]).n == 3


def test_a_measured_figure_of_others_lies_beside_our_modelled_one():
    from tests.bench import autocomp

    bench = autocomp.shaped("1p")
    assert bench.dims().seq_len == 2048 and bench.dims().batch == 1
    rival = Result(task=bench.id, suite="jaxbench", kind=Kind.RIVAL, status=Status.OK, kernel_ms=1.5)
    told = autocomp.line("1p", [kernel(bench.id, 4.0), rival])
    assert "4.00x modelled" in told and "jax's own kernel 1.500 ms: 3.00x modelled" in told
    assert "1.41x measured" in told and "not run" in autocomp.line("16p", [rival])

"""Playing a program's DMAs against its bundles: what is hidden, what is waited for."""

import pytest

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.constants import Constants
from maxkernel_nb.tpu.emulate import HEAD, READS, WAITS, WRITES, Event, Execution
from maxkernel_nb.tpu.pipeline import Trace, compress, play
from maxkernel_nb.tpu.terms import OpTerms
from maxkernel_nb.tpu.timing import op_class, op_time, program_times

V6E = chip("v6e")
PLAIN = Constants(
    hbm_efficiency=1.0, one_way_efficiency=1.0, dma_latency_us=0.0, dma_setup_us=0.0, contention=0.0, launch_us=0.0
)
GRANULES = 1000
DMA = GRANULES * 32 / 1640e9 * 1.75e9  # cycles on the bus


def loop(steps, cycles, slots=2):
    """Double buffered: each step issues the read of the next and waits for its own."""
    events = [Event(0, READS, 0, GRANULES)]
    for n in range(steps):
        events.append(Event(n * cycles, HEAD))
        if n + 1 < steps:
            events.append(Event(n * cycles, READS, (n + 1) % slots, GRANULES))
        events.append(Event(n * cycles, WAITS, n % slots, GRANULES))
    return Execution(times=[], trace=events, cycles=steps * cycles)


def played(run, constants=PLAIN, **kw):
    return play(compress(run, 32), V6E, constants, **kw)


def test_reads_hide_behind_longer_bundles_but_for_the_first():
    p = played(loop(100, 200))
    assert p.cycles == pytest.approx(100 * 200 + DMA)
    assert p.start == pytest.approx(DMA)


def test_longer_reads_set_the_pace():
    assert played(loop(100, 10)).cycles == pytest.approx(100 * DMA + 10, rel=1e-3)


def test_latency_is_paid_where_nothing_hides_it():
    slow = PLAIN.model_copy(update={"dma_latency_us": 1.0})
    two_under_way = 100 / 2 * (DMA + 1750)
    assert played(loop(100, 10), slow).cycles == pytest.approx(two_under_way, rel=0.02)
    assert played(loop(100, 4000), slow).cycles == pytest.approx(100 * 4000 + DMA + 1750)


def test_small_dmas_cost_their_set_up():
    slow = PLAIN.model_copy(update={"dma_setup_us": 0.2})
    assert played(loop(100, 10), slow).cycles == pytest.approx(100 * 350 + 10, rel=1e-3)


def test_bundles_are_slower_beside_a_dma():
    crowded = PLAIN.model_copy(update={"contention": 0.1})
    assert played(loop(100, 200), crowded).cycles == pytest.approx(100 * 200 + DMA + 99 * 0.1 * DMA, rel=1e-3)


def test_cores_of_a_chip_share_the_bandwidth():
    assert played(loop(100, 10), cores=2).cycles == pytest.approx(2 * played(loop(100, 10)).cycles, rel=0.01)


def test_equal_steps_are_kept_once_and_skipping_them_changes_nothing():
    run = loop(1000, 60)
    folded = compress(run, 32)
    assert len(folded.patterns) <= 5
    assert sum(len(row) * times for row, times in folded.order) == 1001
    flat = tuple(((index,), 1) for row, times in folded.order for _ in range(times) for index in row)
    slow = Trace(patterns=folded.patterns, order=flat, granule=32)
    assert play(folded, V6E, Constants()).cycles == pytest.approx(play(slow, V6E, Constants()).cycles, rel=1e-4)


def test_reading_and_writing_together_is_faster_than_one_after_the_other():
    both = [Event(0, READS, 0, GRANULES), Event(0, WRITES, 1, GRANULES), Event(0, WAITS, 0, GRANULES)]
    both += [Event(0, WAITS, 1, GRANULES)]
    one = [Event(0, READS, 0, GRANULES), Event(0, READS, 1, GRANULES), *both[2:]]
    narrow = PLAIN.model_copy(update={"one_way_efficiency": 0.5})
    together = played(Execution(times=[], trace=both, cycles=1), narrow).cycles
    assert together == pytest.approx(2 * DMA, rel=0.02)
    assert played(Execution(times=[], trace=one, cycles=1), narrow).cycles == pytest.approx(4 * DMA, rel=0.02)


# --- whole programs


def estimate(**kw):
    return OpTerms(**{"name": "f", "kind": "fusion", "cycles": 1.75e6, **kw})


def test_a_copy_beside_ops_costs_what_is_left_of_it():
    start = OpTerms(name="c", kind="copy", role="start", read_bytes=1.64e9)  # 1 ms
    done = OpTerms(name="d", kind="copy", role="done", of="c")
    short = program_times([start, estimate(cycles=0.7e6), done], V6E, PLAIN)
    assert [t.total_ms for t in short] == pytest.approx([0.0, 0.4, 0.6])
    long = program_times([start, estimate(cycles=3.5e6), done], V6E, PLAIN)
    assert [t.total_ms for t in long] == pytest.approx([0.0, 2.0, 0.0])


def test_a_prefetch_of_the_program_before_is_free():
    ahead = OpTerms(name="c", kind="copy", role="prefetch", read_bytes=1.64e9)
    done = OpTerms(name="d", kind="copy", role="done", of="c")
    assert sum(t.total_ms for t in program_times([ahead, done], V6E, PLAIN)) == 0


def test_classes_of_ops_have_their_own_error_bars():
    run = compress(loop(4, 200), 32)
    for terms, kind in (
        (estimate(), "hlo"),
        (estimate(trace=run), "compute"),
        (estimate(trace=run, read_bytes=9e9), "memory"),
        (estimate(trace=run, kind="pallas"), "kernel"),
        (estimate(trace=run, kind="pallas", guessed=True), "guess"),
    ):
        assert op_class(terms, op_time(terms, V6E, PLAIN)) == kind

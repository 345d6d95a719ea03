"""The trace reader on constructed TPU traces: the right numbers, or a refusal with the reason."""

import pytest
import traces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from traces import Event

from maxkernel_nb.tpu.chip import trace
from maxkernel_nb.tpu.chip.profile import difference, profile, self_times
from maxkernel_nb.tpu.chip.trace import Disturbed, TraceRefused
from maxkernel_nb.tpu.chip.wire_check import NoTrace, check
from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
A, B = "mk_reference_1", "mk_candidate_2"


def ns(raw, expected, device=None):
    return [round(c.ns, 3) for c in trace.calls(trace.read(raw), expected, device)]


def test_each_run_of_each_program_in_the_order_of_the_calls():
    runs = [(A, 5000.0), (B, 3000.0), (B, 3100.0), (A, 5200.0)]
    raw = traces.serialised(traces.tpu(runs))
    found = trace.calls(trace.read(raw), [A, B, B, A])
    assert [(c.program, round(c.ns)) for c in found] == [(p, round(t)) for p, t in runs]
    assert all(len(c.ops) == 2 for c in found)


@quick
@given(st.lists(st.tuples(st.sampled_from([A, B]), st.floats(1.0, 1e9)), min_size=1, max_size=30),
       st.integers(0, 4), st.integers(0, 2**40), st.floats(0, 1e6))
def test_durations_come_back_whatever_the_clock_and_the_gaps(runs, ops, offset, gap):
    raw = traces.serialised(traces.tpu(runs, ops_per_run=ops, offset_ns=offset, gap=gap))
    assert ns(raw, [p for p, _ in runs]) == pytest.approx([t for _, t in runs], abs=3)  # whole nanoseconds


@quick
@given(st.lists(st.sampled_from([A, B]), min_size=1, max_size=12), st.data())
def test_a_missing_or_a_doubled_run_is_refused(programs, data):
    at = data.draw(st.integers(0, len(programs) - 1))
    times = data.draw(st.sampled_from([0, 2]))
    changed = programs[:at] + programs[at : at + 1] * times + programs[at + 1 :]
    raw = traces.serialised(traces.tpu([(p, 100.0) for p in changed])) if changed else traces.serialised()
    with pytest.raises(TraceRefused, match=r"runs of|no device event"):
        ns(raw, programs)


def test_runs_in_another_order_are_refused():
    raw = traces.serialised(traces.tpu([(A, 10.0), (B, 10.0)]))
    with pytest.raises(TraceRefused, match="order"):
        ns(raw, [B, A])


@quick
@given(st.data())
def test_a_file_cut_anywhere_is_refused_and_never_ends_the_process(data):
    """Unless the cut is just behind a chip's plane: what is left is then whole."""
    raw = traces.serialised(traces.tpu([(A, 10.0), (B, 20.0)]), traces.tpu([(A, 5.0)], number=1))
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    try:
        assert ns(cut, [A, B], 0) == [10.0, 20.0]
    except TraceRefused as refused:
        assert "cannot be read" in str(refused) or "no device event" in str(refused)


@quick
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw):
    try:
        check(raw)
    except NoTrace:
        with pytest.raises(TraceRefused):
            trace.read(raw)


@quick
@given(st.data())
def test_a_changed_byte_is_read_or_refused(data):
    raw = bytearray(traces.serialised(traces.tpu([(A, 10.0), (B, 20.0)])))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = trace.calls(trace.read(bytes(raw)), [A, B])
    except TraceRefused:
        return
    assert all(c.ns > 0 for c in found)


@pytest.mark.parametrize("ops", [0, 2])
def test_a_run_without_duration_is_refused(ops):
    raw = traces.serialised(traces.tpu([(A, 10.0), (B, 0.0)], ops_per_run=ops))
    with pytest.raises(TraceRefused, match="no duration"):
        ns(raw, [A, B])


def test_a_trace_without_device_events_is_refused():
    with pytest.raises(TraceRefused, match="no device event"):
        ns(traces.serialised(traces.plane("/device:TPU:0", {"XLA Modules": []})), [A])


def test_the_other_chip_of_two_is_not_counted():
    raw = traces.serialised(traces.tpu([(A, 10.0)], number=0), traces.tpu([("theirs", 99.0)], number=1))
    assert ns(raw, [A], 0) == [10.0] == ns(raw, [A])
    with pytest.raises(TraceRefused, match="Chip 2 is not in the trace"):
        ns(raw, [A], 2)


def test_a_program_that_ran_on_two_chips_is_refused():
    raw = traces.serialised(traces.tpu([(A, 10.0)], number=0), traces.tpu([(A, 99.0)], number=1))
    with pytest.raises(TraceRefused, match="another chip"):
        ns(raw, [A], 0)


def test_another_program_in_the_window_disturbs_it():
    raw = traces.serialised(traces.tpu([(A, 10.0), ("users_cell", 5.0), (B, 10.0)]))
    with pytest.raises(Disturbed, match="users_cell"):
        ns(raw, [A, B])


def test_two_programs_of_one_name_are_refused():
    modules = [Event(f"jit_{A}(1)", 0, 10), Event(f"jit_{A}(2)", 20, 10)]
    raw = traces.serialised(traces.plane("/device:TPU:0", {"XLA Modules": modules}))
    with pytest.raises(TraceRefused, match="Two different programs"):
        ns(raw, [A, A])


def test_runs_that_overlap_were_not_waited_for():
    modules = [Event(f"jit_{A}(1)", 0, 30), Event(f"jit_{A}(1)", 20, 30)]
    raw = traces.serialised(traces.plane("/device:TPU:0", {"XLA Modules": modules}))
    with pytest.raises(TraceRefused, match="overlap"):
        ns(raw, [A, A])


def test_work_after_a_run_has_ended_is_charged_to_it():
    """Deferred output: a copy that goes on when the program's own event is over."""
    late = [Event("%copy.1 = f32[8] copy(...)", 1000.0, 700.0)]
    raw = traces.serialised(traces.tpu([(A, 1000.0), (B, 1000.0)], ops_per_run=0, gap=900.0,
                                       more={"Async XLA Ops": late}))
    assert ns(raw, [A, B]) == [1700.0, 1000.0]


def test_lines_whose_clocks_differ_are_refused():
    modules, ops = [Event(f"jit_{A}(1)", 5000, 100)], [Event("%fusion.1", 0, 100)]
    raw = traces.serialised(traces.plane("/device:TPU:0", {"XLA Modules": modules, "XLA Ops": (ops, 0)}))
    with pytest.raises(TraceRefused, match="before every run"):
        ns(raw, [A])


def test_a_run_whose_ops_are_missing_is_refused():
    modules, ops = [Event(f"jit_{A}(1)", 0, 5e6)], [Event("%fusion.1", 0, 10)]
    raw = traces.serialised(traces.plane("/device:TPU:0", {"XLA Modules": modules, "XLA Ops": ops}))
    with pytest.raises(TraceRefused, match="events are missing"):
        ns(raw, [A])


# -- profiles ------------------------------------------------------------------------------------------------------


def kernel_trace():
    """One run of 1000 ns: a loop of 800 with two ops inside, 300 of copies half beside it, 200 of waiting."""
    modules = [Event(f"jit_{B}(7)", 0, 1000)]
    ops = [Event("%while.1 = s32[] while(...)", 0, 800, {"hlo_category": "while"}),
           Event("%fusion.2 = f32[8] fusion(...)", 100, 200, {"hlo_category": "fusion", "flops": 4000}),
           Event("%fusion.2 = f32[8] fusion(...)", 400, 200, {"hlo_category": "fusion", "flops": 4000}),
           Event("%fusion.3 = f32[8] fusion(...)", 800, 200, {"bytes_accessed": 6000})]
    return traces.plane("/device:TPU:0", {
        "XLA Modules": modules, "XLA Ops": ops, "Async XLA Ops": [Event("%copy-start.1", 700, 300)],
        "Sync": [Event("SyncWait", 600, 200)],
    })


def test_a_profile_has_each_op_once_with_its_own_time():
    calls = trace.calls(trace.read(traces.serialised(kernel_trace())), [B])
    found = profile(calls, "TPU v6 lite", chip("v6e"))
    assert {o.name: (round(o.ms * 1e6), round(o.runs)) for o in found.ops} == {
        "while.1": (400, 1), "fusion.2": (400, 2), "fusion.3": (200, 1)}
    assert found.sync_wait == pytest.approx(0.2)
    assert found.overlap == pytest.approx(1.0)
    assert found.tflops == pytest.approx(8000 / 1000e-9 / 1e12)
    assert found.hbm_gbs == pytest.approx(6.0)
    assert found.of_peak_hbm == pytest.approx(6.0 / 1640)


def test_an_op_in_an_op_is_not_counted_twice():
    ops = [trace.Event(n, s, e, {}) for n, s, e in (("a", 0, 100), ("b", 10, 60), ("c", 20, 30), ("d", 100, 120))]
    assert {o.name: t for o, t in self_times(ops)} == {"a": 50, "b": 40, "c": 10, "d": 20}


def test_the_difference_to_the_model_names_the_op():
    calls = trace.calls(trace.read(traces.serialised(kernel_trace())), [B])
    op = OpProfile(name="fusion.2", kind="fusion", modelled_ms=1e-4, compute_ms=1e-4, memory_ms=0)
    modelled = ScheduleProfile(chip="v6e", modelled_ms=5e-4, flops=1, hbm_bytes=1, roofline_ms=1e-4, ops=(op,))
    told = difference(modelled, profile(calls, "TPU v6 lite"))
    assert "+100%" in told[0] and "fusion.2" in told[1] and "does not know" in told[2]

"""What only a device can do wrong: halts, memory that runs out while running, outputs that change when timed."""

import chip_programs as programs
import jax
import numpy as np
import pytest

from maxkernel_nb.evaluate import ops_chip
from maxkernel_nb.evaluate.chip_place import Fleet, WorkerPlace
from maxkernel_nb.evaluate.executor import JobRefused
from maxkernel_nb.task import Outcome
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.owner import Ownership
from maxkernel_nb.tpu.chip.session import CANDIDATE, REFERENCE, Place, Session

OTHER = 6


@pytest.fixture
def session():
    made = Session(Place(jax.local_devices(backend="cpu")[0], None, 1 << 16))
    exported = programs.exported(programs.products(2))

    def draw(seed):
        return [np.random.default_rng([seed, n]).standard_normal(programs.SHAPE, np.float32) for n in (0, 1)]

    made.open({REFERENCE: exported, CANDIDATE: exported}, draw, 1)
    yield made
    made.close()


def changed(session, how):
    """The candidate's program, its outputs changed by ``how(call number, output)``."""
    from dataclasses import replace

    program, calls = session.programs[CANDIDATE], []

    def call(*arguments):
        calls.append(1)
        return [how(len(calls), o) for o in program.call(*arguments)]

    session.programs[CANDIDATE] = replace(program, call=call)
    return calls


def test_outputs_of_timed_runs_are_held_against_the_checked_ones(session):
    assert session.window(2)["wrong"] == ""
    session.fresh(2)
    changed(session, lambda n, out: out.at[3, 3].add(1.0) if n == 2 else out)  # the second timed run skips work
    assert "differs from the same program's output" in session.window(2)["wrong"]


def test_memory_is_poisoned_before_each_side_and_given_back(session, monkeypatch):
    placed = []
    put = jax.device_put

    def watched(array, *more):
        placed.append(put(array, *more))
        return placed[-1]

    monkeypatch.setattr(jax, "device_put", watched)
    session.check()
    assert len(placed) == 4 and all(p.is_deleted() for p in placed)  # two blocks of the output's size, twice
    assert {p.shape for p in placed} == {programs.SHAPE}


def test_large_outputs_come_as_rows_spread_over_them(session, monkeypatch):
    monkeypatch.setattr("maxkernel_nb.tpu.chip.session.WHOLE_BYTES", 1000)
    monkeypatch.setattr("maxkernel_nb.tpu.chip.session.ROWS", 8)
    found = session.check()
    assert found[CANDIDATE][0].shape[1] == programs.SHAPE[1] and len(found[CANDIDATE][0]) < programs.SHAPE[0]


@pytest.mark.parametrize(("said", "kind"), [
    ("INTERNAL: Core halted unexpectedly: assertion args", "halt"),
    ("RESOURCE_EXHAUSTED: Attempting to allocate 21.00G. That was not possible. There are 9.2G free.", "memory"),
    ("INVALID_ARGUMENT: something else", "runtime"),
])
def test_a_devices_own_errors_are_named_for_what_they_are(said, kind):
    def broken(args, buffers):
        raise jax.errors.JaxRuntimeError(said)

    with pytest.raises(JobRefused) as refusal:
        ops_chip._told(broken)({}, ())
    assert refusal.value.kind == kind and said[:30] in refusal.value.message


class Faulty(WorkerPlace):
    """A device that answers ``op`` with a refusal."""

    def __init__(self, op, kind, message, **extra):
        super().__init__(Ownership("worker", "cpu", 1, "", "a test"), OTHER)
        self.fault = op, JobRefused(kind, message, **extra)

    async def ask(self, op, args, buffers=(), seconds=60.0):
        at, refusal = self.fault
        if op == at and args.get("side", "candidate") == "candidate":
            raise refusal
        return await super().ask(op, args, buffers, seconds)


@pytest.fixture
def faulty(store, judge, measure):
    fleets = []

    def run(*fault, **extra):
        place = Faulty(*fault, **extra)
        fleets.append(Fleet(place.ownership, [place]))
        ground = programs.ground(store, judge, programs.products(2), programs.products(2))
        return measure(fleets[-1], ground)[-1], place

    yield run
    for fleet in fleets:
        fleet.close()


@pytest.mark.slow
def test_a_core_halt_ends_the_lease_and_is_the_kernels_fault(faulty):
    verdict, place = faulty("first", "halt", "The device stopped with: INTERNAL: Core halted")
    assert verdict.outcome is Outcome.FAIL and verdict.diagnostics[0].kind == "halt"
    assert "Core halted" in verdict.summary
    assert place.worker is None and lease.holder(f"cpu{OTHER}") is None


@pytest.mark.slow
def test_memory_that_runs_out_while_running_is_no_fault_of_the_kernel(faulty):
    verdict, place = faulty("first", "memory", "The device ran out of memory.", needed=21, free=9, ever=True)
    assert verdict.outcome is Outcome.DECLINED and "ran out of memory" in verdict.summary
    assert verdict.numbers == {"needed_bytes": 21.0, "free_bytes": 9.0} and not place.lost


@pytest.mark.slow
def test_a_timed_output_that_changed_fails_the_kernel(store, judge, measure):
    class Lazy(WorkerPlace):
        async def ask(self, op, args, buffers=(), seconds=60.0):
            reply = await super().ask(op, args, buffers, seconds)
            if op == "window":
                reply.data["wrong"] = "An output of a timed run differs."
            return reply

    place = Lazy(Ownership("worker", "cpu", 1, "", "a test"), OTHER)
    fleet = Fleet(place.ownership, [place])
    try:
        verdict = measure(fleet, programs.ground(store, judge, programs.products(2), programs.products(2)))[-1]
    finally:
        fleet.close()
    assert verdict.outcome is Outcome.FAIL and verdict.diagnostics[0].kind == "stale", verdict.summary

"""The chip gate on a CPU taken for a chip, in a worker and in this process: the whole path, and what can go wrong."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import chip_programs as programs
import numpy as np
import pytest

from maxkernel_nb.evaluate.chip_gate import ChipGate, ChipLimits
from maxkernel_nb.evaluate.chip_place import Fleet, KernelPlace, WorkerPlace
from maxkernel_nb.evaluate.ops_chip import LIMIT
from maxkernel_nb.task import Assessment, Outcome
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.compare import Rules
from maxkernel_nb.tpu.chip.lease import Lease
from maxkernel_nb.tpu.chip.owner import Ownership
from maxkernel_nb.tpu.chip.quiet import LONGEST_WAIT_S, Quiet

pytestmark = pytest.mark.slow
SHORT = ChipLimits(first_s=4.0)
OTHER = 5  # a device beside the one that the other tests keep a worker on


def owned(**changed):
    return replace(Ownership("worker", "cpu", 1, "", "a test"), **changed)


@pytest.fixture
def ground(store, judge):
    def made(candidate, reference=None):
        return programs.ground(store, judge, reference or programs.products(4), candidate)

    return made


@pytest.fixture
def alone():
    """Fleets of one place, ended after the test."""
    fleets = []

    def made(place):
        fleets.append(Fleet(place.ownership, [place]))
        return fleets[-1]

    yield made
    for fleet in fleets:
        fleet.close()


def free(name=f"cpu{OTHER}"):
    return lease.holder(name) is None


@pytest.mark.parametrize("owner", ["worker", "kernel"])
def test_the_whole_path(owner, store, ground, measure, request):
    """Lease, load, poison, check, trace, parse, interleave, interval, clocks, profile, record."""
    fleet = request.getfixturevalue(owner)
    checked, timed = measure(fleet, ground(programs.products(4)))
    assert checked.outcome is timed.outcome is Outcome.PASS, (checked.summary, timed.summary)
    assert "float64 oracle" in checked.summary and checked.numbers["worst_error_ratio"] <= 1
    n = timed.numbers
    assert 0 < n["speedup_low"] <= n["measured_speedup"] <= n["speedup_high"]
    assert n["measured_ms"] > 0 and n["input_sets"] >= 2 and n["chip_s"] > 0
    assert Assessment(candidate="c", verdicts=(checked, timed)).measured == timed
    record = json.loads(store.get(timed.artefacts["measurement"]))
    assert record["device"]["platform"] == "cpu" and record["pairs_ms"] and "interleaved" not in record["includes"]
    assert record["opened"]["names"]["candidate"].startswith("mk_candidate_")
    assert set(record["profiles"]) == {"reference", "candidate"}
    assert record["profiles"]["candidate"]["ops"]


def test_a_rehearsal_is_never_taken_for_a_measurement(alone, ground, measure):
    """Its kernel is what a candidate's worker lowered for the CPU; here the gate is told that nobody can."""
    gate = ChipGate(alone(WorkerPlace(owned(rehearsal=True), OTHER)))
    verdict = gate._declined("nothing", 0.0)
    assert verdict.variant == "rehearsal on the CPU"
    assert Assessment(candidate="c", verdicts=(verdict.model_copy(
        update={"outcome": Outcome.PASS, "numbers": {"measured_ms": 1.0}}),)).measured is None


@pytest.mark.parametrize(("candidate", "said"), [
    (programs.wrong_at_one_place(4), "Wrong values"),
    (programs.wrong_between_the_rows(4), "on the same device gives"),
])
def test_wrong_values_at_full_size_fail(candidate, said, worker, ground, measure):
    [verdict] = measure(worker, ground(candidate))
    assert verdict.outcome is Outcome.FAIL and said in verdict.summary
    assert verdict.diagnostics[0].kind == "values"


def test_a_program_that_hangs_ends_its_lease_and_the_run_goes_on(alone, ground, measure):
    fleet = alone(WorkerPlace(owned(), OTHER))
    [verdict] = measure(fleet, ground(programs.forever), limits=SHORT)
    assert verdict.outcome is Outcome.FAIL and verdict.diagnostics[0].kind == "hang"
    assert fleet.places[0].worker is None and free()
    assert measure(fleet, ground(programs.products(4)))[-1].outcome is Outcome.PASS


def test_a_reference_that_hangs_is_not_blamed_on_the_candidate(alone, ground, measure):
    hanging = ground(programs.products(4), programs.forever)
    [verdict] = measure(alone(WorkerPlace(owned(), OTHER)), hanging, limits=SHORT)
    assert verdict.outcome is Outcome.DECLINED and "stay modelled" in verdict.summary


class Killed(WorkerPlace):
    """Its worker is aborted while the candidate runs, the first ``times``."""

    times = 0

    async def ask(self, op, args, buffers=(), seconds=60.0):
        if op == "first" and args["side"] == "candidate" and self.times > 0:
            self.times -= 1
            threading.Timer(0.3, os.kill, (self.worker.pid, signal.SIGABRT)).start()
            op, args = "first", {"side": "candidate"}
        return await super().ask(op, args, buffers, seconds)


def test_a_program_that_aborts_its_worker_twice_fails(alone, ground, measure):
    place = Killed(owned(), OTHER)
    place.times = 2
    [verdict] = measure(alone(place), ground(programs.forever))
    assert verdict.outcome is Outcome.FAIL and verdict.diagnostics[0].kind == "crash"
    assert "SIGABRT" in verdict.summary and free()


def test_a_lease_held_by_another_process_is_explained(worker, ground, measure):
    code = ("import sys; from maxkernel_nb.tpu.chip import lease; lease.FOLDER = sys.argv[1]; "
            "lease.Lease.take('cpu0', 'another notebook'); print('held', flush=True); sys.stdin.read()")
    worker.places[0].end("a test")
    with subprocess.Popen([sys.executable, "-c", code, lease.FOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as other:
        assert other.stdout.readline() == "held\n"
        [verdict] = measure(worker, ground(programs.products(4)))
        other.kill()
    assert verdict.outcome is Outcome.DECLINED
    assert f"process {other.pid} (another notebook)" in verdict.summary and "stay modelled" in verdict.summary
    assert measure(worker, ground(programs.products(4)))[-1].outcome is Outcome.PASS  # a stale lock is taken over


def test_a_cell_that_begins_while_measuring_waits_for_one_run_only(alone, ground, worker):
    worker.places[0].end("this process is to have the device")
    quiet = Quiet()
    waited, at_work = [], []

    def cell():
        waited.append(quiet.cell_begins())
        before = place.asked
        time.sleep(0.4)  # the person's own work
        at_work.append(place.asked - before)
        quiet.cell_ends()

    class Watched(KernelPlace):
        asked = 0

        async def ask(self, op, args, buffers=(), seconds=60.0):
            self.asked += 1
            if op == "window" and not waited:
                threading.Timer(0.02, cell).start()
            return await super().ask(op, args, buffers, seconds)

    place = Watched(owned(owner="kernel"), 0, quiet)
    rules = Rules(seconds=10.0, fewest=3, most=8, warm_most=3, narrow=0.5, clear=0.5)
    gate = ChipGate(alone(place), rules, quiet=quiet)

    async def run():
        return [verdict async for verdict in gate.run(ground(programs.products(4)))]

    timed = asyncio.run(run())[-1]
    assert timed.outcome is Outcome.PASS, timed.summary
    assert waited[0] < LONGEST_WAIT_S + 0.1
    assert at_work[0] <= 1  # the request in flight may still ask; nothing new is begun


def test_a_measurement_that_is_stopped_frees_the_chip(alone, ground, measure):
    fleet = alone(WorkerPlace(owned(), OTHER))

    async def stopped():
        async def all_of_it():
            return [v async for v in ChipGate(fleet, Rules(seconds=60)).run(ground(programs.products(4)))]

        task = asyncio.create_task(all_of_it())
        while fleet.places[0].worker is None or not fleet.places[0].worker.ready:
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(stopped())
    assert fleet.places[0].worker is None and free()
    assert measure(fleet, ground(programs.products(4)))[-1].outcome is Outcome.PASS


def test_memory_that_does_not_suffice_says_what_was_needed(alone, ground, measure):
    [verdict] = measure(alone(WorkerPlace(owned(), OTHER, {LIMIT: "60000"})), ground(programs.products(4)))
    assert verdict.outcome is Outcome.DECLINED and "Measuring needs" in verdict.summary
    assert verdict.numbers["needed_bytes"] > verdict.numbers["free_bytes"] == 60000


def test_the_notebooks_own_arrays_are_left_alone(kernel, ground, measure):
    import jax
    import jax.numpy as jnp

    mine = jnp.arange(1000.0)
    theirs = len(jax.live_arrays())
    measure(kernel, ground(programs.products(4)))
    assert not mine.is_deleted() and np.array_equal(mine, np.arange(1000.0))
    assert len(jax.live_arrays()) <= theirs + 1  # the measurement's own are gone


def test_another_chip_than_the_tasks_is_declined(alone, ground, measure):
    [verdict] = measure(alone(WorkerPlace(owned(chip="v5e"), OTHER)), ground(programs.products(4)))
    assert verdict.outcome is Outcome.DECLINED and "is a v5e and the task is for v6e" in verdict.summary


class Lying(WorkerPlace):
    """A device on which part of the candidate's work is in no trace."""

    async def ask(self, op, args, buffers=(), seconds=60.0):
        reply = await super().ask(op, args, buffers, seconds)
        if op == "clocks":
            reply.data["slope"]["candidate"] *= 20
        return reply


def test_clocks_that_disagree_give_no_figure(alone, ground, measure):
    verdict = measure(alone(Lying(owned(), OTHER)), ground(programs.products(4)))[-1]
    assert verdict.outcome is Outcome.DECLINED and "clocks disagree" in verdict.summary
    assert "measured_ms" not in verdict.numbers


HANG = """
import asyncio, os, sys
sys.path[:0] = [sys.argv[1]]
import chip_programs as programs
from pathlib import Path
from maxkernel_nb.evaluate.chip_gate import ChipGate, ChipLimits
from maxkernel_nb.evaluate.chip_place import Fleet, KernelPlace
from maxkernel_nb.evaluate.executor import WorkerKind
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.owner import Ownership

lease.FOLDER = sys.argv[2] + "/locks"
fleet = Fleet(Ownership("kernel", "cpu", 1, "", "a test"))
pool = LocalPool({WorkerKind.JUDGE: 1})
store = ObjectStore(Path(sys.argv[2]))

async def measured(candidate):
    ground = programs.ground(store, pool, programs.products(2), candidate)
    return [v async for v in ChipGate(fleet, limits=ChipLimits(first_s=2.0)).run(ground)]

for candidate in (programs.forever, programs.products(2)):
    print(*(f"{v.outcome}: {v.summary}" for v in asyncio.run(measured(candidate))), flush=True)
print("lease", lease.holder("cpu0"), flush=True)
pool.close()
os._exit(0)  # the hanging thread cannot be ended
"""


def test_a_hang_in_the_notebooks_own_process_loses_the_chip_but_not_the_notebook(tmp_path):
    support = str(Path(programs.__file__).parent)
    ran = subprocess.run([sys.executable, "-c", HANG, support, str(tmp_path)], capture_output=True, text=True,
                         timeout=120, env={**os.environ, "JAX_PLATFORMS": "cpu"})
    first, second, last = ran.stdout.strip().splitlines()
    assert first.startswith("fail: On the device the kernel does not end"), ran.stderr[-500:]
    assert second.startswith("declined: Not measured: Nothing can be measured") and "restart the kernel" in second
    assert last == "lease None"


def test_a_lease_goes_back_after_a_minute_without_work(alone, monkeypatch):
    monkeypatch.setattr("maxkernel_nb.evaluate.chip_place.IDLE_S", 0.05)
    fleet = alone(WorkerPlace(owned(), OTHER))

    async def briefly():
        async with fleet.place() as place:
            await place.ask("ping", {})
            assert not free()

    asyncio.run(briefly())
    waited = threading.Event()
    for _ in range(100):
        if free():
            break
        waited.wait(0.05)
    assert free() and fleet.places[0].worker is None
    Lease.take(f"cpu{OTHER}", "somebody else").release()

"""Lease, owner, quiet, memory, fit: each by itself."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from maxkernel_nb.document.profile import side_view
from maxkernel_nb.errors import UsageError
from maxkernel_nb.tpu.chip import lease, memory, refit
from maxkernel_nb.tpu.chip.lease import ChipBusy, Lease
from maxkernel_nb.tpu.chip.owner import Notebook, decide
from maxkernel_nb.tpu.chip.quiet import LONGEST_WAIT_S, Quiet
from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

# -- lease ---------------------------------------------------------------------------------------------------------

HOLD = """
import sys
from pathlib import Path
from maxkernel_nb.tpu.chip.lease import Lease
held = Lease.take("tpu0", "another notebook", Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path):
    """Another process that holds the lease of tpu0."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_a_lease_held_by_another_process_is_named(other, tmp_path):
    with pytest.raises(ChipBusy, match=rf"process {other.pid} \(another notebook\)"):
        Lease.take("tpu0", "ours", tmp_path)
    assert lease.holder("tpu0", tmp_path).pid == other.pid
    Lease.take("tpu1", "ours", tmp_path).release()  # the other chip is free


def test_a_lease_whose_process_was_killed_is_taken_over_and_said_to_be_stale(other, tmp_path):
    other.kill()
    other.wait()
    with lease.leased("tpu0", "ours", tmp_path) as held:
        assert held.took_over.pid == other.pid and not held.took_over.alive
        assert lease.holder("tpu0", tmp_path).pid == os.getpid()
    assert lease.holder("tpu0", tmp_path) is None


def test_two_leases_of_one_process_exclude_each_other_too(tmp_path):
    first = Lease.take("tpu0", "ours", tmp_path)
    with pytest.raises(ChipBusy, match=str(os.getpid())):
        Lease.take("tpu0", "ours again", tmp_path)
    first.release()
    first.release()
    Lease.take("tpu0", "ours", tmp_path).release()


@pytest.mark.parametrize("damaged", [b"", b"{", b'{"pid": "x"}', b"\xff\xfe"])
def test_a_damaged_lock_file_is_no_obstacle(tmp_path, damaged):
    lease.lock_path("tpu0", tmp_path).write_bytes(damaged)
    Lease.take("tpu0", "ours", tmp_path).release()


def test_a_lock_that_cannot_be_opened_is_explained(tmp_path):
    lease.lock_path("tpu0", tmp_path).mkdir()
    with pytest.raises(ChipBusy, match="cannot be opened"):
        Lease.take("tpu0", "ours", tmp_path)


def test_the_runtimes_own_lock_is_explained(tmp_path):
    said = "ABORTED: Internal error when accessing libtpu multi-process lockfile."
    lock = tmp_path / "libtpu_lockfile"
    assert "of another user" in lease.explain_start(said, tmp_path, lock)
    lock.touch()
    assert "left behind" in lease.explain_start(said, tmp_path, lock)
    (tmp_path / "4242" / "fd").mkdir(parents=True)
    (tmp_path / "4242" / "fd" / "7").symlink_to("/dev/accel0")
    assert "Process 4242 has the TPU open" in lease.explain_start(said, tmp_path, lock)
    assert lease.explain_start("ModuleNotFoundError: jax", tmp_path, lock) == ""


# -- owner ---------------------------------------------------------------------------------------------------------


def test_a_notebook_on_the_tpu_measures_itself():
    found = decide("auto", Notebook("tpu", "TPU v6 lite", 4), "v6e", 4)
    assert (found.owner, found.platform, found.chips, found.chip) == ("kernel", "tpu", 4, "v6e")
    assert not found.rehearsal and found.device(2) == "tpu2"


@pytest.mark.parametrize("notebook", [Notebook(), Notebook("cpu", "cpu", 1)])
def test_a_notebook_that_is_not_on_the_tpu_leaves_it_to_a_worker(notebook):
    found = decide("auto", notebook, "v5e", 8)
    assert (found.owner, found.chips, found.chip) == ("worker", 8, "v5e")
    assert "stays on the CPU" in found.reason


def test_nothing_is_measured_without_a_chip_or_when_turned_off():
    assert decide("auto", Notebook("cpu", "cpu", 1), None, 0).owner == "none"
    assert decide("off", Notebook("tpu", "TPU v6 lite", 1), "v6e", 1).owner == "none"


def test_a_rehearsal_says_so():
    assert decide("cpu", Notebook(), None, 0).rehearsal
    assert decide("cpu:kernel", Notebook(), None, 0).owner == "kernel"
    with pytest.raises(UsageError, match="MAXKERNEL_MEASURE is 'gpu'"):
        decide("gpu", Notebook(), None, 0)


# -- quiet ---------------------------------------------------------------------------------------------------------


def test_no_run_begins_while_a_cell_is_at_work():
    quiet = Quiet()
    assert quiet.enter()
    quiet.leave()
    quiet.cell_begins()
    assert not quiet.enter() and not quiet.wait(0) and quiet.epoch == 1
    quiet.cell_ends()
    assert quiet.enter()


def test_a_cell_waits_for_the_run_in_flight_but_never_long():
    quiet = Quiet()
    quiet.enter()
    threading.Timer(0.02, quiet.leave).start()
    assert quiet.cell_begins() < LONGEST_WAIT_S
    quiet.cell_ends()
    quiet.enter()  # a run that does not end
    began = time.monotonic()
    quiet.cell_begins()
    assert time.monotonic() - began < 3 * LONGEST_WAIT_S


def test_a_cell_that_only_waits_for_a_run_lets_it_measure():
    quiet = Quiet()
    quiet.cell_begins()
    with quiet.only_waiting():
        assert quiet.enter()
        quiet.leave()
    assert not quiet.enter()


# -- memory --------------------------------------------------------------------------------------------------------

MIB = 1 << 20


def test_sets_are_enough_to_leave_the_chips_own_memory():
    need = memory.Need(inputs=64 * MIB, outputs=MIB, temporaries=0)
    assert memory.sets_that_fit(need, 128 * MIB, None, None) == 5
    assert memory.sets_that_fit(need, 128 * MIB, 200 * MIB, 1024 * MIB) == 2
    assert memory.sets_that_fit(memory.Need(4096, 1, 0), 128 * MIB, None, None) == memory.ROTATIONS_MOST


def test_what_does_not_fit_says_how_much_it_needs_and_what_to_do():
    need = memory.Need(inputs=64 * MIB, outputs=8 * MIB, temporaries=20 * MIB)
    with pytest.raises(memory.DoesNotFit, match=r"needs 100 MiB .* 50 MiB is free: delete arrays") as full:
        memory.sets_that_fit(need, MIB, 50 * MIB, 1024 * MIB)
    assert full.value.ever
    with pytest.raises(memory.DoesNotFit, match="larger than the device"):
        memory.sets_that_fit(need, MIB, 50 * MIB, 60 * MIB)


# -- the model, fitted to a machine --------------------------------------------------------------------------------


def modelled(compute, memory_ms):
    op = OpProfile(name="f", kind="fusion", modelled_ms=max(compute, memory_ms), compute_ms=compute,
                   memory_ms=memory_ms)
    return ScheduleProfile(chip="v6e", modelled_ms=op.modelled_ms, flops=1, hbm_bytes=1, roofline_ms=0.1, ops=(op,),
                           jax_version="1", libtpu_version="2", error_pct=12.0)


def test_pairs_measured_here_fit_the_model_and_it_says_so(tmp_path):
    true_speed = 0.80  # of this pretended machine
    for n in range(6):
        p = modelled(0.5 if n % 2 else 3.0, 1.0 + n / 10)
        real = max(p.ops[0].compute_ms, p.ops[0].memory_ms * refit.BEFORE / true_speed)
        refit.record(refit.pair(f"program {n}", p, real), tmp_path)
    found = refit.active("v6e", "1", "2", tmp_path)
    assert found.speed == pytest.approx(true_speed, abs=0.011) and found.pairs == 6
    assert found.after_pct < 2 < found.before_pct
    after = refit.corrected(modelled(0.5, 1.0), found)
    assert after.modelled_ms == pytest.approx(refit.BEFORE / found.speed)
    assert "measured on this machine" in after.notes[-1] and after.error_pct < 12
    shown = {fact.label: fact.value for fact in side_view("Best kernel", after).facts}
    assert "fitted to 6 programs measured on this machine" in shown["Notes"]  # in the panel and in reports


def test_few_pairs_or_other_versions_change_nothing(tmp_path):
    for n in range(3):
        refit.record(refit.pair(f"{n}", modelled(0.1, 1.0), 1.3), tmp_path)
    assert refit.fit(refit.pairs("v6e", tmp_path)) is None
    for n in range(3, 8):
        refit.record(refit.pair(f"{n}", modelled(0.1, 1.0), 1.3), tmp_path)
    assert refit.fit(refit.pairs("v6e", tmp_path)) is not None
    assert refit.active("v6e", "1", "another", tmp_path) is None
    assert refit.corrected(modelled(0.1, 1.0), None) == modelled(0.1, 1.0)


def test_a_program_measured_again_replaces_its_pair_and_damage_counts_as_none(tmp_path):
    for ms in (1.0, 2.0):
        refit.record(refit.pair("one", modelled(0.1, 1.0), ms), tmp_path)
    assert [p.measured_ms for p in refit.pairs("v6e", tmp_path)] == [2.0]
    (tmp_path / "v6e.json").write_text(json.dumps([{"nonsense": 1}]))
    assert refit.pairs("v6e", tmp_path) == ()

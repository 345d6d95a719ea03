"""Measuring in a real notebook kernel: a person's cells come first, an interrupt loses nothing."""

import json
import threading

import pytest
from notebook_kernel import CellError, NotebookKernel

from maxkernel_nb.engine.state import fold
from maxkernel_nb.journal import read_events
from maxkernel_nb.store import Project
from maxkernel_nb.task import GateName
from maxkernel_nb.tpu.chip.quiet import LONGEST_WAIT_S

pytestmark = [pytest.mark.slow, pytest.mark.tpu_compiler]

LOAD = """%load_ext maxkernel_nb
import jax, jax.numpy as jnp
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.quiet import QUIET
lease.FOLDER = "locks"
waits, begins = [], QUIET.cell_begins
def recorded():
    waits.append(begins())
QUIET.cell_begins = recorded"""
START = """import maxkernel_nb
def scaled(x, w):
    return jax.nn.relu(jnp.dot(x, w, preferred_element_type=jnp.float32) * 0.5).astype(x.dtype)
run = maxkernel_nb.optimize(scaled, shapes="x: bf16[512,512], w: bf16[512,512]", chip="v6e", author="recipes",
                            policy="propose", wait=False, budget="1 candidates")"""
WORK = """import time
began = time.monotonic()
while time.monotonic() - began < 0.2:
    sum(range(1000))"""

INTERRUPTED = """import os, signal, threading
threading.Timer(0.3, os.killpg, (os.getpgid(0), signal.SIGINT)).start()  # as a notebook's stop button does it
run.wait_end()"""


@pytest.fixture(params=["cpu:kernel", "cpu"])
def kernel(request, tmp_path):
    made = NotebookKernel(tmp_path, {"MAXKERNEL_MEASURE": request.param, "PYTHONPATH": ""})
    yield made
    made.shutdown()


def chip_verdicts(folder):
    """Read from the disk: a cell would itself keep the chip still."""
    runs = Project(folder).runs
    state = fold(read_events(next(iter(runs.iterdir())))) if runs.is_dir() and any(runs.iterdir()) else None
    return [v for c in state.candidates.values() for v in c.verdicts if v.gate is GateName.CHIP] if state else []


def until_timing_begins(folder, seconds=240):
    """The outputs at full size were judged: what follows is timing."""
    tick = threading.Event()
    for _ in range(seconds * 20):
        if found := chip_verdicts(folder):
            assert found[0].outcome == "pass", found[0].summary
            return
        tick.wait(0.05)
    raise AssertionError(f"nothing was measured within {seconds} s")


def test_a_cell_waits_for_one_run_at_most_and_an_interrupt_loses_nothing(kernel, tmp_path):
    kernel.run(LOAD)
    kernel.run(START)
    until_timing_begins(tmp_path)
    for _ in range(6):  # a person's cells, mid-measurement
        kernel.run(WORK)
        threading.Event().wait(0.2)
    waited = kernel.value("max(waits)")
    assert waited < LONGEST_WAIT_S + 0.15
    try:
        kernel.run(INTERRUPTED)
        pytest.skip("the measurement ended before it could be interrupted")
    except CellError as red:
        assert "KeyboardInterrupt" in red.traceback
    kernel.run("run.wait_end()")
    assert kernel.value("str(run.state.outcome)") in ("kept reference", "proposed")
    timed = chip_verdicts(tmp_path)[-1]
    if "measured_ms" not in timed.numbers:  # a machine that is too busy: said, and nothing else is lost
        assert timed.outcome == "declined" and "stay modelled" in timed.summary
        return
    record = json.loads(Project(tmp_path).objects.get(timed.artefacts["measurement"]))
    assert record["pairs_ms"] and timed.numbers["windows"] >= 1
    print(f"a cell waited {waited * 1e3:.1f} ms at most; thrown away: {record['thrown_away']}")

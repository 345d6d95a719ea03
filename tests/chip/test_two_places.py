"""Two devices, two leases, two measurements at a time."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import chip_programs as programs
import pytest

from maxkernel_nb.evaluate.chip_gate import ChipGate
from maxkernel_nb.evaluate.chip_place import Fleet, WorkerPlace
from maxkernel_nb.task import Outcome
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.compare import Rules
from maxkernel_nb.tpu.chip.owner import Ownership

pytestmark = pytest.mark.slow
QUICK = Rules(seconds=20.0, fewest=3, most=40, warm_most=3, window_s=0.02, narrow=0.5, clear=0.5)
TWO = Ownership("worker", "cpu", 2, "", "a test")


class Watched(WorkerPlace):
    """Notes which leases are held while it opens programs."""

    def __init__(self, ownership, number, seen, both):
        super().__init__(ownership, number)
        self.seen, self.both = seen, both

    async def ask(self, op, args, buffers=(), seconds=60.0):
        if op == "open":
            await asyncio.wait_for(self.both.wait(), 60)  # until the other measurement has its device too
            self.seen.append({n: lease.holder(f"cpu{n}") is not None for n in (7, 8)})
        return await super().ask(op, args, buffers, seconds)

    def begin(self):
        super().begin()
        self.both.begun()


class Both:
    def __init__(self):
        self.event, self.count = asyncio.Event(), 0

    def begun(self):
        self.count += 1
        if self.count == 2:
            self.event.set()

    async def wait(self):
        await self.event.wait()


def device(store, verdicts):
    timed = verdicts[-1]
    assert [v.outcome for v in verdicts[:1]] == [Outcome.PASS], verdicts[0].summary
    return json.loads(store.get(timed.artefacts["measurement"]))["device"] if timed.artefacts else None


def test_two_tasks_are_measured_on_two_devices_at_a_time(store, judge):
    seen = []

    async def both():
        meeting = Both()
        fleet = Fleet(TWO, [Watched(replace(TWO), n, seen, meeting) for n in (7, 8)])
        gate = ChipGate(fleet, QUICK)
        grounds = [programs.ground(store, judge, programs.products(n), programs.products(n)) for n in (4, 5)]

        async def measured(ground):
            return [v async for v in gate.run(ground)]

        try:
            return await asyncio.gather(*map(measured, grounds))
        finally:
            fleet.close()

    one, two = asyncio.run(both())
    assert seen == [{7: True, 8: True}] * 2  # both leases were held when each measurement began
    devices = [d for d in (device(store, one), device(store, two)) if d]
    assert len({d["name"] for d in devices}) == len(devices) == len({d["pid"] for d in devices})
    assert lease.holder("cpu7") is None and lease.holder("cpu8") is None


KERNEL = """
import asyncio, json, os, sys
sys.path[:0] = [sys.argv[1]]
import chip_programs as programs
import jax
from pathlib import Path
from maxkernel_nb.evaluate.chip_gate import ChipGate
from maxkernel_nb.evaluate.chip_place import Fleet
from maxkernel_nb.evaluate.executor import WorkerKind
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.compare import Rules
from maxkernel_nb.tpu.chip.owner import Ownership

lease.FOLDER = sys.argv[2] + "/locks"
fleet = Fleet(Ownership("kernel", "cpu", len(jax.devices()), "", "a test"))
pool, store = LocalPool({WorkerKind.JUDGE: 1}), ObjectStore(Path(sys.argv[2]))
rules = Rules(seconds=30.0, fewest=3, most=60, warm_most=3, window_s=0.02, narrow=0.5, clear=0.5)

async def measured(n):
    ground = programs.ground(store, pool, programs.products(n), programs.products(n))
    return [v async for v in ChipGate(fleet, rules).run(ground)]

async def both():
    return await asyncio.gather(measured(4), measured(5))

for verdicts in asyncio.run(both()):
    last = verdicts[-1]
    record = json.loads(store.get(last.artefacts["measurement"])) if last.artefacts else {}
    print(json.dumps([verdicts[0].outcome, last.outcome, last.summary, record.get("device", {}).get("name"),
                      record.get("opened", {}).get("names", {})]), flush=True)
fleet.close()
pool.close()
"""


def test_two_devices_of_one_process_take_turns_at_the_profiler(tmp_path):
    """The notebook's own process with two devices; jax has one profiler, so windows alternate."""
    support = str(Path(programs.__file__).parent)
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    ran = subprocess.run([sys.executable, "-c", KERNEL, support, str(tmp_path)], capture_output=True, text=True,
                         timeout=240, env=env)
    told = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(told) == 2, ran.stderr[-800:]
    for checked, timed, summary, *_ in told:
        assert checked == "pass" and (timed == "pass" or "stay modelled" in summary), summary
    print(told)
    names = [name for *_, name, _ in told if name]
    assert len(set(names)) == len(names)
    assert all({n[-1] for n in opened.values()} == {name[-1]} for *_, name, opened in told if name)

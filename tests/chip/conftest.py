"""The CPU as the chip: a place in a worker process, one in this process, and the gate on either."""

import asyncio

import pytest

from maxkernel_nb.evaluate.chip_gate import ChipGate, ChipLimits
from maxkernel_nb.evaluate.chip_place import Fleet, KernelPlace, WorkerPlace
from maxkernel_nb.evaluate.executor import WorkerKind
from maxkernel_nb.evaluate.pool import LocalPool
from maxkernel_nb.store import ObjectStore
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.compare import Rules
from maxkernel_nb.tpu.chip.owner import Ownership
from maxkernel_nb.tpu.chip.quiet import Quiet

QUICK = Rules(seconds=10.0, fewest=3, most=8, warm_most=3, window_s=0.02, narrow=0.5, clear=0.5)
LIMITS = ChipLimits(first_s=20.0)


@pytest.fixture(autouse=True, scope="session")
def locks(tmp_path_factory):
    """Leases of these tests disturb nobody else's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lease, "FOLDER", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    return ObjectStore(tmp_path_factory.mktemp("objects"))


@pytest.fixture(scope="session")
def judge():
    pool = LocalPool({WorkerKind.JUDGE: 1})
    yield pool
    pool.close()


def owned(owner="worker", chip=""):
    """A device that is a CPU and taken for a chip: not a rehearsal."""
    return Ownership(owner, "cpu", 1, chip, "a test")


@pytest.fixture(scope="module")
def worker():
    place = WorkerPlace(owned(), 0)
    fleet = Fleet(place.ownership, [place])
    yield fleet
    fleet.close()


@pytest.fixture
def kernel(worker):
    worker.places[0].end("this process is to have the device")
    place = KernelPlace(owned("kernel"), 0, Quiet())
    fleet = Fleet(place.ownership, [place])
    yield fleet
    fleet.close()


@pytest.fixture
def measure():
    """Runs the gate and gives its verdicts."""
    def run(fleet, ground, rules=QUICK, limits=LIMITS):
        async def all_of_it():
            return [verdict async for verdict in ChipGate(fleet, rules, limits).run(ground)]

        return asyncio.run(all_of_it())

    return run

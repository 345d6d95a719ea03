"""Clicks reach the run exactly once whatever the kernel is doing: idle, in a blocking cell, in an awaiting one.

Runs on the installed ipykernel (``make colab-pins``: 6.17.1, Colab's), and on the versions that the Makefile lays under
``build/kernels``.
"""

from __future__ import annotations

import os
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from panel_kernel import kernel

KERNELS = Path(__file__).resolve().parents[2] / "build" / "kernels"
OTHERS = ("7.1.0",)
SHOW = """
import ipykernel, samples, os, time, asyncio
from sample_run import SampleRun
from maxkernel_nb.widgets.publisher import Publisher
"""
AGAIN = """
run = SampleRun(samples.waiting())
publisher = Publisher(run)
publisher.show()
assert publisher.settle(100)
"""
CELLS = {
    "idle": "",
    "sync-busy": "open({begun!r}, 'w').close()\nwhile not os.path.exists({go!r}): time.sleep(0.02)",
    "await-busy": "open({begun!r}, 'w').close()\nwhile not os.path.exists({go!r}): await asyncio.sleep(0.02)",
}


def places():
    yield pytest.param("", version("ipykernel"), id=f"ipykernel-{version('ipykernel')}")
    if "MAXKERNEL_COLAB_PINS" not in os.environ:
        for other in OTHERS:
            missing = pytest.mark.skipif(not (KERNELS / other).is_dir(), reason="make kernels lays it there")
            yield pytest.param(str(KERNELS / other), other, id=f"ipykernel-{other}", marks=missing)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "number"), list(places()))
def test_no_click_is_lost_and_none_is_done_twice(folder, number, tmp_path):
    with kernel(folder) as client:
        client.run(f"{SHOW}assert ipykernel.__version__ == {number!r}, ipykernel.__version__")
        for state, cell in CELLS.items():
            client.run(AGAIN)
            client.acks.clear()
            go = tmp_path / state
            begun = tmp_path / f"{state}-begun"  # a file: what a busy cell of 7.1.0 prints may come only when it ends
            asked = client.begin(cell.format(go=str(go), begun=str(begun))) if cell else None
            while asked and not begun.exists():
                time.sleep(0.02)
            for uuid, intent in (("one", "accept"), ("one", "accept"), ("two", "reject")):
                client.click(id=f"{state}-{uuid}", intent=intent, proposal="p1")
            go.touch()
            if asked:
                client.finish(asked)
            while client.waiting:
                client.until(lambda m: True)
            assert {(ack["id"], ack["ok"]) for ack in client.acks} == {(f"{state}-one", True), (f"{state}-two", False)}
            client.run("assert [call for call, _ in run.calls] in (['accept'], ['accept', 'reject']), run.calls\n"
                       "assert run.state.outcome == 'accepted', run.state.outcome")

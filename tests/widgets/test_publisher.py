"""One display a run: live while it works, a report when it ended, never more than ten writes a second."""

from __future__ import annotations

import itertools
import threading
import time

import pytest
import samples
from sample_run import SampleRun

from maxkernel_nb import events as ev
from maxkernel_nb.events import RunOutcome
from maxkernel_nb.widgets import publisher as module
from maxkernel_nb.widgets.coalesce import Coalescer
from maxkernel_nb.widgets.publisher import Publisher, report_bundle

VIEW = "application/vnd.jupyter.widget-view+json"


class Screen:
    """What a notebook would hold: outputs in order, each update applied to its display id."""

    def __init__(self):
        self.outputs: list[tuple[str, dict]] = []
        self.log: list[tuple[str, bool]] = []

    def __call__(self, data, metadata, display_id, update):
        assert "widgets" not in metadata
        self.log.append((threading.current_thread().name, update))
        if update:
            self.outputs = [(key, data if key == display_id else old) for key, old in self.outputs]
        else:
            self.outputs.append((display_id, data))

    @property
    def last(self):
        return self.outputs[-1][1]


@pytest.fixture
def screen():
    return Screen()


def shown(run, screen, **options):
    publisher = Publisher(run, publish=screen, **options)
    publisher.show()
    assert publisher.settle(10)
    return publisher


def test_live_then_frozen_in_the_same_place(screen):
    run = SampleRun(samples.started())
    publisher = shown(run, screen)
    assert VIEW in screen.last and "<article" not in screen.last["text/html"]
    run.emit(*samples.waiting()[len(samples.started()) :])
    assert publisher.settle(10) and publisher.panel.doc["header"]["status"] == "waiting for you"
    run.accept()
    assert publisher.settle(30)
    assert len(screen.outputs) == 1
    assert VIEW not in screen.last and "2.81×" in screen.last["text/html"]
    assert screen.last["text/plain"] == "maxkernel run auto-7f3a: accepted"
    assert publisher.panel.doc["ended"]  # a view in a page that was reloaded keeps the last word
    publisher.close()


def test_an_undo_after_the_end_changes_the_report(screen):
    run = SampleRun(samples.accepted())
    publisher = Publisher(run, publish=screen)
    publisher.show()
    publisher.freeze()
    run.undo()
    assert publisher.settle(30)
    assert "undone" in screen.last["text/html"]
    publisher.close()


def test_show_after_the_end_brings_the_live_panel_back_until_frozen(screen):
    run = SampleRun(samples.started())
    publisher = shown(run, screen)
    run.stop()
    assert publisher.settle(30)
    publisher.show()
    assert publisher.settle(10)
    assert VIEW in screen.last and len(screen.outputs) == 2
    publisher.freeze()
    assert all(VIEW not in data for _, data in screen.outputs)
    publisher.close()


def test_batch_clients_get_the_report_and_never_a_widget(screen):
    run = SampleRun(samples.started())
    publisher = Publisher(run, live=False, publish=screen)
    publisher.show()
    assert not screen.outputs
    run.emit(ev.RunEnded(outcome=RunOutcome.KEPT_REFERENCE, reason=""))
    publisher.freeze()
    assert screen.log == [("MainThread", False)] and "XLA&#39;s own program is kept" in screen.last["text/html"]


def test_closed_publishers_follow_no_longer(screen):
    run = SampleRun(samples.started())
    publisher = shown(run, screen)
    publisher.close()
    run.stop()
    assert publisher.settle(1) and VIEW in screen.last


def test_a_terminal_is_told_little_and_only_text(screen, monkeypatch):
    monkeypatch.setattr(module, "in_terminal", lambda: True)
    run = SampleRun(samples.started())
    publisher = shown(run, screen)
    run.emit(*samples.waiting()[len(samples.started()) :])
    assert publisher.settle(10)
    run.reject()
    assert publisher.settle(10)
    assert [set(data) for _, data in screen.outputs] == [{"text/plain"}] * len(screen.outputs)
    assert len(screen.outputs) == 3 and "Rejected" in screen.last["text/plain"]
    publisher.close()


def test_a_kernel_that_shuts_down_leaves_a_report(screen):
    run = SampleRun(samples.tuned())
    publisher = shown(run, screen)
    publisher._freeze_at_exit()
    assert "Tune the tile sizes" in screen.last["text/html"] and VIEW not in screen.last
    publisher.close()


def test_the_report_bundle_takes_anything_with_a_state():
    bundle = report_bundle(SampleRun(samples.failed()))
    assert set(bundle) == {"text/html", "text/plain"}


def test_outside_ipython_nothing_is_shown_and_nothing_fails():
    publisher = Publisher(SampleRun(samples.stopped()))
    publisher.freeze()


def test_a_burst_becomes_few_writes_that_end_with_the_newest():
    written: list[tuple[float, int]] = []
    coalescer: Coalescer[int] = Coalescer(lambda n: written.append((time.monotonic(), n)), interval=0.05)
    for n in range(2000):
        coalescer.submit(n)
    assert coalescer.settle(10)
    assert written[-1][1] == 1999 and len(written) < 200
    times = [t for t, _ in written]
    assert all(b - a >= 0.045 for a, b in itertools.pairwise(times))


def test_a_failing_write_stops_nothing(caplog):
    written = []

    def write(n):
        if n == 1:
            raise ValueError("boom")
        written.append(n)

    coalescer: Coalescer[int] = Coalescer(write, interval=0.0)
    for n in (1, 2):
        coalescer.submit(n)
        assert coalescer.settle(10)
    assert written == [2] and "could not be updated" in caplog.text

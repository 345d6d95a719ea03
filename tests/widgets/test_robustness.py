"""A small version of ``python -m tests.bench.panel_robustness``: the same run, a tenth of it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from maxkernel_nb.widgets.limits import MESSAGE_BYTES

PATH = Path(__file__).resolve().parents[1] / "bench" / "panel_robustness.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("panel_robustness", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_large_run_sends_few_and_small_messages(bench):
    found = bench.kernel_side(bench.large_run(500, 200_000), seconds=3)
    assert found["largest message, bytes"] <= MESSAGE_BYTES
    assert found["updates"] >= 2 and found["updates in any second, at most"] <= 10


@pytest.mark.e2e
def test_a_page_draws_all_of_a_long_diff(bench, browser):
    found = bench.page_side(bench.large_run(500, 200_000), browser, updates=4)
    assert found["rows of the diff"] == 1500 and 0 < found["first paint of the panel, ms"] < 60_000

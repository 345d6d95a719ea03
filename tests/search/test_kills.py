"""kill -9 of a search with the real judge; fifty kills: `python tests/bench/search_kills.py`."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench" / "search_kills.py"


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_killed_with_the_real_judge_it_ends_with_the_same_graph():
    command = [sys.executable, str(BENCH), "--kills", "3", "--judged", "4"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "0 ended differently" in ended.stdout

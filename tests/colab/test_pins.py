"""Run by `make colab-pins` only, in the environment with Colab's kernel stack."""

import os
from importlib.metadata import version
from pathlib import Path

import pytest

PINS = Path(__file__).parent / "pins.txt"

pytestmark = pytest.mark.skipif(
    "MAXKERNEL_COLAB_PINS" not in os.environ, reason="needs Colab's kernel stack: make colab-pins"
)


def test_this_is_the_stack_it_claims_to_be():
    pinned = dict(line.strip().split("==") for line in PINS.read_text().splitlines() if "==" in line)
    assert {name: version(name) for name in pinned} == pinned

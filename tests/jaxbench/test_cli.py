"""The command line's first two commands."""

from __future__ import annotations

import json

import pytest

import jaxbench
from jaxbench.cli import main
from maxkernel_nb.errors import UsageError


def test_list_names_every_task(capsys):
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert all(t.id in text for t in jaxbench.tasks())


def test_list_as_json_can_be_narrowed(capsys):
    assert main(["list", "--tier", "production", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts) == 17 and facts[7]["config"] == {"M": 8192, "K": 8192, "N": 28672}


def test_show_tells_sizes_work_and_source(capsys):
    assert main(["show", "26k"]) == 0
    text = capsys.readouterr().out
    assert "cannot matter: the norm over a single position is zero" in text
    assert "def reference(x, y, bmm_weight" in text and "GFLOP" in text


def test_an_unknown_task_names_the_nearest(capsys):
    assert main(["show", "8p_GEM"]) == 2
    assert "the nearest is 8p_GEMM" in capsys.readouterr().err
    with pytest.raises(UsageError, match="No task 'nothing'"):
        jaxbench.task("nothing")


def test_an_unknown_dimension_names_the_known_ones():
    with pytest.raises(UsageError, match="No dimension 'Q' in this task; choose from M, K, N"):
        jaxbench.task("8p").full.but(Q=1)

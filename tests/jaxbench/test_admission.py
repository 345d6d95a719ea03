"""What a task accepts: shortcuts under the original rule, and neither shortcuts nor false alarms under ours."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest

import jaxbench
from jaxbench.admission import Subject, Trial, admit
from jaxbench.cli import main
from maxkernel_nb.errors import UsageError

admission = functools.cache(lambda number: admit(jaxbench.task(number), seeds=(0,)))


def trial(number, seed=0):
    subject = Subject(jaxbench.task(number))
    return Trial(subject, subject.draw(seed), subject.draw(99))


@pytest.mark.parametrize(
    ("number", "shortcut"),
    [
        ("5p", "rel_pos_bias ignored"),
        ("6p", "all zeros"),
        ("13p", "labels ignored"),
        ("24k", "no mish"),
        ("32k", "the mean everywhere"),
        ("36k", "bias ignored"),
        ("43k", "bias ignored"),
    ],
)
def test_what_the_original_rule_lets_pass_is_caught_by_ours(number, shortcut):
    found = admission(number)
    assert any(name.startswith(shortcut) for name in found.original_passes)
    assert found.passes == ()


@pytest.mark.parametrize("number", ["9p", "45k"])
def test_exact_intermediates_are_refused_by_the_original_rule_and_accepted_by_ours(number):
    found = admission(number)
    assert "float32 intermediates" in found.original_refuses
    assert found.admitted


def test_an_input_that_cannot_matter_is_explained_not_hidden():
    found = admission("26k")
    assert found.explained["x ignored"] == "the norm over a single position is zero whatever goes in"
    assert found.passes == ()


def test_another_order_of_addition_is_accepted():
    """The hidden dimension of 9p in four parts, each rounded once, added in float32."""
    t = trial("9p")
    x, gate, up, down = (np.asarray(a).astype(np.float32) for a in t.arrays)
    parts = np.array_split(np.arange(gate.shape[1]), 4)[::-1]

    def hidden(part):
        g = x @ gate[:, part]
        return (g / (1 + np.exp(-g)) * (x @ up[:, part])).astype(t.result.dtype).astype(np.float32)

    total = sum(hidden(part) @ down[part] for part in parts)
    assert t.our_rule()(total.astype(t.result.dtype))


def test_a_step_left_out_is_named_after_what_is_left_out():
    names = set(trial("43k").wrong())
    assert any(n.startswith("no add of bn_bias") for n in names)
    assert any(n.startswith("no mul of scale") for n in names)
    assert "bias ignored" in names and "all zeros" in names


def test_a_step_left_out_is_really_left_out():
    t = trial("41k")
    x, weight, bias = t.arrays
    (name,) = (n for n in t.wrong() if n.startswith("no relu"))
    np.testing.assert_array_equal(t.wrong()[name](), np.asarray(x @ weight + bias))
    np.testing.assert_array_equal(t.steps.whole(), np.asarray(t.subject.bench.function("smoke")(*t.arrays)))


def test_the_command_reports_and_exits_with_the_verdict(capsys):
    assert main(["admit", "41k", "--seeds", "1"]) == 0
    assert "41k_Gemm_Add_ReLU: admitted" in capsys.readouterr().out
    assert main(["admit", "36k", "--seeds", "1", "--json"]) == 0
    assert "bias ignored" in json.loads(capsys.readouterr().out)["original_passes"]
    with pytest.raises(UsageError, match="at least one seed"):
        admit(jaxbench.task("41k"), seeds=())

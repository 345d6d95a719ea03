"""``python -m jaxbench run --evidence measured``, with XLA's CPU backend as the device."""

import functools

import pytest

from jaxbench import harness as harness_module
from jaxbench.cli import main
from jaxbench.harness import line
from jaxbench.results import ResultFile
from maxkernel_nb.evaluate import local
from maxkernel_nb.evaluate.chip_gate import ChipGate
from maxkernel_nb.evaluate.chip_place import Fleet
from maxkernel_nb.tpu.chip import lease
from maxkernel_nb.tpu.chip.compare import Rules
from maxkernel_nb.tpu.chip.owner import Ownership

QUICK = Rules(seconds=10.0, fewest=3, most=8, warm_most=3, window_s=0.02, narrow=0.5, clear=0.5)


def test_without_a_chip_it_is_refused_with_what_to_do(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(harness_module, "ownership", lambda: Ownership("none", "", 0, "", "there is no TPU here"))
    assert main(["run", "8p", "--evidence", "measured", "--project", str(tmp_path)]) == 2
    assert "needs a TPU, and there is no TPU here" in capsys.readouterr().err


@pytest.fixture
def device(monkeypatch, tmp_path):
    """``device(rehearsal)``: the CPU as this machine's chip, or as its stand-in."""
    fleets = []

    def made(rehearsal):
        owned = Ownership("worker", "cpu", 1, "", "a test", rehearsal=rehearsal)
        fleets.append(Fleet(owned))
        monkeypatch.setattr(lease, "FOLDER", str(tmp_path / "locks"))
        monkeypatch.setattr(harness_module, "ownership", lambda: owned)
        monkeypatch.setattr(local, "ChipGate", functools.partial(ChipGate, rules=QUICK))
        monkeypatch.setattr(harness_module, "LocalEvaluator",
                            functools.partial(local.LocalEvaluator, chips=lambda: fleets[-1]))

    yield made
    for fleet in fleets:
        fleet.close()


@pytest.mark.slow
def test_a_reference_is_timed_in_turn_with_its_short_form(device, tmp_path, capsys):
    device(rehearsal=False)
    results = tmp_path / "r.jsonl"
    command = ["run", "26k", "--size", "smoke", "--evidence", "measured", "--project", str(tmp_path),
               "--results", str(results)]
    assert main(command) == 0
    [found] = ResultFile(results).read()
    assert main([*command, "--resume"]) == 0
    assert len(ResultFile(results).read()) == 1 and "1 known already" in capsys.readouterr().out
    if found.verdicts[-1].outcome == "declined":  # a machine that is too busy: said, and nothing is claimed
        assert found.evidence != "measured" and "stay modelled" in line(found)
        return
    assert found.evidence == "measured" and found.reference_ms > 0 and found.algebraic_gain > 0
    assert [v.gate for v in found.verdicts] == ["chip", "chip"] and "poisoned" in found.verdicts[0].summary
    assert found.modelled_ms is None or f"modelled {found.modelled_ms:.4g} ms" in line(found)
    assert "ms measured" in line(found)


@pytest.mark.slow
def test_a_rehearsal_is_said_to_be_one_and_measures_nothing(device, tmp_path):
    device(rehearsal=True)
    results = tmp_path / "r.jsonl"
    assert main(["run", "20k", "--size", "smoke", "--evidence", "measured", "--project", str(tmp_path),
                 "--results", str(results)]) == 0
    [found] = ResultFile(results).read()
    assert found.evidence != "measured" and "rehearsal on the CPU" in line(found)

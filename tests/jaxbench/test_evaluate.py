"""``evaluate``: the right JSON and exit code for every kind of kernel file."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest

import jaxbench
from jaxbench import bridge, harness
from jaxbench.cli import main
from jaxbench.harness import Harness
from jaxbench.kernel_files import candidate_of
from jaxbench.results import ResultFile
from jaxbench.suites import own
from maxkernel_nb.store import ObjectStore, Project

HERE = Path(__file__).parent
CASES = {"small", "medium", "wide", "ragged", "timing"}  # timing: the timed program at full size, or why it was not run


def _kernels():
    spec = importlib.util.spec_from_file_location("jaxbench_kernels", HERE / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KERNELS = _kernels()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """One project and one pool of workers for all files; the kernel that never ends is given ten seconds."""
    folder = tmp_path_factory.mktemp("bench")
    results = ResultFile(folder / "results.jsonl")
    limits, harness.FULL_SIZE = harness.FULL_SIZE, replace(harness.FULL_SIZE, trace_s=10.0)
    try:
        with Harness(Project(folder), results) as made:
            yield made
    finally:
        harness.FULL_SIZE = limits


@pytest.mark.slow
@pytest.mark.tpu_compiler
@pytest.mark.parametrize("name", KERNELS.FILES)
def test_each_file_gets_the_verdict_it_deserves(name, place, tmp_path, monkeypatch, capsys):
    status, code, gate, words = KERNELS.EXPECTED[name]
    file = tmp_path / f"{name}.py"
    file.write_text(KERNELS.FILES[name])
    monkeypatch.setattr("jaxbench.cli._harness", lambda options: _Borrowed(place))
    assert main(["evaluate", "41k", "--kernel", str(file), "--json"]) == code
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["task"]) == (status, "41k_Gemm_Add_ReLU")
    assert told["kernel_hash"] and told["task_hash"] and told["salt"] and told["versions"]["jax"]
    if status == "ok":
        assert told["evidence"] == "modelled" and told["speedup"] > 0
        assert {v["case"] for v in told["verdicts"] if v["gate"] == "check"} == CASES
    else:
        assert told["speedup"] is None and told["kernel_ms"] is None
        assert told["reason"].startswith(f"{gate}: ") and words in told["reason"]


class _Borrowed:
    """A harness that stays open after a command."""

    def __init__(self, made):
        self.made = made

    def __enter__(self):
        return self.made

    def __exit__(self, *about): ...


def test_a_file_that_cannot_be_read_is_a_usage_error(tmp_path, capsys):
    missing = tmp_path / "none.py"
    assert main(["evaluate", "41k", "--kernel", str(missing), "--project", str(tmp_path)]) == 2
    assert f"The kernel file {missing} cannot be read" in capsys.readouterr().err
    assert main(["evaluate", "nothing", "--kernel", str(missing), "--project", str(tmp_path)]) == 2
    assert main(["evaluate", "41k"]) == 2


def test_a_foreign_entry_is_called_with_the_references_constants(tmp_path):
    task = bridge.build(jaxbench.task("29k"), ObjectStore(tmp_path)).task
    taken = "def workload(x, w, b, scale, shift, *, num_groups):\n    return x\n"
    made = candidate_of(taken, task)
    assert made.entry == "reference"
    assert "def reference(x, weight, bias, gn_weight, gn_bias, *, num_groups):" in made.source
    assert "return workload(x, weight, bias, gn_weight, gn_bias, num_groups=num_groups)" in made.source
    assert "def reference" not in candidate_of("def workload(x, w):\n    return x\n", task).source


def test_own_names_are_found_by_number_and_nothing_is_evaluated_twice():
    assert [item.id for item in own(["8p", "41k_Gemm_Add_ReLU"])] == ["8p_GEMM", "41k_Gemm_Add_ReLU"]
    assert len(own([])) == 50

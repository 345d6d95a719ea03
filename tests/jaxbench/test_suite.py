"""A foreign folder in the field's layout: found without running it, run in a sandbox, judged like our own tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jaxbench.cli import main
from jaxbench.suites import foreign
from maxkernel_nb.errors import UsageError

SUITE = Path(__file__).parent / "suite"
KERNEL = '''
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def _body(x_ref, o_ref):
    x = x_ref[...].astype(jnp.float32)
    o_ref[...] = (x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)).astype(o_ref.dtype)


def workload(x):
    rows, width = x.shape
    block = min(rows, 256)
    spec = pl.BlockSpec((block, width), lambda i: (i, 0))
    return pl.pallas_call(_body, grid=(pl.cdiv(rows, block),), in_specs=[spec], out_specs=spec,
                          out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)
'''


def test_tasks_are_found_by_their_names_alone(tmp_path):
    assert [item.id for item in foreign(SUITE)] == ["row_norm", "scaled_softmax"]
    with pytest.raises(UsageError, match=r"No task 'nothing' in .*; it has row_norm, scaled_softmax"):
        foreign(SUITE, ["nothing"])
    with pytest.raises(UsageError, match="holds no task with CONFIG"):
        foreign(tmp_path)
    with pytest.raises(UsageError, match="is no folder"):
        foreign(tmp_path / "none")


@pytest.mark.slow
@pytest.mark.tpu_compiler
def test_a_suite_runs_end_to_end(tmp_path, capsys):
    common = ["--suite", str(SUITE), "--project", str(tmp_path)]
    assert main(["run", "--all", "--json", *common]) == 0
    norm, softmax = map(json.loads, capsys.readouterr().out.splitlines())
    assert softmax["flops"] == 2 * 1024 * 512 * 1024 and softmax["suite"] == "suite"
    assert norm["min_bytes"] == 2048 * 1024 * 2 and norm["reference_ms"] > 0 and norm["evidence"] == "modelled"
    file = tmp_path / "kernel.py"
    file.write_text(KERNEL)
    assert main(["evaluate", "row_norm", "--kernel", str(file), "--json", *common]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert judged["status"] == "ok" and judged["speedup"] > 0
    assert main(["run", "--all", "--resume", *common]) == 0
    assert "0 done, 2 known already" in capsys.readouterr().out
    assert main(["report", "--project", str(tmp_path)]) == 0
    assert "kernel files on v6e" in capsys.readouterr().out


@pytest.mark.slow
def test_foreign_code_runs_in_a_worker_and_cannot_leave_it(tmp_path, capsys):
    folder = tmp_path / "suite"
    folder.mkdir()
    text = (SUITE / "row_norm" / "baseline.py").read_text()
    stain = tmp_path / "stain"
    (folder / "hostile.py").write_text(f"open({str(stain)!r}, 'w').write('x')\n" + text)
    assert main(["run", "hostile", "--suite", str(folder), "--project", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "refused" and "may not touch" in told["reason"]
    assert not stain.exists()


def test_agents_get_a_foreign_function_only_from_those_who_trust_it(tmp_path, capsys):
    assert main(["optimize", "row_norm", "--suite", str(SUITE), "--project", str(tmp_path)]) == 2
    assert "pass --trust" in capsys.readouterr().err
    assert main(["run", "row_norm", "--suite", str(SUITE), "--size", "smoke", "--project", str(tmp_path)]) == 2
    assert "have no smoke sizes" in capsys.readouterr().err

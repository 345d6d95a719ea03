"""Parametrised runs without a person: papermill gives the policy, and the policy decides."""

from __future__ import annotations

from pathlib import Path

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_notebook

SUPPORT = Path(__file__).resolve().parents[1] / "support"
CELLS = (
    f"import sys; sys.path.insert(0, {str(SUPPORT)!r})\nimport fake_api, pathlib\n"
    "api = fake_api.install(get_ipython(), pathlib.Path.cwd())\nget_ipython().run_line_magic('config', "
    "f'MaxKernel.policy = {policy!r}')",
    "%%maxkernel auto\ndef f(x):\n    return x",
    "f",
)


@pytest.fixture
def notebook(tmp_path):
    parameters = new_code_cell("policy = 'propose'", metadata={"tags": ["parameters"]})
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(new_notebook(cells=[parameters, *map(new_code_cell, CELLS)], metadata=kernel), tmp_path / "in.ipynb")
    return tmp_path


def ran(folder, **parameters):
    """Texts of the run's cell and of the last one."""
    made = papermill.execute_notebook(folder / "in.ipynb", folder / "out.ipynb", parameters, cwd=folder,
                                      progress_bar=False)
    report, value = made.cells[-2].outputs[0]["data"], made.cells[-1].outputs[0]["data"]
    assert "<article" in report["text/html"] and "widgets" not in made.metadata
    return report["text/plain"], value["text/plain"]


def test_the_default_leaves_the_proposal_open_and_the_function_as_it_was(notebook):
    report, value = ran(notebook)
    assert report == "maxkernel run f-1: proposed" and value.startswith("<function __main__.f")


def test_a_given_policy_accepts_what_is_verified_and_binds_it(notebook):
    report, value = ran(notebook, policy="accept-verified")
    assert (report, value) == ("maxkernel run f-1: accepted", "<verified kernel f of run f-1>")


def test_a_policy_that_needs_a_person_ends_the_notebook_with_the_remedy(notebook):
    with pytest.raises(papermill.PapermillExecutionError, match="--policy propose"):
        ran(notebook, policy="ask")

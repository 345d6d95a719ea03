"""Which layer wins, and whether a person can see it."""

import pytest

from maxkernel_nb import config
from maxkernel_nb.errors import UsageError

PYPROJECT = '[tool.maxkernel]\nchip = "v4"\nbudget = "5 candidates"\n'


@pytest.fixture
def project(tmp_path):
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    (tmp_path / "deep").mkdir()
    return tmp_path


def test_the_nearest_layer_to_the_cell_wins_and_is_named(project):
    def chip(**layers):
        found = config.resolve(folder=project / "deep", **{"environ": {}, **layers})["chip"]
        return found.value, found.origin

    environ, traits, cell = {"MAXKERNEL_CHIP": "v5e"}, {"chip": "v5p"}, {"chip": "v7x"}
    assert chip() == ("v4", "pyproject.toml [tool.maxkernel] chip")
    assert chip(environ=environ) == ("v5e", "environment MAXKERNEL_CHIP")
    assert chip(environ=environ, traits=traits) == ("v5p", "%config MaxKernel.chip")
    assert chip(environ=environ, traits=traits, cell=cell) == ("v7x", "cell option --chip")


def test_without_any_layer_the_default_shows(tmp_path):
    found = config.resolve(folder=tmp_path, environ={"MAXKERNEL_CHIP": ""})
    assert {s.origin for s in found.values()} == {"default"}
    assert config.values(found) == {}


@pytest.mark.parametrize("toml, says", [
    ('[tool.maxkernel]\nchp = "v4"', "did you mean 'chip'"),
    ('[tool.maxkernel]\nchip = "v3"', "did you mean"),
    ('[tool.maxkernel]\natol = "much"', "not negative"),
    ("[tool]\nmaxkernel = 3", "must be a table"),
    ("[tool.maxkernel\n", "cannot be read"),
])
def test_a_wrong_pyproject_is_named_with_the_remedy(tmp_path, toml, says):
    (tmp_path / "pyproject.toml").write_text(toml)
    with pytest.raises(UsageError, match=r"pyproject\.toml") as caught:
        config.resolve(folder=tmp_path, environ={})
    assert says in str(caught.value)


def test_a_wrong_environment_variable_is_named(tmp_path):
    with pytest.raises(UsageError, match="environment MAXKERNEL_POLICY got 'never'"):
        config.resolve(folder=tmp_path, environ={"MAXKERNEL_POLICY": "never"})


def test_claudes_settings_go_the_same_way_and_reach_a_run_together(api, cell, monkeypatch, tmp_path):
    monkeypatch.setenv("MAXKERNEL_CLAUDE_ROUNDS", "2")
    monkeypatch.setenv("MAXKERNEL_CLAUDE_MODEL", "claude-haiku-5-5")
    cell("%config MaxKernel.claude_review = 'on'")
    cell("%%maxkernel auto --claude-model claude-opus-5 --policy propose\ndef f(x):\n    return x\n")
    assert api.calls[0]["claude"] == {"model": "claude-opus-5", "rounds": 2, "review": True}
    shown = repr(cell("%maxkernel config"))
    assert "environment MAXKERNEL_CLAUDE_ROUNDS" in shown and "claude_base_url" in shown
    api.live["f-1"].wait_end(30)
    cell("%maxkernel resume f-1 --claude-model claude-fable-5")
    assert api.calls[-1]["claude"] == {"model": "claude-fable-5", "rounds": 2, "review": True}


@pytest.mark.parametrize("setting, says", [
    ("--claude-rounds -1", "whole number"), ("--claude-rounds 1.5", "whole number"),
    ("--claude-review maybe", "pass on or off"), ("--claude-provider azure", "anthropic, vertex, bedrock"),
])
def test_a_wrong_setting_of_claudes_is_one_sentence(api, cell, setting, says):
    with pytest.raises(UsageError, match=says):
        cell(f"%%maxkernel auto {setting}\ndef f(x):\n    return x\n")


def test_percent_config_sets_a_run_and_refuses_a_wrong_value(api, cell):
    cell("%config MaxKernel.chip = 'v5e'")
    cell("%config MaxKernel.chip = 'v5'")  # IPython logs the refusal and keeps the old value
    cell("%%maxkernel auto --policy propose\ndef f(x):\n    return x\n")
    assert api.calls[0]["chip"] == "v5e"
    assert "%config MaxKernel.chip" in repr(cell("%maxkernel config"))
    cell("%config MaxKernel.chip = None")
    assert "default" in repr(cell("%maxkernel config")).splitlines()[1]

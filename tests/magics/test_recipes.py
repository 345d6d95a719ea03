"""%maxkernel recipes and explain: every recipe's answer, and what a run's kernel does."""

from types import SimpleNamespace

import pytest

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.parsing import parse_command_line
from maxkernel_nb.magics.recipes import POINTS, all_recipes, explained, surveyed, tuned


def total(x, w):
    return (x @ w).sum(axis=1)


def ask(text, tmp_path, **names):
    return surveyed(parse_command_line(text), names, str(tmp_path), "v6e")


def test_lists_every_recipe_with_its_limits():
    table = all_recipes()
    assert {"attention", "matmul", "loss", "rows"} < {row[0] for row in table.rows} and table.rows[-1][0] == "parts"
    assert all(limits for *_, limits in table.rows)


def test_answers_for_a_function_with_the_algebra_apart(tmp_path):
    table = ask('recipes total --shapes "x: f32[256,128], w: f32[128,384]"', tmp_path, total=total)
    answers = {row[0]: row[1] for row in table.rows}
    assert answers["parts"] == "serves" and answers["attention"] == "declines"
    assert table.caption.startswith("Algebra first: a sum over the product's columns")


def test_a_wrong_name_is_answered_with_the_nearest(tmp_path):
    with pytest.raises(UsageError, match="did you mean 'total'"):
        ask("recipes totl", tmp_path, total=total)


def test_explain_without_a_run_says_so():
    with pytest.raises(UsageError, match="no run of 'f'"):
        explained("f", [])


class Started:
    """Stands in for the API: keeps what a run was started with."""

    def start(self, function, **options):
        self.function, self.options = function, options
        return self


SETTINGS = {name: SimpleNamespace(value=value) for name, value in (("chip", None), ("policy", "ask"), ("budget", None))}


def test_tune_starts_a_run_of_the_recipes_with_many_points(tmp_path):
    line = parse_command_line('tune total --shapes "x: f32[256,128], w: f32[128,384]" --chip v5e')
    run = tuned(line, {"total": total}, str(tmp_path), Started(), SETTINGS, None)
    assert run.function is total and run.options["author"] == "recipes" and run.options["chip"] == "v5e"
    assert run.options["tuning_points"] == POINTS and run.options["policy"] == "ask"


def test_tune_refuses_to_try_nothing(tmp_path):
    line = parse_command_line("tune total --points 0")
    with pytest.raises(UsageError, match="tries nothing"):
        tuned(line, {"total": total}, str(tmp_path), Started(), SETTINGS, None)

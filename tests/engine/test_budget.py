import pytest

from maxkernel_nb.budget import Budget, parse_budget
from maxkernel_nb.errors import BudgetExceeded, UsageError
from maxkernel_nb.events import Spend


def test_every_kind_of_cap_can_be_written():
    budget = parse_budget("20 candidates, 10m, $2.5, 200k tokens, 60 chip s")
    assert budget == Budget(judged=20, wall_seconds=600, dollars=2.5, tokens=200_000, chip_seconds=60)


def test_what_cannot_be_read_is_named():
    with pytest.raises(UsageError, match="'ten euros'"):
        parse_budget("5m, ten euros")


@pytest.mark.parametrize("spend, word", [
    (Spend(judged=3), "3 candidates judged"),
    (Spend(wall_seconds=60), "60 wall seconds"), (Spend(dollars=1), "1 dollars"),
    (Spend(input_tokens=6, output_tokens=4), "10 tokens"), (Spend(chip_seconds=9), "9 chip seconds"),
])
def test_a_cap_reached_stops_before_the_next_spend_and_says_which(spend, word):
    budget = Budget(judged=3, wall_seconds=60, dollars=1, tokens=10, chip_seconds=9)
    budget.check(Spend())
    with pytest.raises(BudgetExceeded, match=word):
        budget.check(spend)

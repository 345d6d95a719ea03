"""``%%maxkernel search``: what its own options do."""

import pytest
from search_bench import ShuffledEvaluator, ValleyAuthor

from maxkernel_nb.errors import UsageError

BODY = "def f(x):\n    return x\n"


@pytest.fixture
def searched(api, cell):
    """A search that was stopped."""
    api.author, api.evaluator = ValleyAuthor(), ShuffledEvaluator(most_s=0.02)
    run = cell(f"%%maxkernel search --policy propose --strategy beam\n{BODY}")
    run.stop().wait_end(20)
    return run


def test_resume_goes_on_with_the_search_for_the_function_of_the_cell(searched, api, cell):
    judged = searched.state.spend.judged
    again = cell(f'%%maxkernel search --resume {searched.id} --budget "30 candidates"\n{BODY}').wait_end(30)
    call = api.calls[-1]
    assert call["run"] == searched.id == again.id and call["fn"].__name__ == "f"
    assert call["budget"] == "30 candidates" and call["policy"] is None
    assert again.state.spend.judged > judged and again.state.best is not None
    draws = [e.draw for e in again.state.edges]
    assert draws == sorted(set(draws))


def test_resume_of_what_is_no_search_names_the_way(api, cell):
    cell(f"%%maxkernel auto --policy propose\n{BODY}").wait(10)
    with pytest.raises(UsageError, match="Run f-1 is no search but auto; %maxkernel resume f-1"):
        cell(f"%%maxkernel search --resume f-1\n{BODY}")
    with pytest.raises(UsageError, match="f-99"):
        cell(f"%%maxkernel search --resume f-99\n{BODY}")


def test_the_address_of_a_cluster_is_handed_over_and_belongs_to_a_search(api, cell):
    cell(f"%%maxkernel search --policy propose --executor ray --address ray://head:10001\n{BODY}").stop().wait_end(20)
    assert api.calls[-1]["address"] == "ray://head:10001" and api.calls[-1]["executor"] == "ray"
    with pytest.raises(UsageError, match="address"):
        cell(f"%%maxkernel auto --address auto\n{BODY}")

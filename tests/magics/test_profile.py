"""%maxkernel profile on runs of fakes; functions are compiled in tests/tpu."""

import pytest

from maxkernel_nb.engine.loop import close_engine
from maxkernel_nb.errors import UsageError


@pytest.fixture
def ended(api, cell):
    yield cell("%%maxkernel auto --policy accept-verified\ndef f(x):\n    return x\n").wait_end(10)
    close_engine()


def test_the_latest_run_is_shown_beside_its_reference(ended, cell):
    bundle = cell("%maxkernel profile").data
    assert bundle["text/plain"].endswith("best kernel of f-1 is 2.00x faster than XLA reference, modelled.")
    assert "data:image/png" in bundle["text/html"] and "<article" in bundle["text/html"]


def test_two_runs_can_be_compared(ended, cell, api):
    cell("%%maxkernel auto --policy accept-verified\ndef f(x):\n    return x\n").wait_end(10)
    text = repr(cell("%maxkernel profile f-1 --compare f-2"))
    assert "best kernel of f-2 is 1.00x faster than best kernel of f-1" in text


@pytest.mark.parametrize("line, says", [
    ("profile f-11", "no function, run or candidate 'f-11'; did you mean 'f-1'"),
    ("profile f-1 --chip v7", "did you mean 'v7x'"),
    ("profile f-1 --inputs maker", "there is no such name"),
    ("profile f-1 other", "does not expect 'other'"),
])
def test_mistakes_are_one_sentence(ended, cell, line, says):
    with pytest.raises(UsageError) as caught:
        cell(f"%maxkernel {line}")
    assert says in str(caught.value) and "\n" not in str(caught.value)


def test_names_and_options_complete(ended, shell, cell):
    cell("def other(x):\n    return x\n")
    tab = lambda text: shell.complete(None, text, len(text))[1]  # noqa: E731
    assert {"f", "f-1"} <= set(tab("%maxkernel profile f"))
    assert tab("%maxkernel profile f-1 --comp") == ["--compare"]
    assert tab("%maxkernel profile f-1 --compare oth") == ["other"]

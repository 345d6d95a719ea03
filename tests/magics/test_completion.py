"""Tab, as IPython's own completer answers it."""

import pytest


@pytest.fixture
def tab(api, shell):
    return lambda text: shell.complete(None, text, len(text))[1]


@pytest.mark.parametrize("text, offers", [
    ("%%maxkernel ", ["auto", "hitl", "search"]),
    ("%%maxkernel auto --ch", ["--chip"]),
    ("%%maxkernel auto --chip v5", ["v5e", "v5p"]),
    ("%%maxkernel auto --chip v6e --policy ", ["ask", "accept-verified", "propose"]),
    ("%%maxkernel h", ["hitl"]),
    ("%maxkernel unp", ["unpause"]),
    ("%maxkernel help au", ["auto"]),
    ("%maxkernel accept f-1 --c", ["--comment"]),
])
def test_words_that_may_come_next(tab, text, offers):
    assert tab(text) == offers


def test_functions_of_the_notebook_and_runs_of_the_project(tab, cell, tmp_path):
    cell("def make_inputs(key):\n    return key\n")
    assert "make_inputs" in tab("%%maxkernel auto --inputs make")
    (tmp_path / ".maxkernel" / "runs" / "gemm-1").mkdir(parents=True)
    assert tab("%maxkernel show g") == ["gemm-1"]


def test_the_open_questions_choices(tab, cell):
    assert "approve" not in tab("%maxkernel answer ")
    run = cell("%%maxkernel hitl\ndef f(x):\n    return x\n").wait(10)
    assert {"approve", "comment", "edit", "finish", run.id} <= set(tab("%maxkernel answer "))
    assert tab(f"%maxkernel answer {run.id} a") == ["approve"]
    run.stop().wait_end(10)


def test_nothing_is_offered_inside_quotes(tab):
    assert "auto" not in tab('%%maxkernel auto --shapes "x: ')

"""The cell body is plain Python; the function in it is found, with its exact text."""

import re

import pytest

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.failures import Interrupted

F = "def f(x):\n    return '{x} $HOME %s' and x\n"
RUN = "%%maxkernel auto --policy propose"


def start(api, cell, body, options=""):
    cell(f"{RUN} {options}\n{body}")
    return api.calls[-1]


def test_the_reference_exists_afterwards_and_its_text_is_exact(api, cell, shell):
    call = start(api, cell, f"import math\n{F}y = math.pi\n")
    assert call["source"] == F
    assert call["fn"].__name__ == "f"
    assert shell.user_ns["y"] > 3


def test_decorators_belong_to_the_source(api, cell):
    body = "import functools\n@functools.cache\ndef f(x):\n    return x\n"
    assert start(api, cell, body)["source"].startswith("@functools.cache\ndef f")


def test_makers_of_inputs_are_not_candidates(api, cell):
    call = start(api, cell, f"def make(key):\n    return (key,)\n\n{F}", "--inputs make")
    assert call["name"] == "f" and call["inputs"].__name__ == "make"
    assert start(api, cell, f"def create_inputs(key):\n    return (key,)\n\n{F}")["name"] == "f"


def test_an_assigned_callable_is_found_when_there_is_no_def(api, cell):
    call = start(api, cell, "import functools\nf = functools.partial(max, 1)\n")
    assert call["name"] == "f" and call["source"] == "f = functools.partial(max, 1)\n"


def test_name_chooses_among_several_or_from_the_notebook(api, cell):
    assert start(api, cell, f"{F}def g(x):\n    return f(x)\n", "--name f")["source"] == F
    assert start(api, cell, "\n", "--name g")["source"] is None


@pytest.mark.parametrize("body, options, says", [
    ("x = 1\n", "", "defines no function"),
    (f"{F}def g(x):\n    return x\n", "", "several functions (f, g)"),
    (F, "--name ff", "did you mean 'f'"),
    (f"{F}n = 3\n", "--name n", "is 'int', not a function"),
    (F, "--inputs mak_inputs", "no such name in the notebook"),
    (F, "--inputs qui", "no such name in the notebook; did you mean 'f'?"),
    ("\n\ndef f(x:\n", "", "Line 4 of the cell is not valid Python"),
])
def test_a_wrong_cell_is_one_sentence(api, cell, capsys, body, options, says):
    with pytest.raises(UsageError):
        cell(f"{RUN} {options}\n{body}")
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("UsageError: ")
    assert says in lines[0]
    assert api.calls == []


def test_an_error_of_the_cell_shows_the_users_frames_only(api, cell, capsys):
    with pytest.raises(ZeroDivisionError):
        cell(f"{RUN}\n\ndef half(x):\n    return x / 0\nhalf(1)\n")
    shown = re.sub(r"\x1b\[[\d;]*m", "", "".join(capsys.readouterr()))
    assert "maxkernel" not in shown.replace("maxkernel auto", "")
    assert "half(1)" in shown and "x / " in shown


def test_inspect_finds_the_source_of_a_function_in_the_cell(api, cell):
    start(api, cell, F)
    assert cell("import inspect\ninspect.getsource(f.reference if hasattr(f, 'reference') else f)") == F


@pytest.mark.parametrize("body", ["raise KeyboardInterrupt\n", F])
def test_an_interrupt_before_the_run_is_one_sentence(api, cell, capsys, monkeypatch, body):
    def interrupted(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "start", interrupted)
    with pytest.raises(Interrupted):
        cell(f"{RUN}\n{body}")
    lines = "".join(capsys.readouterr()).strip().splitlines()
    assert lines == ["Interrupted: Interrupted before the run began: nothing was started; run the cell again."]

"""What may stand after %maxkernel, and how mistakes are answered."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxkernel_nb.errors import UsageError
from maxkernel_nb.magics.commands import Commands
from maxkernel_nb.magics.parsing import parse_cell_line, parse_command_line
from maxkernel_nb.options import COMMANDS, MODES, OPTIONS

TEXTS = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1).filter(lambda t: t[0] != "-")


def values(option):
    if option.choices:
        return st.sampled_from(option.choices)
    kinds = {float: st.floats(0, 1e6).map(str), int: st.integers(0, 999).map(str), bool: st.sampled_from(["on", "off"])}
    return kinds.get(option.type, TEXTS)


GIVEN = st.fixed_dictionaries({}, optional={o.name: values(o) for o in OPTIONS
                                         if o.name != "static" and "auto" in o.modes})


@given(GIVEN)
def test_every_option_arrives_as_written(given):
    line = " ".join(f"--{name.replace('_', '-')} {shlex.quote(text)}" for name, text in given.items())
    read = parse_cell_line(f"auto {line}").options
    expected = {o.name: _expected(o, given[o.name]) for o in OPTIONS if o.name in given}
    assert read == expected


def _expected(option, text):
    if option.type is bool:
        return text == "on"
    return option.type(text) if option.type in (float, int) else (text,) if option.repeat else text


def test_braces_and_dollars_are_data():
    assert parse_cell_line("auto --shapes 'x: f32[{n}], y: $HOME'").options["shapes"] == "x: f32[{n}], y: $HOME"


@pytest.mark.parametrize("line, says", [
    ("", "A mode is missing"),
    ("atuo", "did you mean 'auto'"),
    ("auto --chp v6e", "did you mean --chip"),
    ("auto --chip v6", "did you mean 'v6e'"),
    ("auto --policy accept", "did you mean 'accept-verified'"),
    ("auto --atol tiny", "a number that is not negative"),
    ("auto --chip", "expected one argument"),
    ("auto --chip v5e --chip v6e", "given 2 times"),
    ("auto --shapes x: f32[8]", "quotes"),
    ('auto --shapes "x', "close the quotes"),
    ("search --strategy bean", "did you mean 'beam'"),
])
def test_a_wrong_cell_line_is_one_sentence_with_the_remedy(line, says):
    with pytest.raises(UsageError) as caught:
        parse_cell_line(line)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line, says", [
    ("lst", "did you mean 'list'"),
    ("auto --chip v6e", "two percent signs"),
    ("list gemm-1", "does not expect 'gemm-1'"),
    ("accept gemm-1 --hunk 2", "did you mean --comment"),
    ("show a b", "does not expect 'b'"),
    ("stop --now", "it takes no options"),
    ("answer", "lacks its CHOICE; usage: %maxkernel answer [RUN] CHOICE"),
    ("answer f-1 edit twice", "does not expect 'edit'"),
    ("ask", 'lacks its "QUESTION"'),
    ("ask why is it slow", "put it in quotes"),
])
def test_a_wrong_command_is_one_sentence_with_the_remedy(line, says):
    with pytest.raises(UsageError) as caught:
        parse_command_line(line)
    assert says in str(caught.value)


def test_bare_numbers_are_hunks_and_the_run_may_be_left_out():
    assert parse_command_line("accept gemm-1 0 2").hunks == (0, 2)
    assert parse_command_line("accept 2").run is None
    assert parse_command_line("accept gemm-1").hunks is None


def test_a_needed_word_comes_last_so_that_the_run_may_be_left_out():
    both = parse_command_line("answer gemm-1 comment --text 'smaller blocks'")
    assert (both.run, both.extra, both.options) == ("gemm-1", "comment", {"text": "smaller blocks"})
    alone = parse_command_line("ask 'What is VMEM?'")
    assert (alone.run, alone.extra) == (None, "What is VMEM?")


def test_repeated_and_listed_options():
    options = parse_cell_line("auto --static 'n, m' --static k --case a --case b").options
    assert options["static"] == ("n", "m", "k")
    assert options["case"] == ("a", "b")


def test_every_command_is_carried_out_and_every_mode_is_named_once():
    assert {c.name for c in COMMANDS} == {name[3:] for name in dir(Commands) if name.startswith("do_")}
    assert len({m.name for m in MODES}) == len(MODES)


def test_a_choice_may_be_written_in_capitals():
    assert parse_cell_line("auto --chip V6E --policy Propose").options == {"chip": "v6e", "policy": "propose"}

"""Prices, keys, kernel texts, tool results, prompts: the parts that need no conversation."""

import json

import pytest
from claude_server import call, fail
from engine_bench import make_task
from hypothesis import given
from hypothesis import strategies as st

from maxkernel_nb.authors import kernel_text
from maxkernel_nb.authors.claude import check, render
from maxkernel_nb.authors.claude.keys import Key, Redactor, find_key
from maxkernel_nb.authors.claude.models import DEFAULT_MODEL, model_table
from maxkernel_nb.authors.claude.prompts import system_text
from maxkernel_nb.authors.claude.roles import ROLES
from maxkernel_nb.authors.claude.settings import settings_from_environment
from maxkernel_nb.authors.claude.tools import tool_schemas
from maxkernel_nb.errors import Declined, UsageError
from maxkernel_nb.events import ModelUsage
from maxkernel_nb.task import Diagnostic, GateName, Outcome, Verdict


def test_every_priced_model_is_one_the_sdk_knows():
    import typing

    from anthropic.types.model import Model

    known = {name for part in typing.get_args(Model) for name in typing.get_args(part)}
    assert {m.name for m in model_table().models} <= known and DEFAULT_MODEL in known


@pytest.mark.parametrize("name", [
    "claude-haiku-4-5-20251001", "anthropic.claude-haiku-4-5", "us.anthropic.claude-haiku-4-5-20251001-v1:0",
    "claude-haiku-4-5@20251001", "claude-haiku-4-5@default",
])
def test_dated_and_cloud_names_find_their_price(name):
    assert model_table().find(name).name == "claude-haiku-4-5"
    assert model_table().find("claude-opus-99") is None


def test_dollars_by_kind_of_token_and_the_step_for_long_prompts():
    opus, haiku = model_table().find("claude-opus-5-5"), model_table().find("claude-haiku-5-5")
    usage = ModelUsage(input_tokens=10**6, cache_read_tokens=10**6, cache_write_tokens=10**6, output_tokens=10**6)
    assert opus.dollars(usage) == pytest.approx(4 + 0.2 + 5 + 20)
    assert haiku.dollars(ModelUsage(input_tokens=100_000)) == pytest.approx(0.01)
    assert haiku.dollars(ModelUsage(input_tokens=100_001)) == pytest.approx(0.05, rel=1e-4)


def test_a_persons_price_table_replaces_ours_and_a_broken_one_is_named(tmp_path):
    own = tmp_path / "prices.json"
    own.write_text(json.dumps({"checked": "today", "source": "me", "models": [
        {"name": "mine", "input": 1, "output": 1, "cache_write": 1, "cache_read": 1}]}))
    assert model_table(own).find("mine").input == 1
    own.write_text("{")
    with pytest.raises(UsageError, match=r"prices\.json cannot be used"):
        model_table(own)


def test_settings_come_from_the_environment_and_a_wrong_one_is_named(monkeypatch):
    monkeypatch.setenv("MAXKERNEL_CLAUDE_MODEL", "claude-sonnet-5-5")
    assert settings_from_environment().model == "claude-sonnet-5-5"
    assert settings_from_environment(model="claude-haiku-5-5").model == "claude-haiku-5-5"
    monkeypatch.setenv("MAXKERNEL_CLAUDE_ROUNDS", "many")
    with pytest.raises(UsageError, match="MAXKERNEL_CLAUDE_ROUNDS cannot be 'many'"):
        settings_from_environment()


def test_model_and_effort_are_chosen_by_sub_agent(monkeypatch):
    monkeypatch.setenv("MAXKERNEL_CLAUDE_MODELS", "tester=claude-haiku-5-5, planner = claude-fable-5")
    monkeypatch.setenv("MAXKERNEL_CLAUDE_EFFORTS", "planner=max")
    found = settings_from_environment()
    assert [found.model_for(r) for r in ("planner", "tester", "tuner")] == [
        "claude-fable-5", "claude-haiku-5-5", DEFAULT_MODEL]
    assert found.efforts == {"planner": "max"}
    for wrong in ("planer=max", "planner", "planner=hardest"):
        with pytest.raises(UsageError, match="CLAUDE_EFFORTS"):
            settings_from_environment(efforts=wrong)


def test_every_setting_a_person_may_need_is_in_the_one_table():
    """What is left out are the limits of the connection, for which there are arguments from Python."""
    from maxkernel_nb.authors.claude.settings import SUB_AGENTS, ClaudeSettings
    from maxkernel_nb.options import CLAUDE

    fields = set(ClaudeSettings.model_fields)
    assert {o.field for o in CLAUDE} == fields - {"max_tokens", "retries", "first_wait_s", "max_wait_s", "timeout_s"}
    defaults = ClaudeSettings()
    for option in CLAUDE:
        shown, value = option.default_text, getattr(defaults, option.field)
        assert not isinstance(value, bool | int) or shown in (str(value), {True: "on", False: "off"}.get(value))
    assert next(o for o in CLAUDE if o.name == "claude_model").default_text == defaults.model
    assert set(SUB_AGENTS) == {r.name for r in ROLES}


def test_a_key_is_found_in_the_environment_and_in_colab(monkeypatch):
    import sys
    import types

    assert find_key() is None
    colab = types.ModuleType("google.colab")
    colab.userdata = types.SimpleNamespace(
        get=lambda name: " secret-from-colab ", SecretNotFoundError=KeyError, NotebookAccessError=OSError)
    monkeypatch.setitem(sys.modules, "google", types.ModuleType("google"))
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    assert find_key().origin == "Colab's secrets" and find_key().reveal() == "secret-from-colab"
    monkeypatch.setenv("ANTHROPIC_API_KEY", "from-the-environment")
    assert find_key().reveal() == "from-the-environment"


@given(before=st.text(), after=st.text())
def test_redaction_leaves_no_trace_of_a_secret(before, after):
    secret = "s3cret/value+1"
    assert secret not in Redactor(Key(secret, "t"))(before + secret + after)
    assert secret not in str(Redactor(Key(secret, "t")).data({secret: [before, {"a": secret + after}]}))


def test_no_author_is_chosen_that_needs_a_key_when_there_is_none():
    from maxkernel_nb.authors.choose import choose_author
    from maxkernel_nb.authors.model_errors import NoKey

    with pytest.raises(UsageError, match="recipes, claude, both"):
        choose_author("gpt")
    with pytest.raises(NoKey):
        choose_author("claude")


def test_a_worker_that_runs_candidates_never_has_the_key(monkeypatch, tmp_path):
    from maxkernel_nb.evaluate.executor import WorkerKind
    from maxkernel_nb.evaluate.process import environment

    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-planted-for-workers")
    for kind in WorkerKind:
        assert "sk-ant-planted-for-workers" not in str(dict(environment(kind, tmp_path)))


# -- kernel texts ------------------------------------------------------------------------------------------------------

TUNABLE = "BLOCK_M = 128  # tune: 64, 128, 256\nN = 3\nB = 7 # tune: 7\n\n\ndef f(x):\n    return x\n"


def test_tunable_constants_are_read_from_the_text_and_set_in_it():
    assert kernel_text.tunables(TUNABLE) == {"BLOCK_M": 128, "B": 7}
    assert kernel_text.space_in(TUNABLE).axes == {"BLOCK_M": (64, 128, 256)}
    changed = kernel_text.set_constants(TUNABLE, {"BLOCK_M": 256})
    assert changed == TUNABLE.replace("= 128 ", "= 256 ")
    with pytest.raises(Declined, match="'N'"):
        kernel_text.set_constants(TUNABLE, {"N": 4})


@pytest.mark.parametrize("source, why", [
    ("def f(x:\n", "not Python"), ("x = 1\n", "defines none"), ("def f(a):\n    return a\n", "must take"),
    ("def f():\n    pass\n", "must take"), ("\0", "not Python"),
])
def test_a_text_that_cannot_be_judged_says_why(source, why):
    with pytest.raises(kernel_text.NotAKernel, match=why):
        kernel_text.check_kernel_text(make_task(), source)


def test_static_arguments_must_be_taken_too():
    task = make_task(static={"heads": 4})
    with pytest.raises(kernel_text.NotAKernel, match="must also take heads"):
        kernel_text.check_kernel_text(task, "def f(x):\n    return x\n")
    kernel_text.check_kernel_text(task, "def f(x, *, heads):\n    return x\n")


def test_a_fence_around_a_kernel_is_taken_off():
    made = kernel_text.make_candidate(make_task(), "```python\ndef f(x):\n    return x\n```", "claude")
    assert made.source == "def f(x):\n    return x\n"


# -- what a model reads ------------------------------------------------------------------------------------------------


def test_a_long_list_of_findings_is_capped_between_findings():
    long = "\n".join(f"line {n} of the message" for n in range(100))
    found = tuple(Diagnostic(kind=f"kind-{n}", message=long, line=n + 1, advice="do this") for n in range(9))
    text = render.verdicts_text((Verdict(gate=GateName.COMPILE, outcome=Outcome.FAIL, summary="refused",
                                         diagnostics=found),))
    assert text.count("advice: do this") == 5 and "and 4 more findings" in text
    assert "88 lines left out" in text and "line 99 of the message" in text
    assert all(line in long.splitlines() or not line.startswith("line ") for line in text.splitlines())


@given(st.integers(1, 60), st.integers(1, 40))
def test_whole_lines_never_cuts_a_line_and_keeps_both_ends(lines, limit):
    text = "\n".join(f"<{n}>" for n in range(lines))
    kept = render.whole_lines(text, limit).splitlines()
    assert kept[0] == "<0>" and len(kept) <= max(limit + 1, 1)
    assert all(k in text.splitlines() or "left out" in k for k in kept)


def test_a_profile_says_its_bottleneck_and_what_to_try():
    from maxkernel_nb.tpu.profiles import OpProfile, ScheduleProfile

    op = OpProfile(name="kernel", kind="custom-call", modelled_ms=2.0, compute_ms=0.5, memory_ms=2.0, bound_by="hbm")
    text = render.profile_text(ScheduleProfile(chip="v6e", modelled_ms=2.0, flops=1e9, hbm_bytes=1e9, roofline_ms=0.6,
                                               bound_by="hbm", ops=(op,), notes=("counted conservatively",)))
    assert "kernel (custom-call): 2 ms" in text and "To try: move fewer bytes" in text
    assert "counted conservatively" in text and len(text.splitlines()) <= 12


def test_the_tool_list_in_the_prompt_is_the_registrys():
    system = system_text()
    names = [t["name"] for t in tool_schemas()]
    assert len(names) == len(set(names)) and all(f"- {name}: " in system for name in names)
    assert {r.submit for r in ROLES} <= set(names)
    assert system_text() == system and json.dumps(tool_schemas()) == json.dumps(tool_schemas())


def test_a_template_with_a_missing_value_is_an_error_not_an_empty_place():
    import jinja2

    with pytest.raises(jinja2.UndefinedError):
        ROLES[0].prompt(remarks="")


def test_template_marks_in_a_persons_text_stay_text():
    prompt = ROLES[0].prompt(remarks="{{ 7 * 7 }} {% raw %}", previous="", attempts="none", lessons="none")
    assert "{{ 7 * 7 }} {% raw %}" in prompt


# -- the command that tells whether everything works -------------------------------------------------------------------


def run_check(server, monkeypatch, key="sk-ant-test-check-key-0001"):
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    lines = []
    return check.main(lines.append), "".join(lines)


def test_the_check_says_what_works_and_what_a_run_would_cost(serve, monkeypatch):
    server = serve(lambda body: call("submit_answer", text="ready"), key="sk-ant-test-check-key-0001")
    code, said = run_check(server, monkeypatch)
    assert code == 0 and "environment variable" in said and "a run of 5 rounds: about $" in said
    assert "sk-ant" not in said and len(server.requests) == 1


def test_the_check_names_the_fault(serve, monkeypatch):
    code, said = run_check(serve(lambda body: fail(401), key="another"), monkeypatch)
    assert code == 1 and "refused the API key" in said


def test_the_check_without_a_key_or_a_network_says_so_and_leaks_nothing(serve, monkeypatch):
    lines = []
    assert check.main(lines.append) == 1 and "There is no Claude API key" in "".join(lines)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-test-check-key-0001")
    assert check.main(lines.append) == 1
    said = "".join(lines)
    assert "no connection to Claude" in said and "sk-ant" not in said
    monkeypatch.setenv("MAXKERNEL_CLAUDE_ROUNDS", "many")
    assert check.main(lines.append) == 2 and "MAXKERNEL_CLAUDE_ROUNDS" in lines[-1]

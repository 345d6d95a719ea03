"""The one table of modes, options and commands. Plain dataclasses, so that loading the extension stays cheap.

Argument parsing, ``?`` help, completion, the settings of ``config.py`` and the README's option table are all made
from it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.tpu.chips import CHIPS


@dataclass(frozen=True)
class Mode:
    """How a run is driven. ``available`` is False for a mode that is named in the design but not built yet."""

    name: str
    summary: str
    available: bool = True


@dataclass(frozen=True)
class Option:
    """One option of ``%%maxkernel``. ``name`` is the keyword of ``maxkernel_nb.optimize`` and the trait's name.

    ``setting``: it may also come from pyproject.toml, the environment or ``%config``. ``names_variable``: its value is
    a name in the notebook. ``metavar`` empty: it takes no value. ``default`` None with ``default_text`` is a default
    that is only known when a run starts.
    ``group``: those of one group are handed over together, as one keyword of ``optimize`` that takes a dict.
    """

    name: str
    metavar: str
    help: str
    type: type = str
    default: Any = None
    default_text: str = ""
    choices: tuple[str, ...] = ()
    repeat: bool = False
    setting: bool = False
    names_variable: bool = False
    keyword: str = ""
    group: str = ""
    modes: tuple[str, ...] = ("auto", "hitl", "search")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def api_keyword(self) -> str:
        return self.keyword or self.name

    @property
    def field(self) -> str:
        """Its name within its group."""
        return self.name.removeprefix(f"{self.group}_")


@dataclass(frozen=True)
class Command:
    """One ``%maxkernel`` command. ``run``: it takes a run id (default: the latest run)."""

    name: str
    help: str
    run: bool = False
    hunks: bool = False
    extra: str = ""  # metavar of one more word
    needs_extra: bool = False  # it may not be left out; a single word is then it, not a run
    options: tuple[Option, ...] = ()
    words: str = ""  # metavar of words and options that the command reads itself
    offers: tuple[str, ...] = ()  # what its first word may be

    @property
    def usage(self) -> str:
        words = [self.name, *([self.words] if self.words else [])]
        words += ["[RUN]"] if self.run else []
        words += ["[HUNK ...]"] if self.hunks else []
        words += [self.extra if self.needs_extra else f"[{self.extra}]"] if self.extra else []
        words += [f"[{f'{o.flag} {o.metavar}'.strip()}]" for o in self.options]
        return " ".join(words)


MODES = (
    Mode("auto", "plan, write, check, compile, tune, then propose the best kernel"),
    Mode("hitl", "do the same step by step, asking you before each one"),
    Mode("search", "explore a graph of kernels within a budget, then propose the best one"),
)

POLICIES = ("ask", "accept-verified", "propose")
EXECUTORS = ("local", "ray")
REPORT_FORMS = ("html", "md", "png", "ipynb")
STRATEGIES = ("auto", "parallel", "beam", "evolve", "bandit")

OPTIONS: tuple[Option, ...] = (
    Option("chip", "CHIP", "the TPU to compile and model for", choices=tuple(CHIPS), setting=True,
           default_text="the chip present, else v6e"),
    Option("inputs", "NAME", "a function in the notebook that returns the inputs (drawn per seed when it takes a key), "
           "or a tuple or dict of arrays", names_variable=True,
           default_text="variables bearing the parameters' names"),
    Option("shapes", "TEXT", 'shapes instead of arrays: "x: bf16[4096,8192], w: bf16[8192,8192]"'),
    Option("static", "NAMES", "parameters that are fixed values, not arrays; separated by commas", repeat=True),
    Option("name", "NAME", "which function of the cell to optimize, when it defines several", names_variable=True,
           default_text="the cell's only function"),
    Option("case", "TEXT", 'one more shape case to verify, written like --shapes; may be given again', repeat=True,
           keyword="cases"),
    Option("budget", "TEXT", 'caps: "20 candidates, 10m, $2, 200k tokens"', setting=True,
           default_text="40 candidates, 30m, $5"),
    Option("policy", "POLICY", "who decides on a proposal: you (ask), a complete verification (accept-verified), or "
           "nobody yet (propose: it stays open)", choices=POLICIES, setting=True,
           default_text="ask; propose in batch runs"),
    Option("author", "AUTHOR", "who writes kernels: the embedded recipes (no key, no cost), Claude, or both",
           choices=("recipes", "claude", "both"), setting=True,
           default_text="both with a key for Claude, else recipes"),
    Option("strategy", "STRATEGY", "how a search explores: independent climbers, a beam, islands with an archive, or a "
           "bandit with a cost model", choices=STRATEGIES, setting=True, default_text="auto: by the budget",
           modes=("search",)),
    Option("executor", "EXECUTOR", "where a search's gates run: worker processes of this machine, or a Ray cluster's "
           "([ray] extra)", choices=EXECUTORS, setting=True, default_text="local", modes=("search",)),
    Option("address", "ADDRESS", "the Ray cluster of --executor ray: auto, or its address", setting=True,
           default_text="RAY_ADDRESS, else auto", modes=("search",)),
    Option("resume", "RUN", "go on with this search, for the cell's function, instead of beginning another one; what "
           "is recorded is not repeated, and only --policy, --budget and --address may be new", modes=("search",)),
    Option("atol", "NUMBER", "your own absolute tolerance; shown as loosened", type=float, setting=True,
           default_text="from the reference's own error"),
    Option("rtol", "NUMBER", "your own relative tolerance; shown as loosened", type=float, setting=True,
           default_text="from the reference's own error"),
    Option("gradient", "ON/OFF", "the kernel must have the function's gradient too, by a jax.custom_vjp", type=bool,
           setting=True, default_text="off"),
    Option("project", "FOLDER", "the folder that holds .maxkernel", setting=True,
           default_text="the working folder"),
)

_AGENTS = "planner, implementer, debugger, tester, tuner, profiler, reviewer, explainer"


def _claude(name: str, metavar: str, text: str, default: str, **more: Any) -> Option:
    return Option(name, metavar, text, default_text=default, setting=True, group="claude", **more)


CLAUDE: tuple[Option, ...] = (
    _claude("claude_model", "MODEL", "the model of every sub-agent", "claude-opus-5-5"),
    _claude("claude_models", "TEXT", f'another model for some: "tester=claude-haiku-5-5"; sub-agents are {_AGENTS}',
            "the same for all, so that they share one prompt cache"),
    _claude("claude_efforts", "TEXT", 'how hard some think: "planner=max, tester=low" (low, medium, high, xhigh, max)',
            "high for all; another effort has a prompt cache of its own"),
    _claude("claude_rounds", "NUMBER", "rounds of looking for a faster kernel after the first", "4", type=int),
    _claude("claude_patience", "NUMBER", "rounds without a faster kernel after which the search has levelled off", "2",
            type=int),
    _claude("claude_review", "ON/OFF", "have each kernel read for risks before it is judged, in auto too", "off",
            type=bool),
    _claude("claude_stress", "ON/OFF", "have the tester think of unusual inputs once a run, which a kernel must pass",
            "on", type=bool),
    _claude("claude_provider", "NAME", "where Claude is reached", "anthropic",
            choices=("anthropic", "vertex", "bedrock")),
    _claude("claude_base_url", "URL", "anything else that speaks the Messages API", "ANTHROPIC_BASE_URL"),
    _claude("claude_region", "NAME", "the region for vertex or bedrock", "vertex: global; bedrock: AWS's own setting"),
    _claude("claude_project", "NAME", "the Google Cloud project for vertex", "Google Cloud's own setting"),
    _claude("claude_prices", "FILE", "your own price table, in the form of maxkernel_nb/authors/claude/models.json",
            "the shipped one"),
    _claude("share_lessons", "ON/OFF", "keep what was learned in the project, for its later runs", "off", type=bool),
)
OPTIONS += CLAUDE

_COMMENT = Option("comment", "TEXT", "a remark kept with the decision")
_TEXT = Option("text", "TEXT", "what you write with the answer: what to change, a question, a whole plan or kernel")
_FILE = Option("file", "FILE", "read that text from a file instead")
_TIMEOUT = Option("timeout", "SECONDS", "stop waiting after this long; the run goes on", type=float)

COMMANDS = (
    Command("list", "the runs of this project"),
    Command("show", "a run's panel, live or as it ended", run=True),
    Command("freeze", "replace a run's live panel by the report that stays readable without a kernel", run=True),
    Command("accept", "accept the open proposal, or only some of its hunks; to an open question: its default answer",
            run=True, hunks=True, options=(_COMMENT,)),
    Command("reject", "reject the open proposal, and the reference stays exactly as it was; to an open question: no",
            run=True, options=(_COMMENT,)),
    Command("answer", "give the open question of a hitl run one of its choices", run=True, extra="CHOICE",
            needs_extra=True, options=(_TEXT, _FILE)),
    Command("ask", "ask about the work at any time; the answer appears in the panel, the run goes on", run=True,
            extra='"QUESTION"', needs_extra=True),
    Command("takeback", "a hitl run handed over to auto asks you again after its round in flight; a run of another "
            "mode goes on step by step, asking you, from what it found", run=True),
    Command("undo", "take back the last accepted proposal", run=True),
    Command("stop", "stop a run and keep what it found", run=True),
    Command("pause", "pause a run after the step in flight", run=True),
    Command("unpause", "let a paused run go on", run=True),
    Command("wait", "block until a run ends or needs a decision", run=True, options=(_TIMEOUT,)),
    Command("resume", "continue a run that a restarted kernel left; finished steps are not repeated", run=True,
            options=tuple(o for o in OPTIONS if o.name in ("budget", "policy", "claude_model"))),
    Command("profile", "what bounds a function, a run or a candidate on a TPU, modelled without one: units, copies, "
            "VMEM, roofline (default: the latest run)", extra="NAME", options=(
                *(o for o in OPTIONS if o.name in ("chip", "shapes", "inputs", "static")),
                Option("compare", "NAME", "another function, run or candidate to put beside it", names_variable=True))),
    Command("recipes", "the embedded engine's recipes; with a function of the notebook, what each would do for it or "
            "why it declines", extra="NAME", options=(
                *(o for o in OPTIONS if o.name in ("chip", "shapes", "inputs", "static")),)),
    Command("tune", "have the embedded recipes write a function's kernel and try many more of its constants than a "
            "cell does (default: 24 points)", extra="NAME", needs_extra=True, options=(
                Option("points", "NUMBER", "how many points to compile and model", type=int),
                *(o for o in OPTIONS if o.name in ("chip", "shapes", "inputs", "static", "policy", "budget")))),
    Command("explain", "what a run's best kernel does: its blocks, their arithmetic intensity, the bound and what "
            "holds it back (default: the latest run)", extra="NAME"),
    Command("graph", "a search's graph: its picture and the fastest kernels, or one kernel in full", run=True,
            options=(Option("node", "NODE", "show this kernel: verdicts, profile, diff to its parents"),)),
    Command("continue", "go on with a search from one of its kernels, or from your own edit of it", run=True, options=(
        Option("from", "NODE", "the kernel to build on"),
        Option("file", "FILE", "your own edit of it: judged first, then built on"),
        *(o for o in OPTIONS if o.name in ("budget", "policy")),
    )),
    Command("report", "write a run's report as one file to share: a page, Markdown, a picture of its charts, or a "
            "notebook (by option, else by FILE's ending, else a page)", run=True, extra="FILE",
            options=tuple(Option(form, "", f"write it as {form}", type=bool) for form in REPORT_FORMS)),
    Command("cost", "tokens, money, chip seconds and time spent, with their caps; model calls by sub-agent and round",
            run=True),
    Command("bench", "the benchmark's 50 tasks with live progress: list, show, run, evaluate, optimize, report, admit",
            words="COMMAND ...", offers=("list", "show", "run", "evaluate", "optimize", "report", "admit")),
    Command("config", "every setting, its value and where it came from"),
    Command("doctor", "check what this machine can do, and say what to install"),
    Command("takechip", "give this notebook the TPU that a worker holds, so that its own jax computes there; arrays "
            "made on the CPU before must be made again"),
    Command("version", "versions of maxkernel, jax and the TPU compiler"),
    Command("help", "this list, or the help of one mode or command", extra="TOPIC"),
)

SETTINGS = tuple(option for option in OPTIONS if option.setting)


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word most like ``word``."""
    known = list(known)
    return (difflib.get_close_matches(word, known, n=1, cutoff=0.0) or known)[0]


def mode(name: str) -> Mode | None:
    return next((m for m in MODES if m.name == name), None)


def command(name: str) -> Command | None:
    return next((c for c in COMMANDS if c.name == name), None)


def options_of(mode_name: str) -> tuple[Option, ...]:
    return tuple(o for o in OPTIONS if mode_name in o.modes)

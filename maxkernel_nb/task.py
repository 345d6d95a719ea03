"""What is to be made fast: the task, its cases, and what comes back about a candidate."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from maxkernel_nb.values import Value, content_hash


class CaseRole(StrEnum):
    """Why a case exists. ``TIMING`` is the user's full shape; it is compiled and modelled, not interpreted."""

    TIMING = "timing"
    CHECK = "check"
    RAGGED = "ragged"  # a candidate may decline it; the bound function then falls back to the reference


class Draw(Value):
    """How one argument's values are drawn from a seed.

    ``normal``: ``mean + std * N(0, 1)``; ``integers``: uniform in ``[low, high)``; ``bernoulli``: True with
    probability ``mean``; ``constant``: every element is ``mean``. Integers that fit together: ``permutation`` of
    ``0..n-1``; ``sorted`` from ``low`` to ``high - 1``, both there; ``partition``: none negative, summing to ``high``;
    ``pages``: a page table's, in ``[low, high)`` and none twice (none twice in a row, where there are too few).
    """

    kind: Literal[
        "normal", "integers", "bernoulli", "constant", "permutation", "sorted", "partition", "pages"
    ] = "normal"
    mean: float = 0.0
    std: float = 1.0
    low: int = 0
    high: int = 1


class Tree(Value):
    """How one parameter holds arrays: an ``array`` by name, a fixed ``value``, or a dict, list or tuple of trees."""

    kind: Literal["array", "value", "dict", "list", "tuple"]
    name: str = ""
    value: bool | int | float | str | None = None
    items: tuple[tuple[str, Tree], ...] = ()  # key, or position as text


class Parameter(Value):
    """A parameter of the function and what it is given."""

    name: str
    tree: Tree


class ArgSpec(Value):
    """One array argument: its parameter's name, shape (elements), numpy-style dtype name, and its draw. Inside a tree
    the name is the way to it: ``params.layers.0.w``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    draw: Draw = Draw()


class Case(Value):
    """One set of input shapes and values. ``args`` are in the order of the function's parameters.

    ``maker``: a packed program that makes all arguments from a key, where they must fit together (``tasks.makers``);
    the arguments' own draws then count for nothing.
    """

    name: str
    role: CaseRole
    args: tuple[ArgSpec, ...]
    maker: str = Field(default="", repr=False)

    @property
    def shapes(self) -> str:
        return ", ".join(f"{a.name}: {a.dtype}{list(a.shape)}" for a in self.args)


class Tolerance(Value):
    """``|candidate - oracle| <= max(factor * error of the reference, floor of the output dtype)``.

    ``atol``/``rtol`` are a person's own limits; when present they can only loosen and are shown as loosened.
    """

    factor: float = 4.0
    atol: float | None = None
    rtol: float | None = None

    @property
    def loosened(self) -> bool:
        return self.atol is not None or self.rtol is not None


class RowsReference(Value):
    """Digests of the reference at full size, for one run of it there on a CPU: its own dtypes, and the oracle.

    ``args``: numbers of the arguments that are cut to ``rows`` of their rows, picked anew in each run, where the
    reference's rows do not depend on each other (asked of it, not assumed); empty: the whole reference. ``work``:
    operations.
    """

    args: tuple[int, ...] = ()
    rows: int = 0
    own: str = ""
    oracle: str = ""
    oracle_dtype: Literal["float64", "float32"] = "float64"
    work: float = 0.0


class ReferenceArtefacts(Value):
    """Digests (object store) of the exported reference for one case.

    ``own``: its own dtypes, platform cpu. ``oracle``: every float widened to float64, platform cpu.
    ``device``: its own dtypes, platform tpu. Empty string: that export was not possible or not needed.
    Timing cases carry ``device`` only. ``work``: operations in the reference, counted on its
    jaxpr (0: not known). ``shortcuts``: for the first check case, exports (as ``own``) of the reference with one of its
    last steps left out, by name.
    """

    case: str
    own: str = ""
    oracle: str = ""
    device: str = ""
    oracle_dtype: Literal["float64", "float32"] = "float64"
    note: str = ""
    work: float = 0.0
    shortcuts: dict[str, str] = Field(default_factory=dict)
    parts: tuple[RowsReference, ...] = ()  # of the timing case: ways to have the reference there on a CPU, best first


class KernelTask(Value):
    """A frozen task: everything a run needs except the live Python function, which stays in the notebook.

    ``source`` is the reference's source text, ``entry`` its name, ``params`` a Python name for each of its arrays in
    order, ``static`` its fixed keyword arguments (JSON values). ``trees``: what each parameter is given, where one is
    a dict, list or tuple of arrays; empty where every parameter is an array. ``returns``: the dict, list or tuple that
    holds the results; None: one array, or another container.
    """

    name: str
    source: str
    entry: str
    params: tuple[str, ...]
    static: dict[str, Any] = Field(default_factory=dict)
    cases: tuple[Case, ...]
    references: tuple[ReferenceArtefacts, ...] = ()
    tolerance: Tolerance = Tolerance()
    seeds: tuple[int, ...] = (0, 1, 2)
    chip: str = "v6e"
    weak: tuple[str, ...] = ()  # cheap wrong answers that would pass this task's tolerance
    gradient: bool = False  # the kernel must have the reference's gradient too
    differentiated: str = ""  # the call in the notebook that does: a gradient that a kernel has must be right
    trees: tuple[Parameter, ...] = ()
    returns: Tree | None = None
    salt: str = ""  # of one run, drawn when it starts: what is checked cannot be known before

    @property
    def parameters(self) -> tuple[str, ...]:
        """The function's parameters that hold arrays, as a person wrote them."""
        return tuple(p.name for p in self.trees) or self.params

    def draws(self, seed: int) -> int:
        """What ``seed`` stands for in this task: every input is drawn from this number."""
        return int(content_hash([self.salt, seed])[:8], 16) >> 1 if self.salt else seed

    @property
    def timing_case(self) -> Case:
        return next(c for c in self.cases if c.role is CaseRole.TIMING)

    @property
    def check_cases(self) -> tuple[Case, ...]:
        return tuple(c for c in self.cases if c.role is not CaseRole.TIMING)

    def on_check_cases_only(self) -> KernelTask:
        """The same task, its kernels not run at full size by the check."""
        parts = (r.model_copy(update={"parts": ()}) for r in self.references)
        return self.model_copy(update={"references": tuple(parts)})

    def reference(self, case: str) -> ReferenceArtefacts:
        return next(r for r in self.references if r.case == case)


class Plan(Value):
    """How a kernel is to be fast. ``attacks`` names the bound, ``expected_gain`` is a modelled ratio or None."""

    strategy: str
    summary: str  # Markdown, a paragraph or two
    attacks: str = ""
    tiling: dict[str, int] = Field(default_factory=dict)
    grid: str = ""
    memory: str = ""
    pipelining: str = ""
    expected_gain: float | None = None
    expected_gain_source: str = ""
    recipe: str = ""
    spec: dict[str, Any] = Field(default_factory=dict)  # the recogniser's findings, private to the author


class Candidate(Value):
    """A complete Python module whose function ``entry`` has the reference's signature. Identified by its text."""

    source: str
    entry: str
    author: str
    parent: str | None = None
    params: dict[str, int] = Field(default_factory=dict)  # tunable constants, as rendered in the source
    bound_ms: float | None = None  # a-priori lower bound of these constants on the timing case, by the author
    note: str = ""

    @property
    def id(self) -> str:
        return content_hash(self.source + "\0" + self.entry)[:12]


class GateName(StrEnum):
    SCREEN = "screen"
    TRACE = "trace"
    CHECK = "check"
    GRADIENT = "gradient"  # only where the task asks for it
    COMPILE = "compile"
    MODEL = "model"
    CHIP = "chip"


class Outcome(StrEnum):
    PASS = "pass"
    FAIL = "fail"
    DECLINED = "declined"
    INFRASTRUCTURE = "infrastructure"


class Diagnostic(Value):
    """One finding: what kind, where in the source (1-based line, 0 unknown), why, and what to try."""

    kind: str
    message: str
    line: int = 0
    advice: str = ""


class Verdict(Value):
    """What one gate says. ``numbers`` carry their unit in the name (``modelled_ms``, ``worst_error_ratio``)."""

    gate: GateName
    outcome: Outcome
    summary: str  # one sentence for a person
    case: str = ""
    seed: int | None = None
    variant: str = ""  # "" drawn inputs; else an edge: "zeros", "large", "two cores" ...
    numbers: dict[str, float] = Field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    artefacts: dict[str, str] = Field(default_factory=dict)  # role -> object digest
    evidence: Literal["measured", "modelled", ""] = ""
    seconds: float = 0.0


class Assessment(Value):
    """All verdicts on one candidate, in gate order. The only source of 'accepted' and of its time."""

    candidate: str
    verdicts: tuple[Verdict, ...]
    complete: bool = True  # False: stopped early (a failed gate) or gates missing (no libtpu)

    @property
    def failed(self) -> tuple[Verdict, ...]:
        return tuple(v for v in self.verdicts if v.outcome is Outcome.FAIL)

    @property
    def correct(self) -> bool:
        """Every check was made and passed (a ragged case may be declined) on at least three shape cases. A case
        declined on any drawn input does not count as passed.
        """
        checks = [v for v in self.verdicts if v.gate is GateName.CHECK]
        passed = {v.case for v in checks if v.outcome is Outcome.PASS and not v.variant}
        unmade = [v for v in checks if v.outcome is Outcome.INFRASTRUCTURE]
        declined = {v.case for v in checks if v.outcome is Outcome.DECLINED and not v.variant}
        return not self.failed and not unmade and len(passed - declined) >= 3

    @property
    def unjudged(self) -> str:
        """Why nothing is known of the candidate, where our own machinery failed and no gate refused it; else empty."""
        ours = (v.summary for v in self.verdicts if v.outcome is Outcome.INFRASTRUCTURE)
        return "" if self.failed or self.correct else next(ours, "")

    @property
    def measured(self) -> Verdict | None:
        """The chip's verdict with a time in it. A rehearsal on another device, which its variant tells, is none."""
        for v in self.verdicts:
            if v.gate is GateName.CHIP and v.outcome is Outcome.PASS and not v.variant and "measured_ms" in v.numbers:
                return v
        return None

    @property
    def chip_seconds(self) -> float:
        return sum(v.numbers.get("chip_s", 0.0) for v in self.verdicts if v.gate is GateName.CHIP)

    @property
    def modelled_ms(self) -> float | None:
        for v in self.verdicts:
            if v.gate is GateName.MODEL and v.outcome is Outcome.PASS:
                return v.numbers.get("modelled_ms")
        return None

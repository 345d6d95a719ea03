"""Which cheap wrong answers would a task accept? Under the original rule, and under ours.

The original rule: the published inputs, one seed, every element within 0.01 + 0.01 * |answer| of the reference's
bfloat16 result. Ours: our own inputs from several seeds and two edge cases (all floats zero; all 64 times as large),
and the evaluator's comparison (the error against a float64 oracle may be a few times the reference's own). Both at
smoke size; the published weights are rescaled so that pre-activations keep the published spread.

Two honest answers are judged as well: the reference evaluated step by step, and with float32 intermediates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbench.registry import BenchTask, published_inputs
from maxkernel_nb.compat import enable_x64
from maxkernel_nb.errors import UsageError
from maxkernel_nb.evaluate.numerics import compare
from maxkernel_nb.task import Tolerance
from maxkernel_nb.tasks import shortcuts
from maxkernel_nb.tasks.oracle import oracle
from maxkernel_nb.tasks.shortcuts import Answer, Answers
from maxkernel_nb.values import Value

LIMIT = 1e-2  # the original's atol and rtol
SEEDS = (0, 1)
EDGES = (0.0, 64.0)
OTHER_SEED = 7919
Rule = Callable[[Answer], bool]


class Admission(Value):
    """Names of the wrong answers each rule lets pass, and of the honest ones it refuses.

    ``explained``: answers that pass under ours for a stated reason (an input or a step that cannot matter here). The
    task is admitted when nothing else passes and nothing honest is refused.
    """

    task: str
    tried: int
    original_passes: tuple[str, ...]
    original_refuses: tuple[str, ...]
    passes: tuple[str, ...]
    refuses: tuple[str, ...]
    explained: dict[str, str]

    @property
    def admitted(self) -> bool:
        return not self.passes and not self.refuses

    def describe(self) -> str:
        """A few lines for a person."""
        told = [f"{self.task}: {'admitted' if self.admitted else 'NOT admitted'}, {self.tried} wrong answers tried"]
        listed = (
            ("original rule accepts", self.original_passes),
            ("original rule refuses the honest", self.original_refuses),
            ("ours accepts", self.passes),
            ("ours refuses the honest", self.refuses),
        )
        told += [f"  {what}: {', '.join(names)}" for what, names in listed if names]
        told += [f"  accepted for a reason: {name} ({why})" for name, why in self.explained.items()]
        return "\n".join(told)


class Subject:
    """A task's reference at smoke size: compiled, as a jaxpr, and as its float64 oracle (each built once)."""

    def __init__(self, bench: BenchTask) -> None:
        self.bench = bench
        # As the judge runs references: fused on a CPU, XLA would skip the roundings to bfloat16 that they ask for.
        self.run = jax.jit(bench.function("smoke"), compiler_options={"xla_allow_excess_precision": False})
        self.closed = jax.make_jaxpr(bench.function("smoke"))(*bench.abstract_inputs("smoke"))
        self._oracle = jax.jit(oracle(self.closed))

    def exact(self, arrays: Any) -> Answer:
        with enable_x64(True):
            return np.asarray(self._oracle(*arrays)[0])

    def draw(self, seed: int) -> tuple[jax.Array, ...]:
        return self.bench.create_inputs(jax.random.key(seed), size="smoke")


class Trial:
    """One set of inputs: the reference's result on it, its wrong answers and its honest ones."""

    def __init__(self, subject: Subject, arrays: Any, others: Any) -> None:
        self.subject, self.run, self.arrays, self.others = subject, subject.run, arrays, others
        self.result = np.asarray(self.run(*arrays))
        self.steps = shortcuts.Steps(subject.closed, subject.bench.params, arrays)

    def wrong(self) -> Answers:
        answers = shortcuts.without_computing(self.result, lambda: np.asarray(self.run(*self.others)))
        answers |= shortcuts.without_an_input(self.run, self.subject.bench.params, self.arrays, self.others)
        return answers | self.steps.without_one()

    def honest(self) -> Answers:
        wide = [a.astype(jnp.float32) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in self.arrays]
        return {
            "step by step": self.steps.whole,
            "float32 intermediates": lambda: np.asarray(self.run(*wide).astype(self.result.dtype)),
        }

    def original_rule(self) -> Rule:
        expected = self.result.astype(np.float32)
        return lambda answer: np.allclose(expected, answer.astype(np.float32), atol=LIMIT, rtol=LIMIT)

    def our_rule(self) -> Rule:
        exact = self.subject.exact(self.arrays)
        return lambda answer: compare([answer], [self.result], [exact], Tolerance()).passed


def admit(bench: BenchTask, seeds: Sequence[int] = SEEDS) -> Admission:
    """Judges every shortcut of ``bench`` under both rules. On the CPU at smoke size: some seconds a task.

    Raises ``UsageError`` without a seed.
    """
    if not seeds:
        raise UsageError("Admission needs at least one seed; use --seeds 2.")
    subject = Subject(bench)
    drawn, other = [subject.draw(seed) for seed in seeds], subject.draw(OTHER_SEED)
    trials = [Trial(subject, arrays, other) for arrays in drawn]
    tried = list(trials[0].wrong())
    refused: dict[str, None] = {}
    passing = tried
    for trial in trials:
        rule = trial.our_rule()
        passing = _still_passing(trial, rule, passing)
        refused |= dict.fromkeys(name for name, answer in trial.honest().items() if not rule(answer()))
    for factor in EDGES:
        trial = Trial(subject, _scaled(drawn[0], factor), other)
        passing = _still_passing(trial, trial.our_rule(), passing) if passing else []
    original_passes, original_refuses = _original(subject, other)
    reasons = {name: _reason(bench, name) for name in passing}
    return Admission(
        task=bench.id,
        tried=len(tried),
        original_passes=original_passes,
        original_refuses=original_refuses,
        passes=tuple(name for name, reason in reasons.items() if not reason),
        refuses=tuple(refused),
        explained={name: reason for name, reason in reasons.items() if reason},
    )


def _still_passing(trial: Trial, rule: Rule, names: Sequence[str]) -> list[str]:
    wrong = trial.wrong()
    return [name for name in names if rule(wrong[name]())]


def _original(subject: Subject, other: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What passes and which honest answers are refused under the original rule."""
    published = published_inputs(subject.bench, "smoke", rescaled=True)
    trial = Trial(subject, published, _shuffled(published, other))
    rule = trial.original_rule()
    return (
        tuple(name for name, answer in trial.wrong().items() if rule(answer())),
        tuple(name for name, answer in trial.honest().items() if not rule(answer())),
    )


def _scaled(arrays: Any, factor: float) -> tuple[jax.Array, ...]:
    return tuple(a * jnp.asarray(factor, a.dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in arrays)


def _shuffled(published: Any, ours: Any) -> tuple[jax.Array, ...]:
    """Other inputs of published kind: the same floats in another order; integers as ours would have them."""
    key = jax.random.key(OTHER_SEED)
    return tuple(
        jax.random.permutation(jax.random.fold_in(key, i), a.ravel()).reshape(a.shape)
        if jnp.issubdtype(a.dtype, jnp.floating)
        else o
        for i, (a, o) in enumerate(zip(published, ours, strict=True))
    )


def _reason(bench: BenchTask, shortcut: str) -> str:
    """Why an answer is not wrong here, from the task file; empty when nothing is stated."""
    if shortcut.endswith(" ignored"):
        return bench.dead.get(shortcut.removesuffix(" ignored"), "")
    step = shortcut.removeprefix("no ").split(" (step")[0]
    return bench.idle.get(step) or bench.dead.get(step.rpartition(" of ")[2], "")

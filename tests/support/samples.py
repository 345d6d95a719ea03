"""Deterministic sample runs for tests, pictures and the front end's dev page, built from events only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from maxkernel_nb import events as ev
from maxkernel_nb.engine.state import RunState, fold
from maxkernel_nb.events import AnyEvent, RunOutcome, Spend, Status
from maxkernel_nb.patches import make_patch
from maxkernel_nb.task import (
    ArgSpec,
    Candidate,
    Case,
    CaseRole,
    Diagnostic,
    GateName,
    KernelTask,
    Outcome,
    Plan,
    Tolerance,
    Verdict,
)
from maxkernel_nb.tpu.profiles import BufferUse, LoopProfile, OpProfile, ScheduleProfile

REFERENCE = '''import jax, jax.numpy as jnp

def causal_attention(q, k, v):
    """Scaled dot-product attention, each position sees itself and what came before."""
    scale = q.shape[-1] ** -0.5
    s = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32) * scale
    mask = jnp.tril(jnp.ones(s.shape[-2:], bool))
    s = jnp.where(mask, s, -1e30)
    p = jax.nn.softmax(s, axis=-1).astype(v.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", p, v)
'''

KERNEL = '''"""Causal attention for TPU: one pass over K and V with an online softmax."""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

BLOCK_Q = 1024
BLOCK_K = 512
LOG2E = 1.4426950408889634


def _kernel(q_ref, k_ref, v_ref, o_ref, *, block_k):
    row = pl.program_id(1) * q_ref.shape[0]
    q = q_ref[...] * (q_ref.shape[-1] ** -0.5 * LOG2E)

    def step(j, carry):
        top, total, acc = carry
        s = jax.lax.dot_general(q, k_ref[pl.ds(j * block_k, block_k)], (((1,), (1,)), ((), ())))
        new = jnp.maximum(top, s.max(axis=-1, keepdims=True))
        p = jnp.exp2(s - new)
        shrink = jnp.exp2(top - new)
        acc = acc * shrink + p.astype(v_ref.dtype) @ v_ref[pl.ds(j * block_k, block_k)]
        return new, total * shrink + p.sum(axis=-1, keepdims=True), acc

    blocks = (row + q_ref.shape[0]) // block_k
    top, total, acc = jax.lax.fori_loop(0, blocks, step, initial(q_ref))
    o_ref[...] = (acc / total).astype(o_ref.dtype)


def causal_attention(q, k, v):
    b, h, n, d = q.shape
    grid = (b * h, n // BLOCK_Q)
    return pl.pallas_call(functools.partial(_kernel, block_k=BLOCK_K), grid=grid)(q, k, v)
'''

_ARGS = tuple(ArgSpec(name=n, shape=(4, 64, 4096, 128), dtype="bfloat16") for n in "qkv")


def _case(name: str, role: CaseRole, *shape: int) -> Case:
    return Case(name=name, role=role, args=tuple(a.model_copy(update={"shape": shape}) for a in _ARGS))


def task(**changes: Any) -> KernelTask:
    known: dict[str, Any] = {
        "name": "causal_attention",
        "source": REFERENCE,
        "entry": "causal_attention",
        "params": ("q", "k", "v"),
        "cases": (
            _case("full", CaseRole.TIMING, 4, 64, 4096, 128),
            _case("small", CaseRole.CHECK, 1, 2, 256, 128),
            _case("medium", CaseRole.CHECK, 2, 2, 512, 128),
            _case("wide", CaseRole.CHECK, 1, 4, 384, 128),
            _case("ragged", CaseRole.RAGGED, 1, 2, 250, 128),
        ),
        "chip": "v6e",
    }
    return KernelTask(**{**known, **changes})


BASELINE = ScheduleProfile(
    chip="v6e",
    modelled_ms=13.21,
    flops=1.1e12,
    hbm_bytes=3.3e9,
    roofline_ms=1.2,
    bound_by="valu",
    error_pct=11.0,
    error_source="published v6e times",
    vmem_bytes=31_000_000,
    ops=(
        OpProfile(
            name="fusion.7 (scores, softmax)",
            kind="fusion",
            modelled_ms=9.8,
            compute_ms=9.8,
            memory_ms=1.2,
            bound_by="valu",
            hbm_bytes=2.1e9,
            loops=(LoopProfile(depth=1, trips=4096, bundles=4190, with_inner=4190, share=1.0, read_bytes=5.1e5),),
            buffers=(
                BufferUse(name="scores", kind="temporary", size=21_000_000, shape="f32[1024,4096]", copies=1),
                BufferUse(name="q", kind="input", size=4_200_000, shape="bf16[1024,128]", copies=2),
                BufferUse(name="spills", kind="spill", size=5_800_000),
            ),
            spills=1204,
            utilisation={"mxu": 0.21, "valu": 0.83, "eup": 0.31, "xlu": 0.4, "vload": 0.5, "vstore": 0.3},
        ),
        OpProfile(
            name="fusion.9 (weights times values)",
            kind="fusion",
            modelled_ms=3.4,
            compute_ms=3.1,
            memory_ms=3.4,
            bound_by="hbm",
            utilisation={"mxu": 0.44, "valu": 0.3, "vload": 0.6},
        ),
    ),
)
BEST = ScheduleProfile(
    chip="v6e",
    modelled_ms=4.70,
    flops=5.6e11,
    hbm_bytes=1.1e9,
    roofline_ms=0.68,
    bound_by="eup",
    error_pct=14.0,
    error_source="published v6e times",
    vmem_bytes=9_400_000,
    has_pallas=True,
    jax_version="0.10.2",
    ops=(
        OpProfile(
            name="causal_attention",
            kind="pallas",
            modelled_ms=4.7,
            compute_ms=4.7,
            memory_ms=0.7,
            bound_by="eup",
            hbm_bytes=1.1e9,
            loops=(
                LoopProfile(depth=1, trips=1024, bundles=1500, with_inner=8030, share=0.2, read_bytes=7.8e5,
                            written_bytes=2.6e5),
                LoopProfile(depth=2, trips=5120, bundles=1306, with_inner=1306, share=0.8),
            ),
            buffers=(
                BufferUse(name="q_ref", kind="input", size=524_288, shape="bf16[1024,128]", copies=2),
                BufferUse(name="k_ref", kind="input", size=2_097_152, shape="bf16[4096,128]", copies=2),
                BufferUse(name="v_ref", kind="input", size=2_097_152, shape="bf16[4096,128]", copies=2),
                BufferUse(name="o_ref", kind="output", size=524_288, shape="bf16[1024,128]", copies=2),
                BufferUse(name="acc_ref", kind="scratch", size=524_288, shape="f32[1024,128]"),
            ),
            utilisation={
                "mxu": 0.58,
                "valu": 0.71,
                "eup": 0.86,
                "xlu": 0.22,
                "vload": 0.4,
                "vstore": 0.18,
                "salu": 0.05,
            },
        ),
    ),
)
PLAN = Plan(
    strategy="Flash attention with an online softmax",
    summary="Scores never leave VMEM: each block of queries walks over the keys up to the diagonal and keeps a "
    "**running maximum** and sum.\n\n- `K` and `V` of one head stay resident (2 MB)\n"
    "- only the diagonal block is masked\n- `exp2` with the scale folded into `q` once",
    attacks="vector unit: the reference spends 83 % of its slots on softmax",
    tiling={"BLOCK_Q": 1024, "BLOCK_K": 512},
    grid="(256 heads, 4 query blocks), both parallel",
    memory="q 256 KB ×2, k/v 1 MB each, acc 512 KB",
    expected_gain=2.6,
    expected_gain_source="roofline of the vector unit",
    recipe="attention",
)


def candidate(n: int = 0, **changes: Any) -> Candidate:
    known: dict[str, Any] = {
        "source": KERNEL.replace("1024", str(1024 >> n)),
        "entry": "causal_attention",
        "author": "recipes",
        "params": {"BLOCK_Q": 1024 >> n, "BLOCK_K": 512},
        "note": "tuned" if n else "first",
    }
    return Candidate(**{**known, **changes})


def verdicts(worst: float = 0.31) -> list[Verdict]:
    passed = [
        Verdict(gate=GateName.SCREEN, outcome=Outcome.PASS, summary="Readable, imports only jax."),
        Verdict(
            gate=GateName.TRACE,
            outcome=Outcome.PASS,
            summary="Traces on all 5 cases; exports for TPU.",
            numbers={"vmem_bytes": 9.4e6},
        ),
    ]
    for case in ("small", "medium", "wide"):
        for seed in (0, 1, 2):
            passed.append(
                Verdict(
                    gate=GateName.CHECK,
                    outcome=Outcome.PASS,
                    case=case,
                    seed=seed,
                    evidence="",
                    summary="Within the error budget.",
                    numbers={"worst_error_ratio": worst + seed / 50},
                )
            )
    passed.append(
        Verdict(
            gate=GateName.CHECK,
            outcome=Outcome.DECLINED,
            case="ragged",
            seed=0,
            summary="n = 250 is no multiple of BLOCK_K; the reference serves it.",
        )
    )
    passed.append(Verdict(gate=GateName.COMPILE, outcome=Outcome.PASS, summary="Compiles for v6e.", seconds=6.0))
    passed.append(
        Verdict(
            gate=GateName.MODEL,
            outcome=Outcome.PASS,
            summary="4.70 ms modelled, bound by eup.",
            numbers={"modelled_ms": 4.70},
            evidence="modelled",
        )
    )
    return passed


def failing(gate: GateName = GateName.CHECK) -> Verdict:
    return Verdict(
        gate=gate,
        outcome=Outcome.FAIL,
        case="small",
        seed=1,
        numbers={"worst_error_ratio": 210.0},
        summary="Wrong at [0, 1, 255, 3]: 0.81 where 0.11 is right; 210 times the error budget.",
        diagnostics=(
            Diagnostic(
                kind="mask",
                message="the diagonal block is not masked",
                line=21,
                advice="mask where column > row before the maximum",
            ),
        ),
    )


def started(**changes: Any) -> list[AnyEvent]:
    return [
        ev.RunCreated(
            run_id="auto-7f3a",
            mode="auto",
            author="recipes",
            task=task(**changes),
            options={"chip": "v6e", "budget": {"judged": 40, "wall_seconds": 1800, "dollars": 5.0}},
            versions={"jax": "0.10.2", "libtpu": "0.0.42.1"},
        ),
        ev.StepStarted(step="baseline", role="profiler", title="Model the XLA reference"),
        ev.BaselineProfiled(profile=BASELINE),
        ev.StepFinished(step="baseline", seconds=6.1, result={}, summary="13.2 ms, bound by valu"),
        ev.StepStarted(step="plan", role="planner", title="Plan"),
        ev.PlanMade(plan=PLAN),
        ev.StepFinished(step="plan", seconds=0.4, result={}, summary="Flash attention with an online softmax"),
        ev.StepStarted(step="judge-0", role="judge", title="Judge the first kernel"),
        ev.CandidateAdded(candidate=candidate()),
    ]


def tuned() -> list[AnyEvent]:
    first, second = candidate(), candidate(1)
    events: list[AnyEvent] = [
        *started(),
        *(ev.VerdictReached(candidate=first.id, verdict=v) for v in verdicts()),
        ev.CandidateProfiled(candidate=first.id, profile=BEST),
        ev.BestChanged(candidate=first.id, modelled_ms=4.70, speedup=13.21 / 4.70),
        ev.StepFinished(step="judge-0", seconds=21.0, result={}, summary="Verified, 4.70 ms modelled"),
        ev.StepStarted(step="tune", role="tuner", title="Tune the tile sizes"),
        ev.CandidateAdded(candidate=second),
        ev.VerdictReached(candidate=second.id, verdict=verdicts()[0]),
        ev.VerdictReached(candidate=second.id, verdict=failing()),
        ev.Spent(amount=Spend(judged=2, wall_seconds=74.2)),
        ev.Noted(text="1 of 5 cases is served by the reference: ragged."),
    ]
    return events


def proposed() -> list[AnyEvent]:
    return [
        *tuned(),
        ev.StepFinished(step="tune", seconds=40.0, result={}, summary="12 points, 1024 × 512 stays the best"),
        ev.ProposalMade(
            proposal="p1",
            candidate=candidate().id,
            patch=make_patch(REFERENCE, KERNEL),
            claim="2.81× faster than XLA on v6e (modelled), correct on 3 shape cases and 3 seeds.",
        ),
    ]


def waiting() -> list[AnyEvent]:
    return [*proposed(), ev.StatusChanged(status=Status.WAITING)]


def accepted() -> list[AnyEvent]:
    return [
        *waiting(),
        ev.DecisionTaken(proposal="p1", accepted=True, via="button", comment="looks good"),
        ev.Applied(proposal="p1", path=".maxkernel/kernels/causal_attention.py", bound=True, source=KERNEL),
        ev.RunEnded(
            outcome=RunOutcome.ACCEPTED,
            reason="Accepted: causal_attention is bound to the verified kernel, "
            "saved in .maxkernel/kernels/causal_attention.py.",
        ),
    ]


def kept() -> list[AnyEvent]:
    return [
        *started(),
        ev.VerdictReached(candidate=candidate().id, verdict=failing()),
        ev.RunEnded(outcome=RunOutcome.KEPT_REFERENCE, reason="The best verified kernel is modelled at 14.0 ms."),
    ]


def asked() -> list[AnyEvent]:
    """A human-in-the-loop run that shows its plan and waits."""
    question = ev.QuestionAsked(
        question="plan-1",
        title="Is this the plan?",
        text="One pass over `K` and `V`; **expected** 2.6× by the roofline.",
        choices=(
            ev.Choice(name="go", label="Use this plan"),
            ev.Choice(name="edit", label="Use my text", takes_text="the plan"),
            ev.Choice(name="drop", label="Try another"),
        ),
        default="go",
        on_reject="drop",
        editable=PLAN.summary,
    )
    return [*started()[:-2], question, ev.StatusChanged(status=Status.WAITING)]


def handed_over() -> list[AnyEvent]:
    """A human-in-the-loop run of Claude's that auto drives for now."""
    first, *rest = started()
    reading = ev.StepStarted(step="attack:2", role="profiler", title="Read the profile, plan the next attack")
    return [first.model_copy(update={"mode": "hitl", "author": "claude"}), *rest, ev.ControlChanged(to="auto"), reading]


def failed() -> list[AnyEvent]:
    return [
        *started(),
        ev.Noted(level="error", text="A worker died three times."),
        ev.RunEnded(outcome=RunOutcome.FAILED, reason="The judge could not be started."),
    ]


def stopped() -> list[AnyEvent]:
    return [*tuned(), ev.RunEnded(outcome=RunOutcome.STOPPED, reason="stopped by the person")]


def weak() -> list[AnyEvent]:
    return [*started(weak=("zeros", "first row repeated"), tolerance=Tolerance(atol=0.5))]


def hostile(text: str) -> list[AnyEvent]:
    """``text`` wherever a person, a model or an error can put text."""
    bad = candidate(source=f"# {text}\n", note=text, author=text)
    return [
        ev.RunCreated(run_id="auto-evil", mode="auto", author=text, task=task(name=text), versions={text: text}),
        ev.StepStarted(step="s", role=text, title=text),
        ev.StepFinished(step="s", seconds=1, result={}, summary=text),
        ev.PlanMade(plan=Plan(strategy=text, summary=text, attacks=text, tiling={text: 1})),
        ev.CandidateAdded(candidate=bad),
        ev.VerdictReached(
            candidate=bad.id,
            verdict=Verdict(
                gate=GateName.CHECK,
                outcome=Outcome.FAIL,
                case=text,
                summary=text,
                diagnostics=(Diagnostic(kind=text, message=text, advice=text),),
            ),
        ),
        ev.BaselineProfiled(profile=BASELINE.model_copy(update={"bound_by": text, "notes": (text,)})),
        ev.Noted(text=text),
        ev.ProposalMade(proposal="p", candidate=bad.id, patch=make_patch(text + "\n", text + "!\n"), claim=text),
        ev.DecisionTaken(proposal="p", accepted=False, via="button", comment=text),
        ev.RunEnded(outcome=RunOutcome.FAILED, reason=text),
    ]


def hostile_question(text: str) -> list[AnyEvent]:
    """A run of a name like that, that asks such a thing about such code."""
    asked = ev.QuestionAsked(
        question="q", title=text, text=f"{text}\n\n- {text}\n\n[x](javascript:window.hacked=1) ![y](//evil/{text})",
        choices=(ev.Choice(name="go", label=text, takes_text=text),), default="go", editable=text,
        patch=make_patch(f"{text}\n", f"# {text}\n"),
    )  # fmt: skip
    talk = (ev.ConversationOpened(key="c", role=text, prompt=""), ev.ModelSaid(key="c", text=text))
    return [*hostile(text)[:-3], *talk, asked, ev.StatusChanged(status=Status.WAITING)]


def heavy() -> dict[str, list[AnyEvent]]:
    """Runs that are large in one way each: a diff of 3,000 lines, 500 candidates."""
    before = "".join(f"x{n} = compute(a{n}, b{n})  # step {n}\n" for n in range(1500))
    after = before.replace("compute", "fused")
    proposal = ev.ProposalMade(
        proposal="big", candidate=candidate().id, patch=make_patch(before, after), claim="A long one."
    )
    more = [ev.CandidateAdded(candidate=candidate(source=f"# {n}\n")) for n in range(499)]
    return {
        "long_diff": [*tuned(), proposal, ev.StatusChanged(status=Status.WAITING)],
        "many_candidates": [*tuned(), *more],
    }


ALL = {
    "running": started,
    "tuning": tuned,
    "waiting": waiting,
    "accepted": accepted,
    "kept": kept,
    "failed": failed,
    "stopped": stopped,
    "weak": weak,
    "asked": asked,
    "handed_over": handed_over,
}


def state(events: Iterable[AnyEvent]) -> RunState:
    return fold(events)

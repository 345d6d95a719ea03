"""Kernels judged end to end: honest ones pass, each wrong one is refused by the gate meant for it, in a sentence."""

import jax.numpy as jnp
import pytest

from maxkernel_nb.evaluate.gates import plan
from maxkernel_nb.task import Assessment, Candidate, GateName, Outcome, Tolerance, Verdict
from maxkernel_nb.tasks.build import build_task

ALL = tuple(g for g in GateName if g is not GateName.CHIP)


def check_verdicts(assessment):
    return [v for v in assessment.verdicts if v.gate is GateName.CHECK]


def test_an_honest_matmul_passes_every_case_seed_and_variant(bench):
    assessment = bench.judge(bench.gemm, bench.kernels.GEMM)
    assert not assessment.failed and assessment.correct
    checks = check_verdicts(assessment)
    seen = [(v.case, v.seed, v.variant) for v in checks]
    drawn = [(case, seed) for case, seed, variant in seen if variant in ("", "two cores")]
    assert sorted(drawn) == sorted((c.name, s) for c in bench.gemm.check_cases for s in bench.gemm.seeds)
    edges = {"zeros", "large", "two cores", "rows permuted", "the last element of b changed"}
    assert {"", *edges} <= {variant for _, _, variant in seen}
    assert len(set(seen)) == len(seen), "a verdict would replace another one in its place"
    assert {seed for _, seed, _ in seen} == {*bench.gemm.seeds, None}
    assert [v.variant for v in checks if v.seed is None] == ["full size"]
    assert any("two cores" in v.summary for v in checks) and any("zeros" in v.summary for v in checks)
    assert all(0 <= v.numbers["worst_error_ratio"] <= 1 for v in checks)


def test_the_same_kernel_is_checked_once(bench, monkeypatch):
    first = bench.judge(bench.gemm, bench.kernels.GEMM)
    jobs, submit = [], bench.evaluator.executor.submit
    monkeypatch.setattr(bench.evaluator.executor, "submit", lambda job: jobs.append(job.op) or submit(job))
    again = bench.judge(bench.gemm, bench.kernels.GEMM)
    assert check_verdicts(again) == check_verdicts(first) and "check" not in jobs


def test_honest_attention_passes_and_its_refused_ragged_case_is_declined(bench):
    assessment = bench.judge(bench.attention, bench.kernels.ATTENTION)
    assert not assessment.failed and assessment.correct
    (declined,) = [v for v in assessment.verdicts if v.outcome is Outcome.DECLINED]
    assert declined.case == "ragged" and "not a multiple of 128" in declined.summary


WRONG_VALUES = {
    "bias dropped": ("acc_ref[...] + b_ref[...].astype(jnp.float32)", "acc_ref[...]"),
    "activation dropped": ("jnp.maximum(y, 0.0)", "y"),
    "zeros": ("jnp.maximum(y, 0.0)", "jnp.zeros_like(y)"),
    "first tile of k only": ("acc_ref[...] +=", "acc_ref[...] ="),
    "accumulator never initialised": ("pl.program_id(2) == 0", "pl.program_id(2) == 99"),
    "never written": ("pl.num_programs(2) - 1", "pl.num_programs(2)"),
    "wrong block of w": ("lambda i, j, k: (k, j)", "lambda i, j, k: (k, 0 * j)"),
    "rounded on the way": ("acc_ref[...] +=", "acc_ref[...] = 1.03 * acc_ref[...] +"),
    "block past the end": ("lambda i, j, k: (0, j)", "lambda i, j, k: (0, j + 1)"),
}


@pytest.mark.parametrize("fault", WRONG_VALUES)
def test_a_wrong_matmul_fails_the_check(bench, fault):
    source = bench.kernels.GEMM.replace(*WRONG_VALUES[fault])
    assert source != bench.kernels.GEMM
    last = bench.judge(bench.gemm, source).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL)
    assert "\n" not in last.summary and last.case and last.seed is not None


@pytest.mark.parametrize("old, new", [("rows >= columns", "rows > columns"), ("* scale + jnp.sum", "+ jnp.sum")])
def test_wrong_attention_fails_the_check(bench, old, new):
    last = bench.judge(bench.attention, bench.kernels.ATTENTION.replace(old, new)).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL)


DMA_FAULTS = {
    "used before it arrived": (
        "    copy.wait()\n    o_ref[...] = buffer[...] * 2.0",
        "    o_ref[...] = buffer[...] * 2.0\n    copy.wait()",
    ),
    "never awaited": ("    copy.wait()\n", ""),
    "past the end": ("pl.program_id(0) * 128", "pl.program_id(0) * 128 + 128"),
    "scratch carried along a parallel axis": (
        "buffer[...] * 2.0",
        "jnp.where(pl.program_id(0) > 0, o_ref[...], buffer[...] * 2.0)",
    ),
}


def test_an_honest_kernel_that_copies_by_itself_passes(bench):
    assessment = bench.judge(bench.double, bench.kernels.DMA)
    assert not assessment.failed and assessment.correct


@pytest.mark.parametrize("fault", DMA_FAULTS)
def test_memory_and_order_faults_fail_the_check(bench, fault):
    source = bench.kernels.DMA.replace(*DMA_FAULTS[fault])
    assert source != bench.kernels.DMA
    last = bench.judge(bench.double, source).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL), last


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8", "uint8", "bool"])
def test_a_result_that_is_not_written_is_not_what_lay_there_before(bench, dtype):
    """Result memory is poisoned in every dtype: the reference gives zeros, which fresh memory often holds."""

    def nothing(x):
        return jnp.zeros(x.shape, dtype)

    task = build_task(nothing, shapes="x: f32[64,128]", store=bench.store).task.model_copy(update={"seeds": (0,)})
    source = (
        "import jax\nimport jax.numpy as jnp\nfrom jax.experimental import pallas as pl\n"
        "def _body(x_ref, o_ref):\n"
        "    @pl.when(x_ref[0, 0] > 1e30)\n    def _():\n        o_ref[...] = jnp.zeros_like(o_ref)\n"
        f"def kernel(x):\n    return pl.pallas_call(_body, out_shape=jax.ShapeDtypeStruct(x.shape, '{dtype}'))(x)\n"
    )
    last = bench.judge(task, source).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL), last
    right = source.replace("    @pl.when(x_ref[0, 0] > 1e30)\n    def _():\n        o_ref", "    o_ref")
    assert bench.judge(task, right).correct


def test_a_kernel_is_not_blamed_for_the_error_of_the_one_before(bench):
    stopped = bench.judge(bench.double, bench.kernels.DMA.replace(*DMA_FAULTS["past the end"])).verdicts[-1]
    assert "Out-of-bounds" in stopped.summary
    after = bench.judge(bench.double, bench.kernels.COPY + "\n# after a stop\n")
    assert after.correct, after.failed


WRONG_PROGRAMS = {
    "contract": ("return out[:m, :n]", "return out[:m, :n].astype(jnp.float32)", "bfloat16"),
    "contract ": ("return out[:m, :n]", "return (out[:m, :n],)", "returns"),
    "trace": ("m, n = x.shape[0], w.shape[1]", "m, n = x.shape[0], w.shape[7]", "IndexError"),
    "import": ("BM, BN, BK = 128, 128, 128", "BM, BN, BK = 128, 1 // 0, 128", "ZeroDivisionError"),
    "no-kernel": ("    x, w, b = _pad", "    return jnp.maximum(x @ w + b, 0)\n    x, w, b = _pad", "plain JAX"),
    "parallel-axis": ('"parallel", "arbitrary")', '"parallel", "parallel")', "arbitrary"),
    "interpret-left-on": ("grid=(x.shape", "interpret=ON, grid=(x.shape", "interpret"),
    "constants": (
        "    m, n =",
        "    x = x + jnp.asarray(TABLE, x.dtype)[: x.shape[0], : x.shape[1]]\n    m, n =",
        "constants",
    ),
    "callback": ("    m, n =", "    jax.debug.print('x')\n    m, n =", "host"),
    "vmem-exceeded": ("BM, BN, BK = 128, 128, 128", "BM, BN, BK = 4096, 4096, 4096", "MiB"),
}


@pytest.mark.parametrize("kind", WRONG_PROGRAMS)
def test_a_program_that_breaks_the_contract_fails_the_trace(bench, kind):
    old, new, word = WRONG_PROGRAMS[kind]
    header = "import numpy as np\nTABLE = np.random.default_rng(0).normal(size=(512, 1024))\nON = True\n"
    source = header + bench.kernels.GEMM.replace(old, new)
    last = bench.judge(bench.gemm, source).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.TRACE, Outcome.FAIL)
    assert last.diagnostics[0].kind == kind.strip() and word in last.summary


def test_an_error_while_tracing_names_the_candidates_own_line(bench):
    source = bench.kernels.GEMM.replace("m, n = x.shape[0], w.shape[1]", "m, n = x.shape[0], nowhere")
    (found,) = bench.judge(bench.gemm, source).verdicts[-1].diagnostics
    assert source.splitlines()[found.line - 1].strip().startswith("m, n =")


def test_a_case_refused_after_the_timing_case_is_the_answer(bench):
    case = bench.gemm.check_cases[0]
    refusal = f"    if x.shape == {case.args[0].shape}:\n        raise ValueError('of no use')\n    m, n ="
    last = bench.judge(bench.gemm, bench.kernels.GEMM.replace("    m, n =", refusal)).verdicts[-1]
    assert (last.gate, last.outcome, last.case) == (GateName.TRACE, Outcome.FAIL, case.name)
    assert "of no use" in last.summary


def test_the_screen_stops_the_ladder_before_anything_runs(bench):
    assessment = bench.judge(bench.gemm, "import os\n" + bench.kernels.GEMM)
    assert [(v.gate, v.outcome) for v in assessment.verdicts] == [(GateName.SCREEN, Outcome.FAIL)]
    assert not assessment.complete


def test_a_loosened_tolerance_passes_more_and_says_so(bench):
    task = bench.gemm.model_copy(update={"tolerance": Tolerance(atol=1e3, rtol=10.0)})
    source = bench.kernels.GEMM.replace(*WRONG_VALUES["bias dropped"])
    assessment = bench.judge(task, source)
    assert assessment.correct
    assert all("loosened" in v.summary for v in check_verdicts(assessment))


def test_cheap_wrong_answers_that_would_pass_are_named(bench):
    assert bench.run(bench.evaluator.admit(bench.gemm)) == ()
    loose = bench.gemm.model_copy(update={"tolerance": Tolerance(atol=1e3, rtol=10.0)})
    weak = bench.run(bench.evaluator.admit(loose))
    assert {"b ignored", "all zeros", "another draw's result"} <= set(weak)
    assert any(name.startswith(("no add", "no relu")) for name in weak), weak


def with_faint_bias(task):
    """The bias is drawn so small that no drawn input shows whether it was added."""
    def faint(case):
        draws = {a.name: a for a in case.args}
        b = draws["b"].model_copy(update={"draw": draws["b"].draw.model_copy(update={"std": 1e-4})})
        return case.model_copy(update={"args": tuple(b if a.name == "b" else a for a in case.args)})

    return task.model_copy(update={"cases": tuple(map(faint, task.cases))})


def test_a_bias_too_small_to_be_seen_is_made_larger(bench):
    task = with_faint_bias(bench.gemm)
    assert bench.judge(task, bench.kernels.GEMM).correct
    last = bench.judge(task, bench.kernels.GEMM.replace(*WRONG_VALUES["bias dropped"])).verdicts[-1]
    assert (last.outcome, last.diagnostics[0].kind) == (Outcome.FAIL, "influence") and "a larger b" in last.summary
    assert bench.run(bench.evaluator.admit(task)) == ()


def test_a_kernel_is_not_blamed_where_the_reference_itself_overflows(bench):
    def enlarged(case):
        args = (a.model_copy(update={"draw": a.draw.model_copy(update={"mean": 2e38})}) for a in case.args)
        return case.model_copy(update={"args": tuple(args)})

    overflowing = bench.double.check_cases[0].name
    cases = tuple(enlarged(c) if c.name == overflowing else c for c in bench.double.cases)
    task = bench.double.model_copy(update={"cases": cases, "seeds": (0,)})
    source = bench.kernels.COPY.replace("x_ref[...] * 2.0", "x_ref[...] * 4.0 * 0.5")
    assessment = bench.judge(task, source)
    declined = [v for v in check_verdicts(assessment) if v.case == overflowing and not v.variant]
    assert not assessment.failed and {v.outcome for v in declined} == {Outcome.DECLINED}
    assert "the task, not the kernel" in declined[0].summary


def test_a_case_declined_on_a_drawn_input_does_not_count_as_passed():
    def check(case, outcome, **where):
        return Verdict(gate=GateName.CHECK, outcome=outcome, summary="", case=case, **where)

    passed = [check(case, Outcome.PASS, seed=0) for case in "abc"]
    on_edge = check("c", Outcome.DECLINED, seed=0, variant="large")
    drawn = check("c", Outcome.DECLINED, seed=1)
    assert Assessment(candidate="x", verdicts=(*passed, on_edge)).correct
    assert not Assessment(candidate="x", verdicts=(*passed, drawn)).correct


@pytest.mark.tpu_compiler
def test_the_whole_ladder_models_a_time_and_remembers_it(bench):
    assessment = bench.judge(bench.double, bench.kernels.COPY, ALL)
    assert assessment.correct and assessment.complete and assessment.modelled_ms > 0
    baseline = bench.run(bench.evaluator.baseline(bench.double))
    assert baseline.modelled_ms > 0 and not baseline.has_pallas
    again = bench.judge(bench.double, bench.kernels.COPY, (GateName.TRACE, GateName.COMPILE, GateName.MODEL))
    assert again.modelled_ms == assessment.modelled_ms
    assert next(v for v in again.verdicts if v.gate is GateName.COMPILE).seconds < 0.5, "compiled again"


@pytest.mark.tpu_compiler
def test_what_the_compiler_refuses_fails_the_compile_gate(bench):
    source = bench.kernels.COPY.replace("x_ref[...] * 2.0", "jax.numpy.sort(x_ref[...] * 2.0, axis=0)")
    last = bench.judge(bench.double, source, (GateName.TRACE, GateName.COMPILE)).verdicts[-1]
    assert last.outcome is Outcome.FAIL and last.diagnostics[0].message


def test_without_a_compiler_its_gates_are_declined(bench, monkeypatch):
    monkeypatch.setattr("maxkernel_nb.tpu.availability.compiler_available", lambda: (False, "no libtpu here"))
    assessment = bench.judge(bench.double, bench.kernels.COPY, (GateName.TRACE, GateName.COMPILE, GateName.MODEL))
    assert [v.outcome for v in assessment.verdicts] == [Outcome.PASS, Outcome.DECLINED, Outcome.DECLINED]
    assert assessment.modelled_ms is None and bench.run(bench.evaluator.baseline(bench.double)) is None


def test_verdicts_are_reported_as_they_come(bench):
    told = []
    candidate = Candidate(source=bench.kernels.COPY, entry="kernel", author="test")
    judged = bench.run(bench.evaluator.judge(bench.double, candidate, (GateName.SCREEN, GateName.TRACE), told.append))
    assert tuple(told) == judged.assessment.verdicts and len(told) == 2


@pytest.mark.parametrize("seeds", [(0,), (0, 1, 2)])
def test_a_case_on_two_cores_keeps_a_plain_verdict_however_many_seeds(bench, seeds):
    task = bench.gemm.model_copy(update={"seeds": seeds})
    cases = list(task.check_cases)
    batches = plan(cases, task, facts={c.name: {"parallel": 1} for c in cases})
    on_two = next(runs for case, runs in batches if case.name == cases[1].name)
    assert all(run["machine"]["cores"] == 2 for run in on_two)
    assert {run["seed"] for run in on_two} == set(seeds)
    assert [bool(run.get("ordered")) for run in on_two] == [False] * max(1, len(seeds) - 1) + [True]

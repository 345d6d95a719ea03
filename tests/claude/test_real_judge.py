"""Whole runs against the local server with every verdict real: TPU interpret mode, TPU compiler, schedule model."""

import sys

import pytest
from claude_scenarios import (
    EXEMPLAR,
    HITL_WAY,
    NORM_SOURCE,
    NORM_SPECS,
    PLAN,
    attack,
    auto_script,
    common_prefix_shares,
    hand_in,
    hitl_script,
    norm,
    repair,
    walk,
)
from claude_server import Script, role_of

from maxkernel_nb import api
from maxkernel_nb.authors.claude.costs import cost_table
from maxkernel_nb.budget import Budget
from maxkernel_nb.engine.loop import close_engine
from maxkernel_nb.events import RunOutcome

pytestmark = [pytest.mark.tpu_compiler, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """One project for all, so that its warm workers are shared."""
    yield tmp_path_factory.mktemp("project")
    close_engine()


def start(author, fn, specs, project, source=None, **options):
    options = {"policy": "propose", "chip": "v6e", "tuning_points": 2, **options}
    return api.start(fn, source=source, inputs=specs, project=project, author=author, **options)


def first_failures(run):
    """What each candidate that failed failed first: gate, and the unusual inputs if it was those."""
    failed = [next((v for v in c.verdicts if v.outcome == "fail"), None) for c in run.state.candidates.values()]
    return [(str(v.gate), v.variant) for v in failed if v is not None]


def test_from_a_refused_kernel_to_a_tuned_one(project, serve, claude):
    """Plan, refused by the compiler's rules, wrong values, right but slow, faster, tuned, then nothing left."""
    server = serve(auto_script())
    run = start(claude(server, rounds=3, stress=True), norm, NORM_SPECS, project, NORM_SOURCE).wait(400)
    assert run.state.outcome is RunOutcome.PROPOSED, run.state.reason
    first, second = (r["messages"][0]["content"][1]["text"] for r in server.requests if role_of(r) == "debugger")
    assert "cumsum" in first.split("<judge_output>")[1] and "advice" in first
    assert "check: fail" in second and "lesson of no cumsum" in second
    best = run.state.candidates[run.state.best].candidate
    assert best.params["BLOCK_ROWS"] > 8 and run.state.speedup > 1.2
    assert {v.variant for v in run.state.candidates[best.id].verdicts} >= {"", "tiny rows"}
    costs = cost_table(run.state)
    assert all(line.calls <= 5 for line in costs.by_round)
    assert all(line.cached_share >= 0.8 for line in costs.by_round[1:])
    assert min(common_prefix_shares(server.requests)[1:]) >= 0.8
    for line in (*costs.by_round, costs.total):
        sys.stdout.write(f"{line.name}: {line.calls} calls, {line.input_tokens} tokens in, {line.output_tokens} out, "
                         f"{line.cached_share:.0%} cached\n")


def test_a_person_takes_it_from_a_refused_kernel_to_a_tuned_one(project, serve, claude):
    """The same with every step approved, one kernel more that only the tester's inputs find wrong, and an answer."""
    server = serve(hitl_script())
    author = claude(server, rounds=3, stress=True)
    run = start(author, norm, NORM_SPECS, project, NORM_SOURCE, mode="hitl", policy="ask")
    walk(run)
    run.wait(60).accept().wait_end(60)
    assert run.state.outcome is RunOutcome.ACCEPTED and run.state.speedup > 1.2
    gates = first_failures(run)
    assert gates[0][0] in ("trace", "compile") and gates[1:3] == [("check", ""), ("check", "tiny rows")]
    assert [q.answer.choice for q in run.state.questions.values()] == [choice for choice, _ in HITL_WAY]
    assert run.state.explanations[0].answer.startswith("Because x crosses HBM once")
    assert any("Nothing worth trying is left" in n.text for n in run.state.notes)
    best = run.state.candidates[run.state.best].candidate
    assert "eps" in best.source or "1e-6" in best.source
    assert min(common_prefix_shares(server.requests)[1:]) >= 0.8


def gemm_kernels():
    right = EXEMPLAR["matmul"].replace("def matmul_bias_relu(x, w, b)", "def reference(x, weight, bias)")
    right = right.replace("    m, k = x.shape\n", "    w, b = weight, bias\n    m, k = x.shape\n")
    return {
        "right": right,
        "slow": right.replace("BLOCK_M = 512  # tune: 256, 512, 1024", "BLOCK_M = 16").replace("BLOCK_N = 1024",
                                                                                              "BLOCK_N = 128"),
        "wrong": right.replace("    out = acc_ref[...] + b_ref[...].astype(jnp.float32)\n", "    out = acc_ref[...]\n"),
    }


def norm_kernels():
    right = EXEMPLAR["rownorm"].replace("def rms_norm(x, gain)", "def reference(x, scale, *, epsilon)")
    right = right.replace("    rows, n = x.shape\n", "    shape, gain = x.shape, scale\n"
                          "    x = x.reshape(-1, x.shape[-1])\n    rows, n = x.shape\n").replace("1e-6", "epsilon")
    right = right.replace("(x, gain.reshape(1, n))", "(x, gain.reshape(1, n)).reshape(shape)")
    right = right.replace("(scaled * gain_ref[...].astype(jnp.float32))",
                          "(scaled.astype(o_ref.dtype) * gain_ref[...])")
    return {"right": right, "slow": right.replace("BLOCK_ROWS = 256  # tune: 64, 128, 256, 512", "BLOCK_ROWS = 16"),
            "wrong": right.replace("+ epsilon", "+ 1.0")}


def matmul_kernels():
    right = EXEMPLAR["matmul"].replace("def matmul_bias_relu(x, w, b)", "def reference(A, B)")
    right = right.replace("    m, k = x.shape\n", "    x, w, b = A, B, jnp.zeros((B.shape[1],), A.dtype)\n"
                          "    m, k = x.shape\n").replace("jnp.maximum(out, 0.0)", "out")
    return {"right": right, "wrong": right.replace("step == 0", "step == steps"),
            "slow": right.replace("BLOCK_M = 512  # tune: 256, 512, 1024", "BLOCK_M = 16")}


def cheats(kernels):
    """The reference without a kernel, and a kernel whose work is undone by a constant answer."""
    body = kernels["right"].partition("    return pl.pallas_call(")[0]
    head = body[body.index("def reference"):body.index(":\n", body.index("def reference")) + 2]
    first = head[head.index("(") + 1:].split(",")[0].rstrip(")")
    return {
        "no kernel": f"import jax.numpy as jnp\n\n\n{head}    return jnp.zeros_like({first})\n",
        "interpreted": kernels["right"].replace("        out_specs=", "        interpret=True,\n        out_specs="),
        "no code": "Here is your kernel: it is very fast.",
    }


TASKS = {"12p": norm_kernels, "41k": gemm_kernels, "8p": matmul_kernels}


ORDER = ["no kernel", "wrong", "slow", "no code", "no code", "right", "interpreted"]  # words for code cost two calls


def mixed_run(name, project, serve, claude):
    """A run on benchmark task ``name`` in which rounds of the server's answers are of mixed quality."""
    from jaxbench.registry import task

    bench, kernels = task(name), TASKS[name]()
    kernels.update(cheats(kernels))
    server = serve(Script(planner=PLAN, profiler=[attack(n) for n in range(2, 9)],
                          implementer=[hand_in(kernels[k], k) for k in ORDER], debugger=repair("nothing to say", "n")))
    specs = dict(zip(bench.params, bench.abstract_inputs("smoke"), strict=True))
    return start(claude(server, rounds=5, patience=9), bench.reference, {**specs, **bench.static("smoke")}, project,
                 bench.source, tuning_points=0, budget=Budget(judged=60))


def test_on_benchmark_tasks_the_best_honest_kernel_wins(project, serve, claude):
    for name, run in [(name, mixed_run(name, project, serve, claude)) for name in TASKS]:
        run.wait(400)
        notes = {c.candidate.note: c for c in run.state.candidates.values()}
        assert run.state.best is not None, (name, run.state.reason)
        assert run.state.candidates[run.state.best].candidate.note == "right", (name, run.state.reason)
        assert {"slow", "right"} <= set(notes)
        for bad in ("no kernel", "wrong", "interpreted"):
            assert any(v.outcome == "fail" for v in notes[bad].verdicts), (name, bad)

"""A worker that a kernel took over may answer anything: that is a refusal of the kernel, never an error of ours."""

import itertools
from concurrent.futures import Future

import pytest

from maxkernel_nb.evaluate import wire
from maxkernel_nb.evaluate.executor import JobRefused, Reply
from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.evaluate.process import unpack
from maxkernel_nb.task import GateName, Outcome

OUTPUTS = {"tree": "*", "leaves": []}
FACTS = {"outputs": OUTPUTS, "kernels": 1, "constant_bytes": 0, "vmem_bytes": 0, "fingerprint": "f"}
FACTS |= {"copies": 0, "parallel": 0, "work": 0.0, "products": 0.0, "elements": 0, "used": []}
FACTS |= {"arithmetic": [], "kinds": []}
SAME = {"kind": "", "passed": True, "sentence": "Same.", "ratio": 0, "norm_ratio": 0, "max_abs_error": 0}
_numbers = itertools.count()
FLOATS = {"dtype": "float32", "shape": [2]}


def same_runs(job):
    return Reply({"runs": [SAME] * len(job.args["runs"])})


class TakenOver:
    """An executor whose candidate worker answers as it likes; the judge finds all outputs equal."""

    def __init__(self, trace, check):
        self.trace, self.check = trace, check

    def submit(self, job):
        answers = {"trace": self.trace, "check": self.check, "compare": same_runs}
        answers |= {"rehearse": lambda job: Reply({}, (b"program",)), "clean": lambda job: Reply(SAME)}
        answers["full"] = lambda job: Reply(SAME)
        answers["probes"] = lambda job: Reply({"probes": []})
        answers["outputs"] = lambda job: Reply({"outputs": [OUTPUTS] * len(job.buffers)})
        future = Future()
        future.set_result(answers[job.op](job))
        return future


def traced(job, **changes):
    fresh = {**FACTS, "fingerprint": f"f{next(_numbers)}"}  # nothing is known of it from the test before
    cases = {case["name"]: {**fresh, **changes} for case in job.args["cases"]}
    return Reply({"cases": cases, "exports": job.args["export"]}, (b"program",) * len(job.args["export"]))


def checked(answer):
    return lambda job: Reply({"runs": [answer] * len(job.args["runs"])})


def judged(bench, trace, check):
    evaluator = LocalEvaluator(bench.store, executor=TakenOver(trace, check))
    return bench.judge(bench.double, bench.kernels.COPY, (GateName.TRACE, GateName.CHECK), evaluator)


def test_an_answer_as_it_should_be_passes(bench):
    assert judged(bench, traced, checked({"outputs": []})).correct


TRACES = {
    "nothing": lambda job: Reply({}),
    "a list of cases": lambda job: Reply({"cases": [1], "exports": []}),
    "no exports": lambda job: Reply({**traced(job).data, "exports": []}),
    "every case declined": lambda job: traced(job, declined="no", kernels=None),
    "endless numbers": lambda job: traced(job, kernels=float("inf")),
    "outputs of another shape": lambda job: traced(job, outputs=[]),
    "leaves that are none": lambda job: traced(job, outputs={"tree": "*", "leaves": [1]}),
}


@pytest.mark.parametrize("answer", TRACES)
def test_nonsense_of_a_trace_fails_the_kernel(bench, answer):
    last = judged(bench, TRACES[answer], checked({"outputs": []})).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.TRACE, Outcome.FAIL) and "worker" in last.summary


CHECKS = {
    "nothing": lambda job: Reply({}),
    "fewer runs than asked for": lambda job: Reply({"runs": [{"outputs": []}] * (len(job.args["runs"]) - 1)}),
    "no runs": lambda job: Reply({"runs": []}),
    "runs of numbers": checked(1),
    "outputs without bytes": checked({"outputs": [FLOATS]}),
    "outputs that are none": checked({"outputs": 3}),
    "a refusal that is none": checked({"refused": "yes"}),
}


@pytest.mark.parametrize("answer", CHECKS)
def test_nonsense_of_a_check_fails_the_kernel(bench, answer):
    last = judged(bench, traced, CHECKS[answer]).verdicts[-1]
    assert (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL) and "worker" in last.summary and last.case


def test_a_message_with_half_a_surrogate_pair_can_be_told():
    header = wire._header(b'{"status": "refused", "refusal": {"kind": "trace", "message": "\\ud800"}}')
    with pytest.raises(JobRefused) as refusal:
        unpack(wire.Message(header))
    assert refusal.value.message.encode()

"""The gates that need no compiler: screen, trace, check."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any

from maxkernel_nb.evaluate import proportion, wire
from maxkernel_nb.evaluate.apart import LOOSENED, apart
from maxkernel_nb.evaluate.calls import ABANDON
from maxkernel_nb.evaluate.executor import Job, JobRefused, Reply, WorkerKind
from maxkernel_nb.evaluate.ground import Ground, numbers, reading, refused
from maxkernel_nb.evaluate.inputs import Variant
from maxkernel_nb.evaluate.numerics import CONTESTED
from maxkernel_nb.evaluate.probes import Probe
from maxkernel_nb.evaluate.screen import screen
from maxkernel_nb.task import Case, CaseRole, GateName, KernelTask, Outcome, Verdict
from maxkernel_nb.values import content_hash

_ANOTHER = 5003  # added to a seed: another draw
PLAIN = {"order": 0, "cores": 1, "races": False}
Run = dict[str, Any]  # seed (as shown), draw (what it stands for), variant, probe and machine of one run of a case
Batch = tuple[Case, list[Run]]
# Another order of parallel steps, on two cores. Detecting races is slow, and only copies that a kernel makes by itself
# can race: blocks of one output that two steps share are refused when the program is traced.
HARD = {"order": 1, "cores": 2, "races": False}
RACED = {"order": 1, "cores": 2, "races": True}


@dataclass(frozen=True)
class Done:
    """One run of one case, as its worker reported it: outputs described, their bytes, or a refusal."""

    case: Case
    run: Run
    outputs: list[dict[str, Any]]
    buffers: tuple[bytes, ...]
    refusal: dict[str, Any] | None
    seconds: float

    @property
    def place(self) -> dict[str, Any]:
        return {"case": self.case.name, "seed": self.run["seed"], "variant": variant(self.run)}

    @property
    def where(self) -> str:
        return f"{self.case.name}, seed {self.run['seed']}{described(self.run)}"


class ScreenGate:
    """Reads the source text. Declines nothing."""

    name = GateName.SCREEN

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        task, candidate = ground.task, ground.candidate
        found = screen(candidate.source, candidate.entry, task.parameters, tuple(task.static))
        outcome, summary = (Outcome.FAIL, found.message) if found else (Outcome.PASS, "The source is admissible.")
        yield Verdict(
            gate=self.name,
            outcome=outcome,
            summary=summary,
            diagnostics=(found,) if found else (),
            seconds=time.monotonic() - started,
        )


class TraceGate:
    """Has the candidate traced for every case (for the timing case alone when nothing will be checked), its contract
    compared with the reference's, and the program exported for the compiler. A ragged case may be declined.
    """

    name = GateName.TRACE

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        started = time.monotonic()
        task = ground.task
        checked = task.check_cases if GateName.CHECK in ground.gates else ()
        first = [c for c in checked if c.role is CaseRole.CHECK][:1]
        cases = [task.timing_case, *checked]
        wanted = [task.timing_case.name, *(c.name for c in first)]
        listed = [c.to_dict() for c in cases]
        reply = await ground.ask(ground.job("trace", ground.limits.trace_s, cases=listed, export=wanted))
        with reading():
            self._keep(ground, reply, cases, wanted)
        await self._compare_contract(ground, [c for c in cases if c.name not in ground.declined])
        self._compare_work(ground)
        yield self._passed(ground, started)

    def _compare_work(self, ground: Ground) -> None:
        task = ground.task
        name = task.timing_case.name
        checked = {c: about for c, about in ground.facts.items() if c != name}
        with reading():
            told = proportion.difference(ground.facts[name], checked, task.params, name)
        if told:
            raise JobRefused("proportion", told, case=name)

    def _keep(self, ground: Ground, reply: Reply, cases: list[Case], wanted: list[str]) -> None:
        for case in cases:
            facts = reply.data["cases"][case.name]
            if "declined" in facts and case.role is CaseRole.RAGGED:
                ground.declined[case.name] = str(facts["declined"])
            else:
                ground.facts[case.name] = _facts(facts)
        made = dict(zip(reply.data["exports"], reply.buffers, strict=True))
        ground.exports.update({name: ground.store.put(made[name]) for name in wanted})

    async def _compare_contract(self, ground: Ground, cases: list[Case]) -> None:
        references = [(c, ground.task.reference(c.name)) for c in cases]
        known = [(c, r.own or r.device) for c, r in references if r.own or r.device]
        exported = tuple(ground.store.get(digest) for _, digest in known)
        job = Job(WorkerKind.JUDGE, "outputs", {}, exported, ground.limits.compare_s)
        for (case, _), expected in zip(known, (await ground.ask(job)).data["outputs"], strict=True):
            with reading():
                difference = contract_difference(ground.facts[case.name]["outputs"], expected)
            if difference:
                raise JobRefused("contract", f"Case {case.name}: {difference}", case=case.name)

    def _passed(self, ground: Ground, started: float) -> Verdict:
        facts = ground.facts[ground.task.timing_case.name]
        numbers = {
            "kernels": facts["kernels"],
            "vmem_estimate_bytes": facts["vmem_bytes"],
            "constant_bytes": facts["constant_bytes"],
        }
        count = len(ground.facts)
        summary = f"Traced for {count} case{'s'[: count > 1]}: {facts['kernels']} Pallas call(s)."
        artefacts = {f"export:{case}": digest for case, digest in ground.exports.items()}
        return Verdict(
            gate=self.name,
            outcome=Outcome.PASS,
            summary=summary,
            numbers=numbers,
            artefacts=artefacts,
            seconds=time.monotonic() - started,
        )


def _facts(told: dict[str, Any]) -> dict[str, Any]:
    """Those that are used, in the types they must have."""
    outputs = {"tree": str(told["outputs"]["tree"]), "leaves": [dict(leaf) for leaf in told["outputs"]["leaves"]]}
    counts = {name: int(told[name]) for name in ("kernels", "vmem_bytes", "constant_bytes", "copies", "parallel")}
    seen = {
        "work": float(told["work"]),
        "products": float(told["products"]),
        "used": [int(n) for n in told["used"]],
        "arithmetic": [str(name) for name in told["arithmetic"]],
        "kinds": [str(name) for name in told["kinds"]],
    }
    return {"outputs": outputs, "fingerprint": str(told["fingerprint"]), **counts, **seen}


def contract_difference(got: dict[str, Any], expected: dict[str, Any]) -> str:
    """Empty when tree, shapes, dtypes and weak types are equal; else one sentence."""
    if got["tree"] != expected["tree"]:
        return f"it returns {_tree(got)} where the reference returns {_tree(expected)}."
    for number, (a, b) in enumerate(zip(got["leaves"], expected["leaves"], strict=True)):
        if a != b:
            return f"output {number} is {_leaf(a)} where the reference gives {_leaf(b)}."
    return ""


def _tree(outputs: dict[str, Any]) -> str:
    return str(outputs["tree"]).removeprefix("PyTreeDef(").removesuffix(")")


def _leaf(leaf: dict[str, Any]) -> str:
    return f"{leaf['dtype']}{leaf['shape']}" + (" (weak type)" if leaf["weak_type"] else "")


class CheckGate:
    """Runs the traced program on the CPU with TPU semantics (uninitialised memory is NaN, stray reads raise), every
    check case on every seed, the first also on zeros, large values and the inputs of the task's probes, and one again
    on two cores in another order, with races detected where the kernel copies by itself; the judge compares with the
    oracle. Last, the program runs in the judge's own process, at full size where a CPU can (``apart``). One verdict
    for each case, seed and variant. Declines the ragged cases that the trace gate declined, cases whose reference
    could not be exported, and runs on which the reference itself overflows.
    """

    name = GateName.CHECK

    async def run(self, ground: Ground) -> AsyncIterator[Verdict]:
        ready = ready_cases(ground)
        for case in ground.task.check_cases:
            if case not in ready:
                yield self._declined(ground, case)
        batches = plan(ready, ground.task, await probed(ground), ground.facts)
        for part in (batches[:1], batches[1:]):  # most wrong kernels fail in the first one
            async for verdict in self._batches(ground, part):
                yield verdict
                if verdict.outcome is Outcome.FAIL:
                    return
        if ready:
            async for verdict in apart(ground, max(ready, key=_elements)):
                yield verdict

    async def _batches(self, ground: Ground, batches: list[Batch]) -> AsyncIterator[Verdict]:
        """All at once: the candidate's worker runs one while the judge compares another. After a failure the others may
        finish unheard; when the judgement itself is stopped, their workers are killed.
        """
        tasks = [asyncio.create_task(self._case(ground, case, runs)) for case, runs in batches]
        how: Any = ABANDON
        try:
            for task in tasks:
                for verdict in await task:
                    yield verdict
                    if verdict.outcome is Outcome.FAIL:
                        return
        except asyncio.CancelledError as stopped:
            how = stopped.args[0] if stopped.args else None
            raise
        finally:
            for task in tasks:
                task.cancel(how)

    def _declined(self, ground: Ground, case: Case) -> Verdict:
        why = ground.declined.get(case.name) or ground.task.reference(case.name).note or "the reference has no export."
        summary = f"Case {case.name} is declined: {why}"
        return Verdict(gate=self.name, outcome=Outcome.DECLINED, summary=summary, case=case.name)

    async def _case(self, ground: Ground, case: Case, runs: list[Run]) -> list[Verdict]:
        """What is wrong when it was run with numpy is run once more by jax, who has the last word."""
        verdicts = await self._runs(ground, case, runs)
        if all(v.outcome is not Outcome.FAIL for v in verdicts):
            return verdicts
        return await self._runs(ground, case, runs, compiled=True)

    async def _runs(self, ground: Ground, case: Case, runs: list[Run], compiled: bool = False) -> list[Verdict]:
        started = time.monotonic()
        about = {"case": case.to_dict(), "runs": runs, "fingerprint": ground.facts[case.name]["fingerprint"]}
        job = ground.job("check", ground.limits.check_s, **about, compiled=compiled)
        try:
            reply = await ground.ask(job)
            with reading():
                done = _pair(case, runs, reply, (time.monotonic() - started) / len(runs))
        except JobRefused as refusal:
            return [refused(self.name, refusal, started, case.name, runs[0]["seed"], variant(runs[0]))]
        return await self._verdicts(ground, case, done)

    async def _verdicts(self, ground: Ground, case: Case, done: list[Done]) -> list[Verdict]:
        answered = [d for d in done if not d.refusal]
        facts = iter(await self._facts(ground, case, answered) if answered else ())
        loose = ground.task.tolerance.loosened
        return [self._refused(d, d.refusal) if d.refusal else compared(next(facts), d, loose) for d in done]

    def _refused(self, done: Done, told: dict[str, Any]) -> Verdict:
        refusal = JobRefused(told["kind"], f"{told['message']} ({done.where})")
        return refused(self.name, refusal, time.monotonic() - done.seconds, **done.place)

    async def _facts(self, ground: Ground, case: Case, done: list[Done]) -> list[dict[str, Any]]:
        runs = [
            {"seed": d.run["draw"], "variant": d.run["variant"], "probe": d.run.get("probe"), "outputs": d.outputs,
             "control": d is done[0]}
            for d in done
        ]  # fmt: skip
        args = {
            "case": case.to_dict(),
            "runs": runs,
            "tolerance": ground.task.tolerance.to_dict(),
            "wide": ground.task.reference(case.name).oracle_dtype == "float64",
        }
        buffers = (*ground.reference(case), *(b for d in done for b in d.buffers))
        job = Job(WorkerKind.JUDGE, "compare", args, buffers, len(runs) * ground.limits.compare_s)
        return list((await ground.ask(job)).data["runs"])


def _pair(case: Case, runs: list[Run], reply: Reply, seconds: float) -> list[Done]:
    """Each run with what the worker said of it; runs after a refused one were not made."""
    buffers = iter(reply.buffers)
    pairs: list[Done] = []
    for run, answer in zip(runs, reply.data["runs"], strict=False):
        outputs, refusal = answer.get("outputs", []), answer.get("refused")
        mine = tuple(islice(buffers, len(outputs)))
        wire.arrays(outputs, mine)  # raises when they do not fit what is said of them
        said = refusal and {"kind": str(refusal["kind"]), "message": str(refusal["message"])}
        pairs.append(Done(case, run, outputs, mine, said, seconds))
    if len(pairs) < len(runs) and not (pairs and pairs[-1].refusal):
        raise ValueError(f"{len(pairs)} of {len(runs)} runs answered")
    return pairs


def compared(facts: dict[str, Any], done: Done, loosened: bool) -> Verdict:
    """The judge's facts as a verdict. ``declined`` when the reference itself overflows: no candidate can help that."""
    told = f"{facts['sentence']} ({done.where})"
    if facts["kind"] == CONTESTED:
        return Verdict(gate=GateName.CHECK, outcome=Outcome.DECLINED, summary=told, **done.place)
    if not facts["passed"]:
        started = time.monotonic() - done.seconds
        kind = facts["kind"]
        if done.run.get("probe"):
            kind, told = "influence", f"It does not follow the reference with {variant(done.run)}: {told}"
        failed = refused(GateName.CHECK, JobRefused(kind, told), started, **done.place)
        return failed.model_copy(update={"numbers": numbers(facts)})
    note = LOOSENED if loosened else ""
    return Verdict(
        gate=GateName.CHECK,
        outcome=Outcome.PASS,
        summary=f"Right on {done.where}: {facts['sentence']}{note}",
        **done.place,
        numbers=numbers(facts),
        seconds=done.seconds,
    )


def _elements(case: Case) -> int:
    return sum(math.prod(a.shape) for a in case.args)


def ready_cases(ground: Ground) -> list[Case]:
    """The check cases that were traced and whose reference can be run."""
    return [c for c in ground.task.check_cases if c.name in ground.facts and ground.task.reference(c.name).own]


async def probed(ground: Ground) -> list[Probe]:
    """The task's probes of its first case: asked of the reference once, shared by all candidates."""
    task, ready = ground.task, ready_cases(ground)
    if not ready:
        return []
    case = ready[0]
    args = {
        "case": case.to_dict(),
        "seed": task.draws(task.seeds[0]),
        "tolerance": task.tolerance.to_dict(),
        "wide": task.reference(case.name).oracle_dtype == "float64",
    }
    key = content_hash([args, task.reference(case.name).to_dict()])
    if key not in ground.probes:
        job = Job(WorkerKind.JUDGE, "probes", args, ground.reference(case), ground.limits.compare_s)
        ground.probes[key] = [Probe.from_dict(p) for p in (await ground.ask(job)).data["probes"]]
    return ground.probes[key]


def plan(
    cases: list[Case], task: KernelTask, probes: Sequence[Probe] = (), facts: Mapping[str, Any] = MappingProxyType({})
) -> list[Batch]:
    """What is run, in order: the first case on every seed, on zeros, on large values and on the probes; the others on
    every seed; a middle case on two cores, where its parallel steps come in another order, if it has any."""
    if not cases:
        return []

    def run(seed: int, variant: Variant = Variant.DRAWN, **more: Any) -> Run:
        return {"seed": seed, "draw": task.draws(seed), "variant": str(variant), "machine": PLAIN, **more}

    first, (small, *others) = task.seeds[0], cases
    drawn = [run(s) for s in task.seeds]
    edges = [run(first, v) for v in (Variant.ZEROS, Variant.LARGE)]
    for some in (*drawn[1:2], edges[-1]):  # memory that holds numbers of another program; elsewhere it is NaN
        some["garbage"] = some["draw"]
    asked = [run(first, probe=p.to_dict()) for p in probes]
    ordered = next((case for case in (*others, small) if _machine(facts, case) is not PLAIN), None)
    batches = {case.name: (case, drawn) for case in others}
    last: list[Batch] = []
    if ordered is not None:
        machine = _machine(facts, ordered)
        if machine is HARD and ordered is not small:  # its only machine: each is another program to make ready
            runs = [{**r, "machine": machine} for r in drawn]
            extra = {**runs[-1], "draw": task.draws(first + _ANOTHER), "ordered": True}
            batches[ordered.name] = (ordered, [*(runs[:-1] or runs), extra])
        else:
            last = [(ordered, [run(first, machine=machine, draw=task.draws(first + _ANOTHER), ordered=True)])]
    return [(small, drawn + edges + asked), *batches.values(), *last]


def _machine(facts: Mapping[str, Any], case: Case) -> dict[str, Any]:
    """What can show faults of order in this case: nothing beyond the plain machine where every step has its place."""
    about = facts.get(case.name, {})
    return RACED if about.get("copies") else HARD if about.get("parallel") else PLAIN


def variant(run: Run) -> str:
    """What sets a run apart from one on drawn inputs; empty for those."""
    if run.get("probe"):
        return str(run["probe"]["name"])
    edge = "" if run["variant"] == Variant.DRAWN else str(run["variant"])
    return "two cores" if run.get("ordered") else edge


def described(run: Run) -> str:
    if run.get("probe"):
        return f", {variant(run)}"
    edge = "" if run["variant"] == Variant.DRAWN else f", {run['variant']} values"
    left = ", memory as another program left it" if run.get("garbage") is not None else ""
    return edge + (", two cores" if run["machine"]["cores"] > 1 else "") + left

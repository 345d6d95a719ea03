"""One measurement on one device, driven from here in small requests, so that it can pause, stop and be watched."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.evaluate.executor import Job, JobRefused, Reply, WorkerKind
from maxkernel_nb.evaluate.ground import Ground
from maxkernel_nb.tpu.chip import refit
from maxkernel_nb.tpu.chip.agreement import TOLERANCE, Clocks, ClocksDisagree, agree
from maxkernel_nb.tpu.chip.compare import Comparison, Rules, Window, compare
from maxkernel_nb.tpu.chip.profile import MeasuredPair, MeasuredProfile, difference
from maxkernel_nb.tpu.chip.quiet import QUIET, Quiet
from maxkernel_nb.tpu.chip.session import CANDIDATE, REFERENCE, SIDES
from maxkernel_nb.tpu.chips import CHIPS
from maxkernel_nb.tpu.profiles import ScheduleProfile

if TYPE_CHECKING:
    from maxkernel_nb.evaluate.chip_gate import ChipLimits

SEED_CHECK, SEED_TIME, SEED_FRESH = 9001, 9002, 9003  # none of those that a check draws from
ORACLE_FLOPS = 3e12  # float64 on the host: about a minute on a TPU machine's cores
CLOCK_TRIES = 3
NEVER_STILL = 4
ON_CPU = 0.6  # tolerance between clocks where several programs share the CPU and its caches
RECORD_PAIRS = 4000
INCLUDES = (
    "device time of every event of a run, from jax.profiler traces; each run was waited for; reference and candidate "
    "in turn, in random order; inputs rotated; not in it: sending a run from the host, and transfers to and from it"
)


class Refused(MaxKernelError):
    """There is no figure to report; the message is the reason."""


class Asked(Protocol):
    """A device (``chip_place.Place``)."""

    name: str

    async def ask(
        self, op: str, args: dict[str, Any], buffers: tuple[bytes, ...] = (), seconds: float = 60.0
    ) -> Reply: ...


@dataclass(frozen=True)
class Measured:
    """``numbers`` and ``sentence`` for the verdict, ``record`` for who wants to check them (JSON). ``profiles``: None
    where the device gave none."""

    numbers: dict[str, float]
    sentence: str
    record: dict[str, Any]
    profiles: MeasuredPair | None = None


@dataclass
class Stand:
    """The device as the protocol of ``compare`` sees it. ``walls``: wall milliseconds of the counted runs."""

    place: Asked
    draws: Any
    seconds: float
    quiet: Quiet
    walls: list[list[float]]
    preempted: int = 0
    empty: int = 0  # windows in a row in which not one pair was left alone

    async def window(self, pairs: int) -> Window:
        await self._still()
        epoch = self.quiet.epoch
        try:
            data = (await self.place.ask("window", {"pairs": pairs}, seconds=self.seconds)).data
        except JobRefused as refusal:
            if refusal.kind in ("cell", "disturbed"):
                return Window(np.empty((0, 2)), refusal.message)
            raise
        if data["wrong"]:
            raise JobRefused("stale", data["wrong"])
        found, kept = np.array(data["pairs"], dtype=float).reshape(-1, 2), self._kept(data["kept"])
        disturbed = data["disturbed"] or ("" if kept.any() else "another process interrupted every run")
        if not disturbed and self.quiet.epoch != epoch:
            disturbed = "a cell of the notebook began"
        if disturbed:
            return Window(np.empty((0, 2)), disturbed, data["seconds"])
        self.walls += np.array(data["walls"])[kept].tolist()
        return Window(found[kept], "", data["seconds"])

    def _kept(self, kept: list[bool]) -> np.ndarray:
        """Pairs that count: those left alone, or all of them on a machine that never leaves any alone."""
        self.preempted += kept.count(False)
        self.empty = 0 if any(kept) else self.empty + 1
        return np.array(kept, bool) | (self.empty >= NEVER_STILL)

    async def _still(self) -> None:
        while not self.quiet.still:
            await asyncio.sleep(0.02)

    async def fresh(self, seed: int) -> None:
        await self.place.ask("fresh", {"seed": self.draws(seed)}, seconds=max(60.0, self.seconds))


class Measurement:
    """``check``, then ``time``, on one place. ``running``: whose program is on the device, should it stop answering."""

    def __init__(
        self, ground: Ground, programs: tuple[bytes, bytes], rules: Rules, limits: ChipLimits, quiet: Quiet = QUIET
    ) -> None:
        self.ground, self.programs, self.rules, self.limits = ground, programs, rules, limits
        self.quiet = quiet
        self.running = ""
        self.opened: dict[str, Any] = {}
        self.chip_s = 0.0

    async def check(self, place: Asked) -> dict[str, Any]:
        """The judge's facts about the outputs at full size."""
        task = self.ground.task
        began = time.monotonic()
        self.running = "opening the programs"
        args = {"case": task.timing_case.to_dict(), "seed": task.draws(SEED_CHECK)}
        self.opened = (await place.ask("open", args, self.programs, self.limits.open_s)).data
        for side in SIDES:
            self.running = side
            await self._first(place, side)
        self.running = CANDIDATE
        reply = await place.ask("check", {}, seconds=self.limits.check_s)
        self.running = ""
        self.chip_s += time.monotonic() - began
        return await self._judged(reply)

    async def _first(self, place: Asked, side: str) -> None:
        while True:
            try:
                await place.ask("first", {"side": side}, seconds=self.limits.first_s)
                return
            except JobRefused as refusal:
                if refusal.kind != "cell":
                    raise
                await asyncio.sleep(0.05)

    async def _judged(self, reply: Reply) -> dict[str, Any]:
        task, case = self.ground.task, self.ground.task.timing_case
        artefacts = task.reference(case.name)
        profile = self.ground.profile
        heavy = profile is not None and profile.flops > ORACLE_FLOPS
        oracle = self.ground.store.get(artefacts.oracle) if artefacts.oracle and not heavy else b""
        args = {
            "case": case.to_dict(), "seed": reply.data["seed"], "outputs": reply.data["outputs"],
            "tolerance": task.tolerance.to_dict(), "wide": artefacts.oracle_dtype == "float64",
        }  # fmt: skip
        seconds = self.ground.limits.compare_s
        job = Job(WorkerKind.JUDGE, "compare_on_chip", args, (oracle, *reply.buffers), seconds)
        return (await self.ground.ask(job)).data

    async def time(self, place: Asked) -> Measured:
        """Raises ``Refused`` when clocks disagree, ``TooNoisy`` when nothing could be counted."""
        draws = self.ground.task.draws
        self.running = "timing"
        stand = Stand(place, draws, self.limits.window_s, self.quiet, [])
        await stand.fresh(SEED_TIME)
        found = await compare(stand, self.rules, SEED_FRESH)
        clocks = await self._clocks(place, found, stand)
        self.running = "profiling"
        profiles = await self._profiles(place)
        about = (await place.ask("about", {})).data
        await place.ask("close", {})
        self.chip_s += found.seconds
        return self._report(place, found, stand, clocks, profiles, about)

    async def _clocks(self, place: Asked, found: Comparison, stand: Stand) -> dict[str, Clocks]:
        """The three clocks of each side, in agreement. Noise gets a second chance, a contradiction does not."""
        ms = dict(zip(SIDES, found.ms, strict=True))
        pairs, walls = np.concatenate(found.final.windows), np.array(stand.walls)
        for attempt in range(CLOCK_TRIES):
            data = (await place.ask("clocks", {"ms": ms, "tries": 5 + 20 * attempt}, seconds=self.limits.window_s)).data
            clocks = {
                side: Clocks(
                    device=ms[side], fastest=float(np.quantile(pairs[:, n], 0.1)), wall=float(walls[:, n].min()),
                    slope=data["slope"][side], overhead=data["overhead"], abreast=data["abreast"],
                )
                for n, side in enumerate(SIDES)
            }  # fmt: skip
            try:
                for side in SIDES:
                    agree(clocks[side], f"the {side}", TOLERANCE if data["abreast"] == 1 else ON_CPU)
                return clocks
            except ClocksDisagree as why:
                contradiction = str(why)
        raise Refused(f"the clocks disagree: {contradiction}")

    async def _profiles(self, place: Asked) -> dict[str, MeasuredProfile]:
        try:
            data = (await place.ask("profile", {}, seconds=self.limits.window_s)).data
        except JobRefused:  # the times are there; a table of ops less is no reason to lose them
            return {}
        return {side: MeasuredProfile.from_dict(told) for side, told in data.items()}

    def _report(
        self, place: Asked, found: Comparison, stand: Stand, clocks: dict[str, Clocks],
        profiles: dict[str, MeasuredProfile], about: dict[str, Any],
    ) -> Measured:
        reference_ms, measured_ms = found.ms
        ratio, notes = found.ratio, [*found.notes, *self._doubts(measured_ms, about)]
        thrown = len(found.first.thrown_away) + len(found.final.thrown_away)
        numbers = {
            "measured_ms": measured_ms, "reference_measured_ms": reference_ms, "measured_speedup": ratio.value,
            "speedup_low": ratio.low, "speedup_high": ratio.high, "pairs": float(found.final.pairs),
            "windows": float(len(found.final.windows)), "windows_thrown_away": float(thrown),
            "pairs_preempted": float(stand.preempted), "chip_s": self.chip_s, "input_sets": float(self.opened["sets"]),
            "rotated_bytes": float(self.opened["rotated_bytes"]), "slope_ms": clocks[CANDIDATE].slope,
            "wall_ms": clocks[CANDIDATE].wall, "send_ms": clocks[CANDIDATE].overhead,
        }  # fmt: skip
        told = {"faster": "faster than", "slower": "slower than", "equal": "not told apart from"}[found.call]
        sentence = (
            f"{measured_ms:.4g} ms measured on {about['kind']}, {told} the reference's {reference_ms:.4g} ms "
            f"({ratio.value:.3f}x, 95 % interval {ratio.low:.3f} to {ratio.high:.3f})."
        )
        pair = self._laid_beside(profiles)
        notes += self._learn(pair, about)
        record = {
            "device": {**about, "name": place.name}, "call": found.call, "numbers": numbers, "includes": INCLUDES,
            "rules": vars(self.rules), "opened": self.opened, "notes": notes,
            "stopped": [found.first.stopped, found.final.stopped], "warm": [found.first.warm, found.final.warm],
            "thrown_away": [*found.first.thrown_away, *found.final.thrown_away],
            "pairs_ms": np.concatenate(found.final.windows)[:RECORD_PAIRS].round(6).tolist(),
            "profiles": {side: p.to_dict() for side, p in profiles.items()},
        }  # fmt: skip
        return Measured(numbers, " ".join([sentence, *notes]), record, pair)

    def _laid_beside(self, profiles: dict[str, MeasuredProfile]) -> MeasuredPair | None:
        if not set(SIDES) <= set(profiles):
            return None
        modelled, measured = self.ground.profile, profiles[CANDIDATE]
        told = difference(modelled, measured) if modelled is not None else ()
        return MeasuredPair(reference=profiles[REFERENCE], candidate=measured, difference=told)

    def _doubts(self, ms: float, about: dict[str, Any]) -> list[str]:
        """A time below what writing the outputs alone takes is impossible, and refused."""
        facts = CHIPS.get(self.ground.task.chip)
        if about["platform"] != "tpu" or facts is None:
            return []
        leaves = self.ground.facts[self.ground.task.timing_case.name]["outputs"]["leaves"]
        written = sum(_bytes(leaf) for leaf in leaves)
        if ms < written / (facts.device_hbm_gbs * 1e6):
            raise Refused(f"{ms:.4g} ms is less than writing the {written:,} bytes of the outputs takes")
        profile = self.ground.profile
        if profile is not None and ms < profile.roofline_ms:
            return [f"Below the roofline of {profile.roofline_ms:.4g} ms: it does not read or compute all of it."]
        return []

    def _learn(self, found: MeasuredPair | None, about: dict[str, Any]) -> list[str]:
        """The difference to the model in words; a pair is kept to fit the model to this machine."""
        if about["platform"] != "tpu" or self.ground.profile is None or found is None:
            return []
        program = self.ground.exports[self.ground.task.timing_case.name]
        plain = self.ground.records.get("profile", program, self.ground.task.chip)  # as it was before any fit
        if plain is not None and "profile" in plain:
            refit.record(refit.pair(program, ScheduleProfile.from_dict(plain["profile"]), found.candidate.ms))
        return list(found.difference)


def _bytes(leaf: dict[str, Any]) -> int:
    from maxkernel_nb.evaluate.wire import dtype_named

    return int(np.prod(leaf["shape"])) * dtype_named(leaf["dtype"]).itemsize

"""Every cheating or broken kernel refused by the gate meant for it, every honest one passed: run

    python tests/bench/judge_suites.py [--folder KEPT] [--only WORD] [honest] [wrong] [attacks]

It prints a line a kernel and, at the end, how many of each; exits with 1 when one came out otherwise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import AsyncIterator

from judge_common import CHECKED, Bench, say, suite_honest, suite_wrong

from maxkernel_nb.task import GateName, Outcome

COMPILED = (GateName.SCREEN, GateName.TRACE, GateName.COMPILE)


async def honest(bench: Bench, only: str) -> AsyncIterator[tuple[bool, str]]:
    for name, (task, source) in suite_honest.HONEST.items():
        if only in name:
            told = await bench.judge(bench.task(task), source)
            why = "" if told.correct else "; ".join(v.summary for v in told.verdicts if v.outcome is not Outcome.PASS)
            yield told.correct, f"honest  {name}: {'passed' if told.correct else 'REFUSED ' + why[:300]}"


async def wrong(bench: Bench, only: str) -> AsyncIterator[tuple[bool, str]]:
    for name, cheat in suite_wrong.WRONG.items():
        if only in name:
            gates = COMPILED if cheat.gate == "compile" else CHECKED
            last = (await bench.judge(bench.task(cheat.task, cheat.weak), cheat.source, gates)).verdicts[-1]
            meant = (
                last.outcome is Outcome.FAIL and last.gate == cheat.gate and cheat.words.lower() in last.summary.lower()
            )
            yield meant, f"wrong   {name} [{cheat.kinds}]: {last.gate} {last.outcome}: {last.summary[:160]}"


async def attacks(bench: Bench, only: str) -> AsyncIterator[tuple[bool, str]]:
    for name, (_, words) in suite_wrong.ATTACKS.items():
        if only in name and name != "endless loop":  # that one takes its whole deadline: see judge_hostile
            source = suite_wrong.attack(name)
            last = (await bench.judge(bench.task("double"), source, (GateName.TRACE,))).verdicts[-1]
            held = (last.outcome is Outcome.FAIL and words in last.summary) or not words
            text = (await bench.judge(bench.task("double"), source, (GateName.SCREEN,))).verdicts[-1]
            held = held and text.outcome is Outcome.FAIL
            yield held, f"attack  {name}: {last.outcome}: {last.summary[:120]}; the text alone: {text.summary[:60]}"


async def course(bench: Bench, parts: list[str], only: str) -> int:
    missed = 0
    for part in parts:
        results = [r async for r in _told({"honest": honest, "wrong": wrong, "attacks": attacks}[part](bench, only))]
        missed += results.count(False)
        say(f"{part}: {results.count(True)} of {len(results)} as they should be")
    return missed


async def _told(lines: AsyncIterator[tuple[bool, str]]) -> AsyncIterator[bool]:
    async for right, line in lines:
        say(("  " if right else "! ") + line)
        yield right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=[], help="honest, wrong, attacks (default: all)")
    parser.add_argument("--folder")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    bench = Bench(options.folder)
    sys.exit(bench.run(course(bench, options.parts or ["wrong", "attacks", "honest"], options.only)) > 0)


if __name__ == "__main__":
    main()

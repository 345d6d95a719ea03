"""30 hostile kernels in a row with honest ones between: python tests/bench/judge_hostile.py [--count 30]

Prints each verdict and, at the end: honest verdicts right, processes left, files left, state changed. Exits with 1 when
anything is not as it was.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from judge_common import Bench, say, suite_honest, suite_wrong

from maxkernel_nb.evaluate.ground import Limits
from maxkernel_nb.evaluate.tamper import changed, snapshot
from maxkernel_nb.task import GateName, Outcome

HONEST = ("double (128, 128)", "double (64, 128)", "double, columns first", "double by adding", "double (32, 256)")


def children() -> set[int]:
    """Every living process of this session tree, and whatever their children left behind with pid 1."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
            line = (status.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if b"maxkernel_nb.evaluate.worker" in line or b"sleep\x001000" in line:
            parent = int(text.split("PPid:")[1].split()[0])
            if parent in (os.getpid(), 1):
                found.add(int(status.parent.name))
    return found


def files() -> set[str]:
    temporary = Path(tempfile.gettempdir())
    mine = {p.name for p in temporary.glob(f"maxkernel-worker-{os.getpid()}-*")}
    return mine | {p.name for p in temporary.glob("maxkernel-was-here*")}


def state() -> dict[str, Any]:
    handlers = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    return {**snapshot(), "signal handlers here": handlers, "folder": os.getcwd(), "threads": {}}


async def course(bench: Bench, count: int) -> int:
    task, names = bench.task("double"), list(suite_wrong.ATTACKS)
    wrong_honest = held = 0
    for number in range(count):
        name = names[number % len(names)]
        source = suite_wrong.attack(name) + f"# {number}\n"
        last = (await bench.judge(task, source, (GateName.TRACE,))).verdicts[-1]
        held += last.outcome is Outcome.FAIL or not suite_wrong.ATTACKS[name][1]
        honest = HONEST[number % len(HONEST)]
        kernel = suite_honest.HONEST[honest][1].replace("def kernel", f"SALT = {number}\n\ndef kernel")
        right = (await bench.judge(task, kernel)).correct
        wrong_honest += not right
        say(f"{number + 1:2} {name}: {last.outcome}: {last.summary[:90]} | {honest}: {'right' if right else 'WRONG'}")
    say(f"{held} of {count} attacks held, {count - wrong_honest} of {count} honest verdicts right")
    return (count - held) + wrong_honest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=30)
    count = parser.parse_args().count
    os.environ["MY_SECRET_KEY"] = "sk-never-seen"
    before, old = state(), children()
    bench = Bench(limits=replace(Limits(), trace_s=45.0))
    threads = threading.active_count()
    bad = bench.run(course(bench, count))
    left, kept, touched = children() - old, files(), changed(before, state())
    say(
        f"processes left: {sorted(left)}; files left: {sorted(kept)}; changed here: {touched or 'nothing'}; "
        f"threads {threads} before, {threading.active_count()} after closing"
    )
    sys.exit(bool(bad or left or kept or touched))


if __name__ == "__main__":
    main()

"""kill -9 of a search at random events, judge and compiler real: `python tests/bench/search_kills.py [--kills 50]`.

Each trial is a project of its own: a process begins the search and kills itself at an event, others resume it and do
the same, the last one ends it. Its graph has to be the undisturbed one's, and no finished step may be repeated.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from search_bench import shape

from maxkernel_nb.engine.state import fold
from maxkernel_nb.journal import read_events

NAME, KILLS_A_TRIAL = "small_matmul", 5


def small_matmul(x, w):
    import jax.numpy as jnp

    return jnp.maximum(x @ w, 0)


def drive(root, judged, kill_at):
    """In a process of its own: begins or resumes the search; at its ``kill_at``th event (0: never) it is killed."""
    from maxkernel_nb import api
    from maxkernel_nb.budget import Budget
    from maxkernel_nb.engine.loop import close_engine

    def watch(run):
        left = [kill_at]

        def count(state):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        run.subscribe(count)

    options = {"project": root, "policy": "propose", "author": "recipes", "on_created": watch,
               "budget": Budget(judged=judged, wall_seconds=None)}
    if folder(root).exists():
        run = api.resume(f"{NAME}-1", small_matmul, **options)
    else:
        run = api.start(small_matmul, mode="search", shapes="x: bf16[256,512], w: bf16[512,256]", chip="v6e",
                        **options)
    run.wait(900)
    close_engine()


def folder(root):
    return Path(root) / ".maxkernel" / "runs" / f"{NAME}-1"


def in_a_process(root, judged, kill_at=0):
    """Whether it was killed."""
    command = [sys.executable, __file__, "--child", str(root), "--judged", str(judged), "--at", str(kill_at)]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if ended.returncode not in (0, -signal.SIGKILL):
        raise SystemExit(f"the search failed by itself:\n{ended.stderr[-3000:]}")
    return ended.returncode != 0


def repeated(events):
    """Finished steps, draws and observations that are there twice."""
    places = {"step-finished": "step", "edge-added": "draw", "draw-observed": "draw"}
    keys = [(e.kind, getattr(e, places[e.kind])) for e in events if e.kind in places]
    return sorted({k for k in keys if keys.count(k) > 1})


def trial(root, judged, kills, events, dice):
    """(kills, the ended search's state, what was repeated)"""
    done = 0
    while done < kills and in_a_process(root, judged, dice.randint(1, events // 3)):
        done += 1
    found = read_events(folder(root)) if folder(root).exists() else []
    if not found or not fold(found).ended:
        in_a_process(root, judged)
    found = read_events(folder(root))
    return done, fold(found), repeated(found)


def main(kills, judged, base):
    started, dice, done, number, wrong = time.monotonic(), random.Random(20261130), 0, 0, 0
    in_a_process(base / "undisturbed", judged)
    expected = fold(read_events(folder(base / "undisturbed")))
    sys.stdout.write(f"undisturbed: {len(expected.edges)} draws, {expected.seq} events, best {expected.best} "
                     f"{expected.best_ms:.4g} ms modelled, {time.monotonic() - started:.0f} s\n")
    while done < kills:
        number += 1
        here, state, again = trial(base / f"trial-{number}", judged, min(KILLS_A_TRIAL, kills - done),
                                   expected.seq, dice)
        same = shape(state) == shape(expected) and not again and state.spend.judged == expected.spend.judged
        done, wrong = done + here, wrong + (not same)
        sys.stdout.write(f"trial {number}: killed {here} times, {'the same graph' if same else 'ANOTHER GRAPH'}, "
                         f"repeated steps {again or 'none'}; {done} kills in {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()
    sys.stdout.write(f"{done} kills in {number} searches of {len(expected.edges)} draws: {wrong} ended differently\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--judged", type=int, default=8)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--at", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        drive(chosen.child, chosen.judged, chosen.at)
        sys.exit(0)
    with tempfile.TemporaryDirectory() as place:
        sys.exit(main(chosen.kills, chosen.judged, Path(place)))

"""A search on many workers, simulated: `python tests/bench/search_simulate.py [WORKERS] [CANDIDATES]`.

Verdict times are drawn from the recorded landscapes (trace and compile seconds of real candidates; the first of each
process, which starts jax, left out). One driver makes and observes the draws, in order, at the cost a draw was measured
to have in this process; a window of so many draws is in flight. No chips, no author: gates on processors alone.
"""

import argparse
import heapq
import random
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import landscapes
from search_scale import draw, write

from maxkernel_nb.engine.state import fold
from maxkernel_nb.journal import Journal, read_events


def verdict_seconds():
    found = []
    for name in landscapes.NAMES:
        for known in landscapes.load(name).data["candidates"]:
            seconds = known["seconds"]
            found.append(seconds.get("trace", 0) + seconds.get("compile", 0))
    found.sort()
    return found[: int(len(found) * 0.99)]  # the last percent holds the first jobs of fresh workers


def driver_seconds(nodes=300):
    """What one draw costs the driver: journal and fold of its events, one by one, as a live run does."""
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), nodes)
        state, journal, count = fold(read_events(Path(root))), Journal(Path(root)), 50
        start = time.process_time()
        for n in range(nodes, nodes + count):
            for event in draw(n, None):
                journal.append(event, 0.0)
                state = fold([event], state)
        journal.close()
        return (time.process_time() - start) / count


def simulate(workers, candidates, window, driver, times, seed=0):
    """Seconds until all are observed, and the share of them that workers were busy."""
    dice = random.Random(seed)
    durations = [dice.choice(times) for _ in range(candidates)]
    free = [0.0] * workers  # when each worker is free
    done, busy, clock, observed = [0.0] * candidates, 0.0, 0.0, 0
    for n in range(candidates):
        while n - observed >= window:  # no place: the oldest draw has to be observed first
            clock = max(clock, done[observed]) + driver
            observed += 1
        start = max(clock, heapq.heappop(free))
        done[n] = start + durations[n]
        busy += durations[n]
        heapq.heappush(free, done[n])
    end = max(max(done), clock + (candidates - observed) * driver)
    return end, busy / (end * workers)


def main(workers, candidates):
    times, driver = verdict_seconds(), driver_seconds()
    times_text = ", ".join(f"{q:.0%} {times[int(q * (len(times) - 1))]:.2f}" for q in (0.1, 0.5, 0.9, 0.99))
    mean = sum(times) / len(times)
    sys.stdout.write(f"verdict seconds of {len(times)} real candidates: {times_text}; mean {mean:.2f}\n"
                     f"the driver's own processor time a draw: {driver * 1e3:.2f} ms\n\n"
                     "workers  candidates  window         ideal driver            measured driver\n")
    for count in (1, 10, 100, workers):
        for factor in (1, 2, 4, 8, 16):
            line = []
            for cost in (0.0, driver):
                end, busy = simulate(count, min(candidates, 100 * count), factor * count, cost, times)
                line.append(f"{end:9.0f} s, {busy:4.0%} busy")
            most = min(candidates, 100 * count)
            sys.stdout.write(f"{count:7}  {most:10}  {factor:2} x workers  {line[0]}  {line[1]}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workers", nargs="?", type=int, default=1000)
    parser.add_argument("candidates", nargs="?", type=int, default=100_000)
    chosen = parser.parse_args()
    main(chosen.workers, chosen.candidates)

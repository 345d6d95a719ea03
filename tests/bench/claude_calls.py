"""Model calls and tokens an iteration, on scripted runs whose every verdict is real.

``python tests/bench/claude_calls.py`` needs libtpu; the model is the local server of the tests, through the real SDK.
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import claude_scenarios as scenes
from claude_server import ClaudeServer, role_of

from maxkernel_nb import api
from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.costs import cost_table
from maxkernel_nb.authors.claude.keys import Key
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.engine.loop import close_engine


def play(mode, script, folder):
    server = ClaudeServer(script)
    key = Key("no key is needed here", "this script")
    author = ClaudeAuthor(ClaudeSettings(base_url=server.url, rounds=3), key=key)
    run = api.start(scenes.norm, source=scenes.NORM_SOURCE, inputs=scenes.NORM_SPECS, chip="v6e", mode=mode,
                    author=author, project=folder, policy="ask" if mode == "hitl" else "propose", tuning_points=3)
    if mode == "hitl":
        scenes.walk(run)
    state = run.wait(600).state
    if state.open_proposal is not None and not state.ended:
        run.reject().wait_end(30)
    server.close()
    return state, server.requests


def table(mode, state, requests):
    say = sys.stdout.write
    say(f"\n{mode}: {state.reason or state.open_proposal.claim}\n")
    costs = cost_table(state)
    say(f"{'':10}{'calls':>6}{'tokens in':>11}{'from cache':>12}{'tokens out':>12}\n")
    for line in (*costs.by_round, costs.total):
        say(f"{line.name:10}{line.calls:6}{line.input_tokens:11,}{line.cached_share:12.1%}{line.output_tokens:12,}\n")
    shares = scenes.common_prefix_shares(requests)
    say("common prefix, byte for byte: " + ", ".join(
        f"{role_of(r)} {s:.1%}" for r, s in zip(requests, shares, strict=True)) + "\n")
    later = [len(str(r)) * s for r, s in zip(requests[1:], shares[1:], strict=True)]
    say(f"after the first call: {sum(later) / sum(len(str(r)) for r in requests[1:]):.1%} of all bytes\n")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for mode, script in (("auto", scenes.auto_script()), ("hitl", scenes.hitl_script())):
            table(mode, *play(mode, script, folder))
        close_engine()


if __name__ == "__main__":
    main()

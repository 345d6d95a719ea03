"""``python tests/bench/claude_faults.py`` injects every fault into a run of its own and prints what a person reads."""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from claude_faults import FAULTS, play, sentence, trouble
from claude_server import PLANTED, ClaudeServer
from engine_bench import Bench

from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.keys import Key
from maxkernel_nb.authors.claude.settings import ClaudeSettings


def author(server, **settings):
    plain = {"base_url": server.url, "first_wait_s": 0.01, "retries": 3, "stress": False, **settings}
    return ClaudeAuthor(ClaudeSettings(**plain), key=Key(PLANTED, "this script"))


def main():
    failed = 0
    for number, (name, fault) in enumerate(FAULTS.items(), 1):
        with tempfile.TemporaryDirectory() as folder:
            bench, start, servers = Bench(Path(folder)), time.monotonic(), []

            def serve(brain, servers=servers):
                servers.append(ClaudeServer(brain, PLANTED))
                return servers[-1]

            run, _ = play(bench, serve, author, fault, "f-1")
            wrong = trouble(bench, run, fault)
            failed += bool(wrong)
            sys.stdout.write(f"{number:2} {time.monotonic() - start:5.1f} s  {name}: {wrong or sentence(run, fault)}\n")
            bench.engine.close()
            servers[0].close()
    sys.stdout.write(f"{len(FAULTS)} faults, {len(FAULTS) - failed} end as promised\n")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())

"""One example of every message of the lab contract, from a scripted run: what both sides' tests compare with.

``python tests/support/lab_messages.py`` writes the golden files anew; look at the difference before you commit it.
"""

import json
import tempfile
from pathlib import Path

from engine_bench import Bench

from maxkernel_nb import contract
from maxkernel_nb.authors.fake import ScriptedAuthor
from maxkernel_nb.document import notices

GOLDEN = Path(__file__).resolve().parents[1] / "magics" / "golden"
SCHEMA, MESSAGES = GOLDEN / "lab_contract_v1.schema.json", GOLDEN / "lab_contract_v1.messages.json"
KERNEL = "def f(x):\n    return x + 0\n# time=1.0\n"
CELL = "cell-1"

COMMANDS = [
    {"command": "maxkernel:hello"},
    {"command": "maxkernel:runs"},
    {"command": "maxkernel:look", "run": "f-1"},
    {"command": "maxkernel:answer", "run": "f-1", "question": "plan:1", "choice": "comment", "text": "smaller blocks"},
    {"command": "maxkernel:answer", "run": "f-1", "question": "kernel:1", "choice": "approve", "hunks": [0]},
    {"command": "maxkernel:ask", "run": "f-1", "text": "What is VMEM?"},
    {"command": "maxkernel:decide", "run": "f-1", "proposal": "proposal-4e608be089aa", "accepted": True},
    {"command": "maxkernel:decide", "run": "f-1", "proposal": "proposal-4e608be089aa", "accepted": True, "hunks": [0],
     "comment": "only the first"},
    {"command": "maxkernel:decide", "run": "f-1", "proposal": "proposal-4e608be089aa", "accepted": False,
     "comment": "not readable"},
    *({"command": "maxkernel:control", "run": "f-1", "action": a}
      for a in ("stop", "pause", "unpause", "takeback", "resume", "undo")),
    {"command": "maxkernel:configure", "settings": {"chip": "v5e", "policy": ""}},
    {"command": "maxkernel:report", "run": "f-1"},
]


def commands():
    return [{"version": 1, "id": f"00000000-0000-4000-8000-{n:012d}", **c} for n, c in enumerate(COMMANDS, 1)]


def told(folder):
    """Notices of a human-in-the-loop run at every stop, then acks with each kind of data."""
    bench = Bench(folder)
    try:
        run = bench.run(ScriptedAuthor([KERNEL]), mode_name="hitl")
        seen = []
        for choice in ("approve", "approve", "judge", "finish", None):
            state = run.wait(30).state
            seen += [contract.RunChanged(run=notices.run_info(_timeless(state), True, CELL)),
                     notices.open_matter(state, CELL)]
            if choice:
                before = len(state.questions) + len(state.proposals)
                run.answer(choice)
                with run._changed:
                    run._changed.wait_for(lambda n=before: len(run.state.questions) + len(run.state.proposals) > n, 30)
        run.accept(via="lab").wait_end(30)
        seen += notices.decisions(run.state, CELL)
        listed = contract.RunList(runs=(notices.run_info(_timeless(run.state), False, CELL),))
        run.undo()
        seen += notices.decisions(run.state, CELL)
        field = contract.FormField(name="chip", flag="--chip", metavar="CHIP", help="the TPU to model for", type="text",
                                   default="v6e", choices=("v5e", "v6e"), setting=True, modes=("auto", "hitl"))
        mode = contract.FormMode(name="auto", summary="plan, write, check", available=True)
        acks = (
            contract.Ack(id="1", ok=True), contract.Ack(id="2", ok=False, message="Run f-1 asks nothing now."),
            contract.Ack(id="3", ok=True, data=contract.Welcome(package="0.1.0", modes=(mode,), options=(field,))),
            contract.Ack(id="4", ok=True, data=listed),
            contract.Ack(id="5", ok=True, data=contract.ReportPage(run="f-1", html="<!doctype html><title>f</title>")),
        )
        return [notice.to_dict() for notice in (*seen, *acks)]
    finally:
        bench.engine.close()


def _timeless(state):
    return state.model_copy(update={"spend": state.spend.model_copy(update={"wall_seconds": 0.0})})


def schema_text():
    return json.dumps(contract.schema(), indent=1, sort_keys=True) + "\n"


def messages_text(folder):
    return json.dumps({"commands": commands(), "notices": told(folder)}, indent=1) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        MESSAGES.write_text(messages_text(Path(made)))
    SCHEMA.write_text(schema_text())

"""Makes the recordings that the example notebooks replay: `python tests/support/record_examples.py`.

No model is asked: the local server answers with the replies written down here; the judge and the compiler are real.
With a key, `MAXKERNEL_REPLAY` unset and the same cells, Claude answers instead.
"""

import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
from claude_server import ClaudeServer, Script, call, say, text, tool

from maxkernel_nb import api
from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.keys import Key
from maxkernel_nb.authors.claude.replay import export
from maxkernel_nb.authors.claude.settings import ClaudeSettings
from maxkernel_nb.authors.pool import BothAuthors
from maxkernel_nb.authors.recipe_author import RecipeAuthor
from maxkernel_nb.engine.loop import close_engine
from maxkernel_nb.knowledge.exemplars import EXEMPLARS

FOLDER = Path(__file__).parents[2] / "example_notebooks" / "recordings"
SHAPES = "x: f32[8192,2048], gain: f32[2048]"
SMALL_SHAPES = "x: f32[2048,1024], gain: f32[1024]"
KERNEL = next(e.source for e in EXEMPLARS if e.name == "rownorm")
SMALL = KERNEL.replace("BLOCK_ROWS = 256  # tune: 64, 128, 256, 512", "BLOCK_ROWS = 8")
WRONG = SMALL.replace("jnp.mean(values", "jnp.sum(values")
SOURCE = '''
def rms_norm(x, gain):
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + 1e-6) * gain
'''.lstrip()

ROWS_PLAN = call(
    "submit_plan", strategy="whole rows, one pass over HBM",
    summary="XLA reads x twice: once for the mean square, once to scale it. A kernel that keeps whole rows in VMEM "
            "reads x once and writes the result once, which is all the traffic there has to be.",
    attacks="hbm traffic", tiling={"BLOCK_ROWS": 256}, grid="blocks of rows, parallel",
    memory="one block in and one out, double buffered, and the gain", expected_gain=1.5,
    expected_gain_reason="about two thirds of the reference's HBM bytes",
)


def handed_in(body):
    """The draft whose check is in the last message, handed in by its id."""
    return call("submit_kernel", attempt=body["messages"][-1]["content"][0]["content"].split()[1].rstrip(","),
                note="8 rows a block, checked before handing in")


AUTO = Script(
    planner=[say(text("I check the name before I plan with it."), tool("look_up_api", name="pltpu.CompilerParams"),
                 stop_reason="tool_use"), ROWS_PLAN],
    implementer=[call("check_kernel", source=WRONG), call("check_kernel", source=SMALL), handed_in,
                 call("submit_kernel", source=KERNEL, note="256 rows a block, tunable")],
    profiler=[
        call("submit_attack", bottleneck="Each grid step moves only 64 KiB, so fixed costs of a step show.",
             lesson="a memory-bound kernel wants blocks of a megabyte or more",
             plan={"strategy": "larger blocks of rows", "summary": "The same kernel with 64 to 512 rows a block."}),
        call("submit_attack", bottleneck="HBM traffic; it is the least that this function needs.",
             stop="the kernel is bound by HBM and moves no byte twice"),
    ],
    tester=call("submit_stresses", stresses=[
        {"name": "tiny rows", "why": "a missing epsilon", "families": [{"argument": "x", "std": 0.0001}]}]),
)
HITL = Script(
    planner=[
        call("submit_plan", strategy="two passes", summary="One kernel for the mean square, one that scales the rows."),
        ROWS_PLAN,
    ],
    implementer=call("submit_kernel", source=KERNEL, note="whole rows, 256 a block, tunable"),
    explainer=call("submit_answer", text="Because the rows stay in VMEM between the mean and the scaling: x crosses "
                                         "HBM once instead of twice. The figure is modelled, not measured."),
    tester=call("submit_stresses", stresses=[]),
)
SEARCH = Script(
    planner=ROWS_PLAN,
    implementer=lambda body: call("submit_kernel", source=KERNEL if len(body["messages"]) > 1 else SMALL,
                                  note="whole rows, a block of them a step"),
    profiler=call("submit_attack", bottleneck="HBM traffic; it is the least that this function needs.",
                  stop="the kernel is bound by HBM and moves no byte twice"),
    tester=call("submit_stresses", stresses=[]),
)
ANSWERS = (("comment", "one pass over HBM, please"), ("approve", ""), ("approve", ""), ("judge", ""),
           ("ask", "Why is it faster than XLA?"), ("tune", ""), ("finish", ""))


def rms_norm(x, gain):
    mean_square = jnp.mean(x * x, axis=-1, keepdims=True)
    return x * jax.lax.rsqrt(mean_square + 1e-6) * gain


def record(name, brain, mode, answers=(), recipes=False, **more):
    server = ClaudeServer(brain)
    author = ClaudeAuthor(ClaudeSettings(base_url=server.url), key=Key("no key is needed here", "this script"))
    author = BothAuthors(RecipeAuthor(), author) if recipes else author
    with tempfile.TemporaryDirectory() as folder:
        options = {"shapes": SHAPES, "policy": "ask" if answers else "propose", **more}
        run = api.start(rms_norm, source=SOURCE, chip="v6e", mode=mode, author=author, project=folder, **options)
        for choice, words in answers:
            run.wait(300).answer(choice, words)
        state = run.wait(300).state
        replies = export(run.project.runs / run.id, FOLDER / f"{name}.jsonl")
        if answers:
            run.reject().wait_end(20)
    server.close()
    sys.stdout.write(f"{name}: {replies} replies; {state.reason or state.open_proposal.claim}\n")
    for note in state.notes:
        sys.stdout.write(f"  {note.level}: {note.text}\n")


if __name__ == "__main__":
    record("auto_rms_norm", AUTO, "auto")
    record("hitl_rms_norm", HITL, "hitl", ANSWERS)
    record("search_rms_norm", SEARCH, "search", recipes=True, budget="6 candidates", shapes=SMALL_SHAPES)
    close_engine()

"""Scripted runs in which only the model is played: kernels of every quality, and a judge and a compiler that are real.

Every step of the way is taken: refused by the compiler, repaired, wrong values, repaired, wrong on unusual inputs
only, repaired, right, profiled, improved, tuned, and in the end nothing worth trying is left.
"""

import json

import jax
import jax.numpy as jnp
from claude_server import Script, call

from maxkernel_nb.knowledge.exemplars import EXEMPLARS

EXEMPLAR = {e.name: e.source for e in EXEMPLARS}
PLAN = call("submit_plan", strategy="tiles", summary="Tiles.")
STOP = call("submit_attack", bottleneck="hbm", stop="at the bound")


def hand_in(source, note):
    return call("submit_kernel", source=source, note=note)


def repair(source, note):
    return call("submit_repair", source=source, note=note, cause="as the judge says", lesson=f"lesson of {note}")


def attack(number):
    return call("submit_attack", bottleneck="hbm", plan={"strategy": f"attack {number}", "summary": "larger blocks"})


def norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


NORM_SOURCE = ("def norm(x, gain):\n"
               "    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain\n")
NORM_SPECS = (jax.ShapeDtypeStruct((4096, 1024), jnp.float32), jax.ShapeDtypeStruct((1024,), jnp.float32))
RIGHT = EXEMPLAR["rownorm"].replace("def rms_norm", "def norm")
SMALL = RIGHT.replace("BLOCK_ROWS = 256  # tune: 64, 128, 256, 512", "BLOCK_ROWS = 8")
REFUSED = RIGHT.replace("    scaled = values", "    values = jnp.cumsum(values, axis=1)\n        scaled = values")
WRONG = SMALL.replace("+ 1e-6", "+ 1e-1")
NO_EPSILON = SMALL.replace("+ 1e-6", "+ 1e-12")  # right where rows are of ordinary size
STRESSES = call("submit_stresses", stresses=[{"name": "tiny rows", "why": "a missing epsilon",
                                              "families": [{"argument": "x", "std": 0.0001}]}])


def auto_script():
    """Two rounds: from a refused kernel to a right and slow one, then a faster one; then nothing is left."""
    return Script(planner=PLAN, implementer=[hand_in(REFUSED, "a cumsum"), hand_in(RIGHT, "larger blocks")],
                  debugger=[repair(WRONG, "no cumsum"), repair(SMALL, "right epsilon")], tester=STRESSES,
                  profiler=[attack(2), STOP])


def hitl_script():
    return Script(
        planner=[call("submit_plan", strategy="two passes", summary="Two kernels."), PLAN],
        implementer=[hand_in(REFUSED, "a cumsum"), hand_in(RIGHT, "larger blocks")],
        debugger=[repair(WRONG, "no cumsum"), repair(NO_EPSILON, "right mean"), repair(SMALL, "right epsilon")],
        profiler=[attack(2), STOP], tester=STRESSES,
        explainer=call("submit_answer", text="Because x crosses HBM once instead of twice."),
    )


# A person's way through it: what is answered to each question, in order.
HITL_WAY = (
    ("comment", "one kernel, please"), ("approve", ""),  # the plan
    ("approve", ""), ("judge", ""),  # refused by the compiler's rules
    ("repair", "no cumsum"), ("approve", ""), ("judge", ""),  # wrong values
    ("repair", ""), ("approve", ""), ("judge", ""),  # right, but wrong on tiny rows
    ("repair", ""), ("approve", ""), ("judge", ""),  # right
    ("ask", "Why is it faster than XLA?"),
    ("next", ""), ("approve", ""), ("approve", ""), ("judge", ""),  # a faster one
    ("tune", ""), ("next", ""), ("finish", ""),  # nothing worth trying is left
)


def walk(run, way=HITL_WAY, patience=240):
    """Answers question after question; gives the titles that were asked."""
    asked = []
    for choice, text in way:
        question = run.wait(patience).state.open_question
        assert question is not None, (asked, run.state.outcome, run.state.reason)
        asked.append(question.title)
        seen = len(run.state.questions) + len(run.state.proposals)
        run.answer(choice, text)
        with run._changed:
            assert run._changed.wait_for(
                lambda n=seen: len(run.state.questions) + len(run.state.proposals) > n or run.state.ended, patience)
    return asked


def common_prefix_shares(requests):
    """Of each request: the share of its bytes, in the order in which they are cached (tools, system, messages), that
    an earlier request of the same model and thinking begins with, byte for byte."""
    shares, earlier = [], []
    for body in requests:
        kind = json.dumps([body["model"], body.get("thinking"), body.get("output_config")], sort_keys=True)
        blocks = [*body["tools"], *body["system"], *(b for m in body["messages"] for b in m["content"])]
        text = kind + "".join(json.dumps({k: v for k, v in b.items() if k != "cache_control"}) for b in blocks)
        common = max((_common(text, other) for other in earlier), default=0)
        shares.append(common / len(text) if common > len(kind) else 0.0)
        earlier.append(text)
    return shares


def _common(text, other):
    return next((n for n, (a, b) in enumerate(zip(text, other, strict=False)) if a != b), min(len(text), len(other)))

"""What profiling costs on top of a compile: ``python tests/bench/profile_cost.py [CHIP]``.

Two warm workers take turns on the same programs: one compiles only, the other compiles with the schedule dumped, reads
it, models the time and deletes the dump. Both are timed in CPU seconds in one run, so that the ratio stands on a busy
machine too; each program is compiled once, because a second time is quicker. The last line is the one that counts:
extra time over compile time, at most 0.7.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROGRAMS = ("matmul", "causal", "fori", "xla_gemm", "scan", "attention", "xla_attention", "quickstart")
QUICKSTART = Path(__file__).parents[2] / "example_notebooks" / "01_quickstart.ipynb"
LIMIT = 0.7


def exported(name):
    import jax
    import jax.export
    import jax.numpy as jnp

    sys.path.insert(0, str(Path(__file__).parents[1] / "tpu"))
    import programs

    if name not in ("attention", "xla_attention", "quickstart"):
        return programs.exported(name)
    if name == "quickstart":
        specs = [jax.ShapeDtypeStruct((4, 64, 4096, 128), jnp.bfloat16)] * 3
        return jax.export.export(jax.jit(quickstart()), platforms=["tpu"])(*specs).serialize()
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes, flash_attention

    def plain(q, k, v):
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32)
        return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores).astype(q.dtype), v)

    def flash(q, k, v):
        sizes = BlockSizes(block_q=1024, block_k_major=1024, block_k=512, block_b=1)
        return flash_attention(q, k, v, causal=True, block_sizes=sizes)

    specs = [jax.ShapeDtypeStruct((4, 8, 4096, 128), jnp.bfloat16)] * 3
    function = jax.jit(flash if name == "attention" else plain)
    return jax.export.export(function, platforms=["tpu"])(*specs).serialize()


def quickstart():
    """The attention kernel that the quickstart notebook shows, as it was accepted there."""
    cells = json.loads(QUICKSTART.read_text())["cells"]
    shown = next(c for c in cells if "causal_attention.source" in "".join(c["source"]))
    names = {}
    exec("".join(shown["outputs"][0]["text"]), names)
    return names["causal_attention"]


def worker(folder, chip):
    """Answers each name on stdin with the seconds that it took. ``folder`` empty: compile only."""
    from maxkernel_nb.tpu.aot import compile_exported, worker_environment

    os.environ.update(worker_environment(folder or None))
    from maxkernel_nb.tpu.model import profile_exported

    for line in sys.stdin:
        data = exported(line.strip())
        begun, mine = time.monotonic(), time.process_time()
        (profile_exported if folder else compile_exported)(data, chip)
        answer = {"seconds": time.monotonic() - begun, "cpu": time.process_time() - mine}
        sys.stdout.write(json.dumps({**answer, "left": len(os.listdir(folder)) if folder else 0}) + "\n")
        sys.stdout.flush()


def main(chip="v6e"):
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            subprocess.Popen([sys.executable, __file__, "worker", place, chip], stdin=-1, stdout=-1, text=True)
            for place in ("", folder)
        ]
        try:
            return report(workers)
        finally:
            for one in workers:
                one.stdin.close()
                one.wait(60)


def report(workers):
    for one in workers:
        ask(one, "elementwise")  # starts jax and libtpu
    total = [0.0, 0.0]
    for name in PROGRAMS:
        took = [ask(one, name)["cpu"] for one in workers]
        total = [t + b for t, b in zip(total, took, strict=True)]
        sys.stdout.write(f"{name:14} compile {took[0]:6.2f} s, with profile {took[1]:6.2f} s: "
                         f"{took[1] / took[0] - 1:+.2f}x on top\n")  # fmt: skip
    extra = total[1] / total[0] - 1
    sys.stdout.write(f"all {len(PROGRAMS)} programs: {extra:.2f}x on top of the compile (limit {LIMIT}x), CPU seconds "
                     "of one run\n")  # fmt: skip
    return 0 if extra <= LIMIT else 1


def ask(one, name):
    one.stdin.write(name + "\n")
    one.stdin.flush()
    answer = json.loads(one.stdout.readline())
    assert not answer["left"], "the dump was not deleted"
    return answer


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        worker(*sys.argv[2:])
    else:
        sys.exit(main(*sys.argv[1:]))

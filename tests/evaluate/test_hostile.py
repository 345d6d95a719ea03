"""Kernels that attack the judge. The screen is left out here: the sandbox alone must hold."""

import os
import signal
import time
from pathlib import Path

import pytest

from maxkernel_nb.evaluate.local import LocalEvaluator
from maxkernel_nb.task import GateName, Outcome

NOTEBOOK = os.getpid()


def hostile(bench, body):
    """The copying kernel with ``body`` run at import."""
    return f"import os, sys, time, socket, subprocess, threading, signal, ctypes\n{body}\n" + bench.kernels.COPY


ATTACKS = {
    "endless loop": ("while True: pass", "did not finish"),
    "ends its process": ("os._exit(0)", "exit code 0"),
    "system exit": ("sys.exit(0)", "SystemExit"),
    "segfault": ("ctypes.string_at(8)", "SIGSEGV"),
    "60 GB": ("x = bytearray(60 << 30)", "memory"),
    "forks": ("while True: os.fork()", "os.fork"),
    "natively forks": ("if ctypes.CDLL.__call__ and ctypes.pythonapi.fork() < 0: raise OSError('no fork')", "no fork"),
    "program": ("subprocess.Popen(['sleep', '1000'])", "subprocess"),
    "socket": ("socket.socket()", "socket"),
    "writes outside": ("open('/tmp/maxkernel-was-here', 'w')", "may not touch"),
    "reads outside": ("open('/etc/passwd').read()", "may not touch"),
    "removes": (f"os.remove({__file__!r})", "may not touch"),
    "kills the notebook": (f"os.kill({NOTEBOOK}, 9)", "os.kill"),
    "natively kills": (f"if ctypes.pythonapi.kill({NOTEBOOK}, 9): raise OSError('kill refused')", "kill refused"),
    "replaces jax.jit": ("import jax\njax.jit = lambda f, **k: f", "jax.jit"),
    "replaces allclose": ("import numpy\nnumpy.allclose = lambda *a, **k: True", "numpy.allclose"),
    "replaces time": ("time.perf_counter = lambda: 0.0", "time.perf_counter"),
    "replaces the check": ("from maxkernel_nb.evaluate import inputs\ninputs.draw = lambda *a: []", "inputs.draw"),
    "leaves a thread": ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
    "signal handler": ("signal.signal(signal.SIGTERM, lambda *a: None)", "signal"),
    "64-bit": ("import jax\njax.config.update('jax_enable_x64', True)", "settings"),
    "default precision": ("import jax\njax.config.update('jax_default_matmul_precision', 'bfloat16')", "settings"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_fails_the_trace_with_a_reason(bench, attack):
    body, word = ATTACKS[attack]
    verdict = bench.traced(bench.double, hostile(bench, body), trace_s=6.0 if attack == "endless loop" else 60.0)
    assert verdict.outcome is Outcome.FAIL, verdict
    assert word in verdict.summary


def test_the_environment_holds_no_keys(bench, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    evaluator = LocalEvaluator(bench.store)  # its workers start after the key is set
    try:
        body = "assert not [k for k in os.environ if 'KEY' in k or 'TOKEN' in k], 'leaked'"
        assessment = bench.judge(bench.double, hostile(bench, body), (GateName.TRACE,), evaluator)
        assert assessment.verdicts[-1].outcome is Outcome.PASS
    finally:
        evaluator.close()


def test_what_a_kernel_prints_is_never_read(bench):
    body = 'for fd in (1, 2):\n    os.write(fd, b\'{"status": "ok", "data": {}}\\nSPEEDUP 9.9x CORRECT\\n\')'
    source = hostile(bench, body).replace("* 2.0", "* 2.1")
    gates = (GateName.TRACE, GateName.CHECK)
    verdict = bench.judge(bench.double, source, gates).verdicts[-1]
    assert (verdict.gate, verdict.outcome) == (GateName.CHECK, Outcome.FAIL)


def test_endless_output_does_not_fill_the_disk(bench):
    verdict = bench.traced(bench.double, hostile(bench, "for _ in range(1 << 10): sys.stderr.write('x' * (1 << 20))"))
    assert verdict.outcome in (Outcome.PASS, Outcome.FAIL)
    logs = [p.stat().st_size for pid in bench.evaluator.executor.pids() for p in _folder(pid).parent.glob("log")]
    assert all(size <= 64 << 20 for size in logs)


def _folder(pid):
    return Path(os.readlink(f"/proc/{pid}/cwd"))


def test_honest_kernels_are_judged_right_between_attacks_and_nothing_is_left_behind(bench):
    for attack in ("ends its process", "replaces jax.jit", "leaves a thread"):
        bench.traced(bench.double, hostile(bench, ATTACKS[attack][0]))
        assessment = bench.judge(bench.double.model_copy(update={"seeds": (0,)}), bench.kernels.COPY)
        assert assessment.correct
    groups = bench.evaluator.executor.pids()
    assert len(groups) <= 3
    assert not Path("/tmp/maxkernel-was-here").exists()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert time.perf_counter() > 0


def test_kills_at_random_lose_no_verdict_and_blame_no_kernel(bench):
    """The small version of ``tests/bench/judge_faults.py``: one worker is killed while each kernel is judged."""
    import threading

    pool = bench.evaluator.executor
    task = bench.double.model_copy(update={"seeds": (0,)})
    for number in range(4):
        right = number % 2 == 0
        kernel = bench.kernels.COPY + f"\nNUMBER = {number}\n"
        source = kernel if right else kernel.replace("* 2.0", "* 2.5")
        killer = threading.Timer(0.3 * number, _kill_one, (pool, number))
        killer.start()
        assessment = bench.judge(task, source)
        killer.join()
        last = assessment.verdicts[-1]
        if last.outcome is Outcome.INFRASTRUCTURE:
            assessment = bench.judge(task, source)
            last = assessment.verdicts[-1]
        assert assessment.correct if right else (last.gate, last.outcome) == (GateName.CHECK, Outcome.FAIL), last


def _kill_one(pool, number):
    living = pool.pids()
    if living:
        os.kill(living[number % len(living)], signal.SIGKILL)

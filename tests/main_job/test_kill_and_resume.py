"""kill -9 of the notebook kernel at random moments: the run resumes to the same result and repeats nothing finished."""

import os
import random
import time

import pytest
from notebook_kernel import NotebookKernel

from maxkernel_nb.engine.state import fold
from maxkernel_nb.events import RunOutcome, Status
from maxkernel_nb.journal import read_events

KILLS = int(os.environ.get("MAXKERNEL_TEST_KILLS", "6"))  # 20 for the full trial: minutes
DEFINE = '''
%load_ext maxkernel_nb
import jax, jax.numpy as jnp
'''
SHAPES = "x: bf16[512,1024], w: bf16[1024,512], b: bf16[512]"
CELL = f'''%%maxkernel auto --chip v6e --policy ask --budget "6 candidates" --shapes "{SHAPES}"
def gelu_linear(x, w, b):
    return jax.nn.gelu(x @ w + b)
'''
FUNCTION = "def gelu_linear(x, w, b):\n    return jax.nn.gelu(x @ w + b)\n"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    kernel = NotebookKernel(folder)
    try:
        kernel.run(DEFINE)
        start = time.monotonic()
        kernel.run(CELL)
        state = _settled(folder, kernel)
        return state, time.monotonic() - start
    finally:
        kernel.shutdown()


def _folder(root):
    return root / ".maxkernel" / "runs" / "gelu_linear-1"


def _settled(root, kernel):
    kernel.run("%maxkernel wait gelu_linear-1", timeout=300)
    return fold(read_events(_folder(root)))


def _repeated(events):
    finished = [e.step for e in events if e.kind == "step-finished"]
    return [step for step in set(finished) if finished.count(step) > 1]


def _start_and_kill(folder, command, delay):
    kernel = NotebookKernel(folder)
    kernel.run(DEFINE)
    kernel.run(FUNCTION)
    kernel.run(command)
    time.sleep(delay)  # the random moment itself, not a wait for something
    kernel.kill()


@pytest.mark.slow
@pytest.mark.tpu_compiler
@pytest.mark.timeout(1200)
def test_the_run_ends_the_same_however_often_it_is_killed(tmp_path, undisturbed):
    expected, seconds = undisturbed
    dice = random.Random(20261130)
    kills, trial = 0, 0
    while kills < KILLS:
        trial += 1
        folder = tmp_path / f"trial-{trial}"
        folder.mkdir()
        command = CELL
        for _ in range(min(5, KILLS - kills)):
            _start_and_kill(folder, command, dice.uniform(0.0, 0.6 * seconds))
            kills += 1
            command = "%maxkernel resume gelu_linear-1"
            if fold(read_events(_folder(folder))).settled:
                break
        _finish_and_compare(folder, expected)


def _finish_and_compare(folder, expected):
    kernel = NotebookKernel(folder)
    try:
        kernel.run(DEFINE)
        kernel.run(FUNCTION)
        state = fold(read_events(_folder(folder)))
        if not state.ended:  # a quick run may have ended before it was killed
            kernel.run("%maxkernel resume gelu_linear-1")
            state = _settled(folder, kernel)
    finally:
        kernel.shutdown()
    events = read_events(_folder(folder))
    assert _repeated(events) == []
    assert (state.status in (Status.WAITING, Status.FINISHED)) and state.outcome != RunOutcome.FAILED
    assert (state.best, state.best_ms, state.speedup) == (expected.best, expected.best_ms, expected.speedup)
    assert set(state.candidates) == set(expected.candidates)

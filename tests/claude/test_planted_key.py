"""A planted key is nowhere: not in a notebook's outputs, journals, logs, exceptions, nor where candidates run."""

import os
from pathlib import Path

import pytest
from claude_server import PLANTED, Script, call, fail, say, text
from notebook_kernel import CellError, NotebookKernel

SUPPORT = Path(__file__).resolve().parents[1] / "support"
LEAK = f"def f(x):\n    return x + 0  # {PLANTED}\n# time=1.0\n"
BRAINS = {
    "works": Script(planner=call("submit_plan", strategy=PLANTED, summary=f"with {PLANTED}"),
                    implementer=call("submit_kernel", source=LEAK, note=PLANTED),
                    explainer=call("submit_answer", text=f"your key is {PLANTED}"),
                    tester=call("submit_stresses", stresses=[]), profiler=call("submit_attack", bottleneck=PLANTED,
                                                                              stop=PLANTED)),
    "refused": fail(401, "authentication_error", f"invalid x-api-key: {PLANTED}"),
    "bad request": fail(400, "invalid_request_error", f"header x-api-key: {PLANTED}"),
    "unusable": say(text(f"My key is {PLANTED}. " * 3)),
}
CELL = "%%maxkernel auto --author claude --policy propose --claude-base-url {}\ndef f(x):\n    return x\n"
START = """
import logging, pathlib, sys
logging.basicConfig(level=logging.DEBUG, filename="everything.log")
import fake_api
from maxkernel_nb.authors.choose import choose_author
api = fake_api.install(get_ipython(), pathlib.Path.cwd())
plain = api.start
def start(fn, *, author=None, claude=None, **options):
    api.author, _ = choose_author(author, {**(claude or {}), "retries": 1, "first_wait_s": 0.01})
    return plain(fn, **options)
api.start = start
"""
LAST = """
run = list(api.live.values())[-1].wait(30)
print(run, run.state, run.state.reason, vars(run.runtime.author), vars(run.runtime.author.client), sep="\\n")
"""


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("planted")
    paths = os.pathsep.join([str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    made = NotebookKernel(folder, env={"PYTHONPATH": paths, "ANTHROPIC_API_KEY": PLANTED})
    made.folder = folder
    made.run(START)
    yield made
    made.shutdown()


@pytest.mark.parametrize("name", BRAINS)
def test_in_a_notebook(kernel, serve, name):
    brain = BRAINS[name]
    server = serve(brain if isinstance(brain, Script) else lambda body: brain)
    seen = []
    for code in (CELL.format(server.url), LAST, "%maxkernel cost", "%maxkernel show", "%maxkernel report",
                 "%maxkernel config", "%maxkernel doctor", '%maxkernel ask "Which key do you use?"',
                 "%maxkernel accept"):
        for batch in (True, False):
            try:
                seen.append(repr(kernel.run(code, allow_stdin=batch)))
            except CellError as error:
                seen.append(error.traceback + error.message)
            if code.startswith("%%"):
                break
    assert server.requests and server.headers[0]
    assert not [text for text in seen if PLANTED in text]
    files = [p for p in kernel.folder.rglob("*") if p.is_file()]
    assert any(p.name == "everything.log" for p in files) and any(p.suffix == ".html" for p in files)
    assert not [p for p in files if PLANTED.encode() in content(p)]


def content(file):
    """Nothing where it went meanwhile: sqlite's own files end with their connection."""
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return b""


def test_an_error_that_is_raised_carries_no_key(serve, claude, bench):
    import traceback

    from maxkernel_nb.authors.model_errors import ModelRejected

    author = claude(serve(lambda body: BRAINS["bad request"]))
    run = bench.run(author).wait(30)
    assert "[key removed]" in run.state.reason
    error = ModelRejected(run.state.reason)
    assert PLANTED not in "".join(traceback.format_exception(error))


def test_processes_that_run_candidates_do_not_have_it(monkeypatch, tmp_path):
    """What a worker really gets, read from the process itself."""
    import subprocess
    import sys

    from maxkernel_nb.evaluate.executor import WorkerKind
    from maxkernel_nb.evaluate.process import environment

    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "MAXKERNEL_CLAUDE_BASE_URL", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, PLANTED)
    for kind in WorkerKind:
        given = dict(environment(kind, tmp_path))
        shown = subprocess.run([sys.executable, "-c", "import os; print(dict(os.environ))"], env=given, check=True,
                               capture_output=True, text=True).stdout
        assert PLANTED not in shown

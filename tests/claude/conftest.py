import contextlib

import anthropic  # noqa: F401  imported here, for on a busy machine that takes longer than a run is waited for
import pytest
from claude_server import PLANTED, ClaudeServer
from engine_bench import Bench

from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.keys import Key
from maxkernel_nb.authors.claude.settings import ClaudeSettings


@pytest.fixture(autouse=True)
def no_key_of_the_machine(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    made.engine.close()


@pytest.fixture
def serve():
    """``serve(brain)`` starts a server; all are closed at the end."""
    with contextlib.ExitStack() as stack:
        def start(brain, key=PLANTED):
            server = ClaudeServer(brain, key)
            stack.callback(server.close)
            return server

        yield start


@pytest.fixture
def claude():
    """``claude(server)`` is an author that talks to it, impatient as tests are."""
    def make(server, key=PLANTED, **settings):
        plain = {"base_url": server.url, "first_wait_s": 0.01, "retries": 3, "stress": False, "rounds": 0, **settings}
        return ClaudeAuthor(ClaudeSettings(**plain), key=Key(key, "the test"))

    return make

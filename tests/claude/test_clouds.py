"""Claude through Google Cloud and AWS, by their own clients and wire forms; keys from Colab and the keyring."""

import sys
import types

import pytest
from claude_server import Script, call

from maxkernel_nb.authors.claude.author import ClaudeAuthor
from maxkernel_nb.authors.claude.settings import settings_from_environment
from maxkernel_nb.events import RunOutcome, Status

GOOD = "def f(x):\n    return x + 0\n# time=1.0\n"
DATED = "claude-opus-5-5@20261101"
SCRIPT = Script(planner=call("submit_plan", strategy="s", summary="x"),
                implementer=call("submit_kernel", source=GOOD, note="a kernel"))


@pytest.fixture(autouse=True)
def nobody_is_signed_in(monkeypatch, tmp_path):
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "AWS_PROFILE", "AWS_ACCESS_KEY_ID",
                 "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")


@pytest.fixture
def author(monkeypatch):
    """An author as the environment's variables make it: no key of Claude's anywhere."""
    def make(server, provider, **variables):
        monkeypatch.setenv("MAXKERNEL_CLAUDE_PROVIDER", provider)
        monkeypatch.setenv("MAXKERNEL_CLAUDE_BASE_URL", server.url)
        monkeypatch.setenv("MAXKERNEL_CLAUDE_ROUNDS", "0")
        monkeypatch.setenv("MAXKERNEL_CLAUDE_STRESS", "off")
        for name, value in variables.items():
            monkeypatch.setenv(f"MAXKERNEL_CLAUDE_{name.upper()}", value)
        return ClaudeAuthor(settings_from_environment(retries=0))

    return make


def test_google_cloud_by_configuration(bench, serve, author, monkeypatch):
    import google.auth

    signed_in = types.SimpleNamespace(token="a-google-token", expired=False, refresh=lambda request: None)
    monkeypatch.setattr(google.auth, "default", lambda *args, **more: (signed_in, "project-of-the-login"))
    server = serve(SCRIPT)
    run = bench.run(author(server, "vertex", region="us-east5", project="p", model=DATED)).wait(60)
    assert run.state.status is Status.WAITING, run.state.reason
    assert server.headers[0]["Authorization"] == "Bearer a-google-token"
    assert server.requests[0]["model"] == DATED and run.state.spend.dollars > 0


def test_aws_by_configuration(bench, serve, author, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-aws-secret")
    server = serve(SCRIPT)
    run = bench.run(author(server, "bedrock", region="us-east-1", model="us.anthropic.claude-opus-5-5-v1:0")).wait(60)
    assert run.state.status is Status.WAITING, run.state.reason
    assert "AWS4-HMAC-SHA256" in server.headers[0]["Authorization"] and run.state.spend.dollars > 0
    files = [p.read_bytes() for p in bench.project.root.rglob("*") if p.is_file()]
    assert not any(b"planted-aws-secret" in data for data in files)


@pytest.mark.parametrize("provider, cloud", [("vertex", "Google Cloud"), ("bedrock", "AWS")])
def test_not_signed_in_is_one_sentence_and_no_retry(bench, serve, author, provider, cloud):
    server = serve(SCRIPT)
    run = bench.run(author(server, provider, region="eu-north-1")).wait(60)  # a session is kept by region
    assert run.state.outcome is RunOutcome.FAILED and not server.requests
    assert f"Claude on {cloud} cannot be asked with what is set up here" in run.state.reason
    assert "credentials" in run.state.reason.lower() and "\n" not in run.state.reason


@pytest.mark.parametrize("provider, package", [("vertex", "google"), ("bedrock", "botocore")])
def test_a_missing_package_is_named_with_the_way_to_install_it(bench, serve, author, monkeypatch, provider, package):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == package else find(name, *a))
    run = bench.run(author(serve(SCRIPT), provider)).wait(60)
    assert f"pip install 'anthropic[{provider}]'" in run.state.reason


# -- the key -----------------------------------------------------------------------------------------------------------


def test_a_key_is_found_in_the_keyring_and_a_locked_one_is_passed_over(monkeypatch):
    import importlib.util

    from maxkernel_nb.authors.claude.keys import KEYRING_SERVICE, find_key

    class KeyringError(Exception):
        pass

    def locked(service, name):
        raise KeyringError("locked")

    errors, ring = types.ModuleType("keyring.errors"), types.ModuleType("keyring")
    errors.KeyringError = KeyringError
    ring.get_password = lambda service, name: " from-the-ring " if service == KEYRING_SERVICE else None
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: ring if name == "keyring" else find(name, *a))
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert find_key().reveal() == "from-the-ring" and find_key().origin == "the system keyring"
    ring.get_password = locked
    assert find_key() is None


def test_colab_without_the_secret_or_without_leave_to_read_it_has_no_key(monkeypatch):
    from maxkernel_nb.authors.claude.keys import find_key

    class SecretNotFoundError(Exception):
        pass

    class NotebookAccessError(Exception):
        pass

    def refuse(error):
        def get(name):
            raise error

        return get

    colab = types.ModuleType("google.colab")
    monkeypatch.setitem(sys.modules, "google.colab", colab)
    for error in (SecretNotFoundError(), NotebookAccessError()):
        colab.userdata = types.SimpleNamespace(get=refuse(error), SecretNotFoundError=SecretNotFoundError,
                                               NotebookAccessError=NotebookAccessError)
        monkeypatch.setattr("google.colab", colab, raising=False)
        assert find_key() is None

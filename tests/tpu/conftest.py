"""One compile worker for all tests of a chip: the compiler is loaded once, programs are compiled once."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).with_name("programs.py")
FAULTY = Path(__file__).parents[1] / "support" / "faulty_calls.py"


def _module():
    spec = importlib.util.spec_from_file_location("tpu_test_programs", PROGRAMS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def programs():
    return _module()


def run_worker(tmp_path_factory, chip, names):
    return run_script(tmp_path_factory, PROGRAMS, chip, chip, *names)


def run_script(tmp_path_factory, script, name, *arguments):
    """What a worker script wrote to its first argument, a JSON file."""
    from maxkernel_nb.tpu.availability import compiler_available

    available, reason = compiler_available()
    if not available:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip  # CI must not pass without having compiled
        missing(reason)
    out = tmp_path_factory.mktemp("tpu") / f"{name}.json"
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, str(script), str(out), *arguments], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(out.read_text())


@pytest.fixture(scope="session")
def v6e(tmp_path_factory):
    names = ["matmul", "causal", "full", "fori", "prefetch", "masked", "scan", "xla_gemm", "elementwise"]
    names += [
        "xla_gemm@no_dump",
        "elementwise@no_dump",
        "elementwise@garbage",
        "too_big",
        "int8",
        "unaligned",
        "raised_limit",
    ]
    return run_worker(tmp_path_factory, "v6e", names)


@pytest.fixture(scope="session")
def on_v6e(tmp_path_factory):
    """Compiles the programs of these names in one worker."""
    return lambda names: run_worker(tmp_path_factory, "v6e", names)


@pytest.fixture(scope="session")
def other_chips(tmp_path_factory):
    """{chip: its results} for a kernel that the matrix units bound."""
    return {chip: run_worker(tmp_path_factory, chip, ["matmul"]) for chip in ("v4", "v5e", "v7x")}


@pytest.fixture(scope="session")
def v5p(tmp_path_factory):
    return run_worker(tmp_path_factory, "v5p", ["causal", "elementwise"])


@pytest.fixture(scope="session")
def faults(tmp_path_factory):
    """{name of a faulty kernel: its diagnosis}."""
    return run_script(tmp_path_factory, FAULTY, "faults")

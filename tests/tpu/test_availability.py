import importlib.util
import subprocess
import sys

from maxkernel_nb.tpu import availability


def test_other_platforms_are_named_in_one_sentence():
    available, reason = availability.compiler_available("darwin", "arm64")
    assert not available
    assert "Linux x86-64 only and this is darwin arm64" in reason


def test_a_missing_libtpu_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    available, reason = availability.compiler_available("linux", "x86_64")
    assert not available
    assert 'pip install "maxkernel-nb[tpu]"' in reason


def test_asking_imports_neither_jax_nor_libtpu():
    code = (
        "import sys; from maxkernel_nb.tpu import availability, chips, profiles; availability.compiler_available();"
        "print([m for m in ('jax', 'numpy', 'libtpu') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

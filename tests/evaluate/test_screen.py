"""The screen refuses what no kernel needs and lets through what real kernels use."""

import inspect

import pytest

from maxkernel_nb.evaluate.screen import screen

BODY = "def kernel(x, w, *, scale=1.0):\n    return x @ w * scale\n"


def found(source, params=("x", "w"), static=("scale",)):
    return screen(source, "kernel", params, static)


def test_a_plain_kernel_passes(bench):
    assert found(BODY) is None
    assert screen(bench.kernels.GEMM, "kernel", ("x", "w", "b"), ()) is None
    assert screen(bench.kernels.ATTENTION, "kernel", ("q", "k", "v"), ()) is None


@pytest.mark.parametrize(
    "line",
    [
        "import os",
        "import sys as jax",
        "from os import environ",
        "import subprocess",
        "import socket",
        "import ctypes",
        "import importlib",
        "import threading",
        "import time",
        "import pickle",
        "from . import secrets",
        "import jax._src.core",
        "from jax import _src",
        "from jax.experimental import io_callback",
        "from jax.extend import core",
        "from numpy import ctypeslib",
        "from numpy import load",
        "open('/etc/passwd')",
        "eval('1')",
        "exec('1')",
        "getattr(x, 'a')",
        "().__class__.__bases__",
        "__builtins__",
        "jax.config.update('jax_enable_x64', True)",
        "jax.pure_callback(f, x)",
        "jax.experimental.io_callback(f, x)",
        "np.load('x')",
        "np.savez('x')",
        "np.ctypeslib",
        "jnp.dot = f",
        "del jnp.dot",
        "pl.pallas_call(f, interpret=True)",
        "@functools.lru_cache\ndef f(): pass",
        "def f():\n    global y\n    y = 1",
        "from functools import cache as c",
        "def f(x, read=open): return read(x)",
        "def f(open): return open\nf(open)",
        "def f(cache):\n    del cache",
        "operator.attrgetter('__globals__')(f)",
        "def (",
        "x = '\\0",
    ],
)
def test_what_no_kernel_needs_is_refused_with_its_line(line):
    diagnostic = found(BODY + line + "\n")
    assert diagnostic is not None and diagnostic.message
    assert diagnostic.line >= 3 or diagnostic.kind == "syntax"


@pytest.mark.parametrize(
    "source, word",
    [
        ("def other(x, w): pass\n", "other"),
        ("def kernel(w, x, *, scale): pass\n", "parameters"),
        ("def kernel(x, w): pass\n", "scale"),
        ("def kernel(x, w, scale, extra): pass\n", "extra"),
    ],
)
def test_the_entry_must_take_the_references_parameters(source, word):
    diagnostic = found(source)
    assert diagnostic.kind == "entry" and word in diagnostic.message


@pytest.mark.parametrize(
    "source",
    [
        "def kernel(x, w, scale): pass\n",
        "def kernel(x, w, *, scale=2.0, block=128): pass\n",
        "def kernel(*args, **kw): pass\n",
        "import jax\ndef f(x, w, scale): pass\nkernel = jax.jit(f)\n",
        BODY + "y = pl.load(ref, i)\n",
        BODY + "pl.pallas_call(f, interpret=False)\n",
        BODY + "print('tracing')\n",
        BODY + "def _f(input, cache):\n    return (lambda help: help)(input) @ cache['k']\n",
    ],
)
def test_ways_to_write_an_honest_kernel_pass(source):
    assert found(source) is None


def test_jaxs_own_tpu_kernels_pass_but_for_private_imports():
    from jax.experimental.pallas.ops.tpu import flash_attention, matmul
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    for module in (flash_attention, matmul, gmm):
        source = inspect.getsource(module)
        kept = "\n".join(line for line in source.splitlines() if "jax._src" not in line)
        diagnostic = screen(kept, "missing", (), ())
        assert diagnostic.kind == "entry", f"{module.__name__}: {diagnostic}"

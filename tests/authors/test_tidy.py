"""The last pass over a rendered module."""

import ast

from maxkernel_nb.authors.recipes.tidy import tidied

SOURCE = '''# f: a kernel.

import functools
import math

import jax
import jax.numpy as jnp
from jax import lax

LIMIT = 3


def _kernel(a_ref, out_ref):
    out_ref[...] = jnp.dot(a_ref[...], a_ref[...])


def f(A, B):
    """A, B: [n, n]."""
    if A.ndim != 2:
        raise ValueError(f"not {A.shape}")
    rows, columns = A, B
    keys = B
    keys = keys + 1
    size = rows.shape[0] + columns.shape[0]
    out = jnp.dot(
        rows, columns + keys * size
    )
    return out


def g(first, *, a_name_that_is_rather_long=1, another_name_that_is_long=2, a_third_name_of_the_same_kind=3, more=4.0):
    total = (
        first + 1
    )
    return total


def h(a):
    a_long_result = jnp.einsum(EQUATION, a, a, a, a, a, preferred_element_type=jnp.float32, precision=None, HERE)
    return jax.nn.relu(a_long_result), a_long_result
'''.replace("EQUATION", '"' + "ab,bc,cd,de,ef->af" + '"').replace("HERE", "out_sharding=None")


def test_what_nobody_needs_goes_and_long_lines_break():
    made = tidied(SOURCE)
    assert made.startswith("# f: a kernel.\n\nimport jax\nimport jax.numpy as jnp\n\nLIMIT = 3\n")
    assert "rows" not in made and "size = A.shape[0] + B.shape[0]" in made
    assert "    keys = B\n    keys = keys + 1\n" in made, "a name that gets another value stays"
    assert "    return jnp.dot(\n        A, B + keys * size\n    )\n" in made
    assert "    return (\n        first + 1\n    )\n" in made
    assert "    return jax.nn.relu(a_long_result), a_long_result" in made
    assert max(map(len, made.splitlines())) <= 120
    ast.parse(made)
    assert tidied(made) == made


def test_a_name_in_an_f_string_keeps_its_alias():
    text = 'def f(x):\n    rows = x\n    return f"{rows}" + str(rows)\n'
    assert tidied(text) == text


def test_what_is_taken_apart_is_no_second_name():
    text = "def f(refs):\n    (first,) = refs\n    return first + 1\n"
    assert tidied(text) == text


def test_it_computes_the_same():
    import jax.numpy as jnp

    spaces = [{}, {}]
    for text, space in zip((SOURCE, tidied(SOURCE)), spaces, strict=True):
        exec(text, space)
    a, b = jnp.eye(2) * 3, jnp.ones((2, 2))
    assert (spaces[0]["f"](a, b) == spaces[1]["f"](a, b)).all() and spaces[0]["g"](1) == spaces[1]["g"](1)

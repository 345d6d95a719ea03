"""A function that the notebook differentiates is asked about its gradient too, and the checks say so."""

import pytest

from maxkernel_nb.magics.differentiated import differentiated, executed

HEAD = "import jax, jax.numpy as jnp\ndef scaled(x, g):\n    return x * g\n"


@pytest.mark.parametrize(
    ("cells", "call"),
    [
        (["jax.grad(scaled)(x, g)"], "jax.grad(scaled)"),
        (["def loss(p, x):\n    return scaled(x, p).sum()", "step = jax.jit(jax.value_and_grad(loss))"],
         "jax.value_and_grad(loss)"),
        (["from jax import grad as d", "d(lambda p: jnp.sum(scaled(x, p)))(g)"],
         "d(lambda p: jnp.sum(scaled(x, p)))"),
        (["import jax as j\ndiff = j.jacrev", "diff(scaled)"], "diff(scaled)"),
        (["from functools import partial\ng1 = partial(jax.grad, argnums=1)", "other = scaled", "g1(other)"],
         "g1(other)"),
        (["class Model:\n    def __call__(self, p):\n        return scaled(x, p)", "model = Model()",
          "def loss(p):\n    return model(p).mean()", "_, back = jax.vjp(loss, g)"], "jax.vjp(loss, g)"),
        (["from flax import nnx\ndef loss(m, x):\n    return m.norm(x).sum()",
          "class M:\n    def norm(self, x):\n        return scaled(x, self.g)", "nnx.value_and_grad(loss)(m, x)"],
         "nnx.value_and_grad(loss)"),
        (["get_ipython().run_cell_magic('time', '', 'jax.hessian(scaled)(x, g)\\n')"], "jax.hessian(scaled)"),
        (["@jax.grad\ndef slope(x):\n    return scaled(x, 1.0).sum()"], "slope"),
        (["jax.jacobian(fun=scaled, argnums=1)"], "jax.jacobian(fun=scaled, argnums=1)"),
    ],
)
def test_a_call_that_differentiates_the_function_is_found_under_any_name(cells, call):
    assert differentiated([HEAD, *cells], "scaled") == call


@pytest.mark.parametrize(
    "cells",
    [
        [],
        ["y = scaled(x, g)", "jax.grad(lambda x: jnp.sum(x ** 2))(x)"],
        ["jax.jit(scaled)(x, g)", "def grad(f):\n    return f", "grad(scaled)"],
        ["def loss(x):\n    return jnp.scaled(x)", "jax.grad(loss)(x)"],
        ["%bad syntax", "tensor.grad(scaled)"],
        ["'jax.grad(scaled)'  # a text, and a comment: jax.grad(scaled)"],
    ],
)
def test_what_is_not_differentiated_is_not_taken_for_it(cells):
    assert differentiated([HEAD, *cells], "scaled") == ""


def test_the_cells_of_a_real_shell_are_read(shell):
    shell.run_cell("import jax\nimport jax.numpy as jnp", store_history=True)
    shell.run_cell("def loss(p):\n    return jnp.sum(scaled(p, p))", store_history=True)
    assert not differentiated(executed(shell), "scaled")
    shell.run_cell("%%capture out\nwith_grad = jax.value_and_grad(loss)", store_history=True)
    assert differentiated(executed(shell), "scaled") == "jax.value_and_grad(loss)"


def test_a_run_is_told_which_call_differentiates_its_function(api, cell):
    cell("import jax\nimport jax.numpy as jnp\ndef loss(p):\n    return jnp.sum(scaled(p, p))\nback = jax.grad(loss)")
    body = "def scaled(x, g):\n    return x * g\n"
    cell(f"%%maxkernel auto --policy propose\n{body}")
    assert api.calls[-1]["differentiated"] == "jax.grad(loss)"
    cell(f"%%maxkernel auto --policy propose\n{body.replace('scaled', 'other')}")
    assert "differentiated" not in api.calls[-1]

import pytest

from maxkernel_nb.knowledge import guide
from maxkernel_nb.knowledge.api_check import unknown_names
from maxkernel_nb.knowledge.api_lookup import look_up


@pytest.mark.parametrize("name", ["pl.BlockSpec", "pltpu.CompilerParams", "jax.lax.dot_general", "jnp.dot", "pl.cdiv"])
def test_a_name_of_the_installed_jax_comes_with_its_signature(name):
    entry = look_up(name)
    assert entry.found and entry.signature.startswith("(")


def test_a_name_that_is_gone_brings_what_replaced_it():
    entry = look_up("pltpu.TPUCompilerParams")
    assert not entry.found and "pltpu.CompilerParams" in entry.near


def test_a_bare_name_is_found_where_it_lives():
    assert "pl.cdiv" in look_up("cdiv").near


@pytest.mark.parametrize("name", ["os.system", "pl.__class__", "jax._src.core", "builtins.open", "", "....", "pl._x.y"])
def test_nothing_outside_the_public_modules_can_be_looked_at(name):
    assert not look_up(name).found


def test_invented_names_in_a_kernel_are_found_before_it_is_judged():
    source = (
        "import jax\nimport jax.numpy as jnp\nfrom jax.experimental import pallas as pl\n"
        "from jax.experimental.pallas import tpu as pltpu\n\n"
        "def f(x):\n    p = pltpu.TPUCompilerParams()\n    return pl.gone.deeper(jnp.exp(x)) + jax.nn.gelu(x)\n"
    )
    assert {n.name: n.line for n in unknown_names(source)} == {"pltpu.TPUCompilerParams": 7, "pl.gone": 8}


def test_the_guide_names_only_what_the_installed_jax_has():
    import re

    gone = {"pltpu.TPUCompilerParams", "pltpu.ANY", "pl.load", "pl.store", "pl.load/pl.store"}
    for name in set(re.findall(r"`((?:pl|pltpu|jnp|jax\.lax)\.\w+)", guide())) - gone:
        assert look_up(name).found, name

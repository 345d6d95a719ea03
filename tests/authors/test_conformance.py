"""One suite for every recipe: what it recognises, plans, fits, bounds, writes and computes."""

import ast

import jax.numpy as jnp
import pytest

from maxkernel_nb.authors.recipes.registry import all_recipes
from maxkernel_nb.authors.recipes.tidy import tidied
from maxkernel_nb.errors import Declined
from maxkernel_nb.tpu.chips import chip
from tests.authors.recipe_samples import BF16, SAMPLES

RECIPES = {recipe.name: recipe for recipe in all_recipes()}
UNSERVED = {
    "sort": lambda x, w: jnp.sort(x, axis=-1) + w.sum(),
    "two results": lambda x, w: (x @ w, x),
    "integers": lambda x, w: (x * 3).astype(jnp.int32),
}


@pytest.fixture(params=SAMPLES)
def sample(request):
    return SAMPLES[request.param]


@pytest.fixture
def matched(bench, sample):
    name, function, timing, small = sample
    recipe = RECIPES[name]
    return recipe, recipe.match_type.from_dict(bench.recognise(name, function, timing, small).to_dict())


def test_every_recipe_has_samples():
    assert {name for name, *_ in SAMPLES.values()} == set(RECIPES)


def test_every_point_it_suggests_fits_the_chip_and_passes_its_own_check(matched):
    recipe, match = matched
    space = recipe.space(match)
    assert space.seeds
    for point in space.seeds:
        assert set(point) == set(space.axes)
        recipe.check(match, point)
        assert 0 < recipe.vmem_bytes(match, point) <= chip(match.chip).vmem_bytes
    with pytest.raises(Declined, match="unknown constants"):
        recipe.check(match, {**space.seeds[0], "NOTHING": 1})
    with pytest.raises(Declined):
        recipe.check(match, dict.fromkeys(space.seeds[0], 1))


def test_no_constants_beat_the_bound(matched):
    recipe, match = matched
    facts = chip(match.chip)
    least = recipe.bound(match).milliseconds(facts)
    assert least > 0
    for point in recipe.space(match).seeds:
        assert recipe.bound_with(match, point).milliseconds(facts) >= least * (1 - 1e-9)


def test_plan_says_what_is_done_and_which_bound_it_attacks(matched):
    recipe, match = matched
    point = recipe.space(match).seeds[0]
    plan = recipe.plan(match, point)
    assert plan.recipe == recipe.name and plan.tiling == point
    assert plan.strategy and plan.summary and plan.attacks and plan.grid and plan.memory and plan.pipelining
    assert recipe.match_type.from_dict(plan.spec) == match


def test_source_is_a_module_that_needs_jax_alone(matched):
    recipe, match = matched
    for point in recipe.space(match).seeds[:2]:
        source = tidied(recipe.render(match, point))
        tree = ast.parse(source)
        modules = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        modules |= {n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        assert {m.split(".")[0] for m in modules} <= {"jax", "functools", "math"}
        assert max(map(len, source.splitlines())) <= 120 and source.startswith(f"# {match.signature.entry}: ")
        assert all(f"\n{name} = {value}\n" in source for name, value in point.items())


def test_kernel_computes_the_function(bench, sample):
    name, function, timing, small = sample
    match = bench.recognise(name, function, timing, small)
    bench.assert_agrees(function, bench.kernel(name, match), small)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("what", UNSERVED)
def test_what_it_does_not_serve_is_declined_in_a_sentence(bench, name, what):
    function = UNSERVED[what]
    function.__name__ = "unserved"
    shapes = {"x": ((256, 256), BF16), "w": ((256, 256), BF16)}
    with pytest.raises(Declined) as reason:
        bench.recognise(name, function, shapes, shapes, source="")
    assert 10 < len(str(reason.value)) < 400


def test_limits_are_stated():
    assert all(recipe.limits and recipe.title for recipe in RECIPES.values())

"""Recognise, render and run recipes at tiny shapes, in the notebook's own process."""

import inspect

import numpy as np
import pytest

from maxkernel_nb import compat
from maxkernel_nb.authors.recipes.registry import all_recipes
from maxkernel_nb.authors.recipes.tidy import tidied
from maxkernel_nb.task import ArgSpec, Case, CaseRole, KernelTask


class RecipeBench:
    """``shapes``: parameter -> (shape, dtype), or (shape, dtype, values as a function of a numpy generator).

    The first dict is the timing case, the others are check cases.
    """

    recipes = {recipe.name: recipe for recipe in all_recipes()}  # noqa: RUF012

    def task(self, function, *shapes, chip="v6e", static=None, source=None):
        cases = tuple(
            Case(
                name=f"case{i}", role=CaseRole.CHECK if i else CaseRole.TIMING,
                args=tuple(ArgSpec(name=n, shape=s, dtype=d) for n, (s, d, *_) in arrays.items()),
            )
            for i, arrays in enumerate(shapes)
        )
        return KernelTask(
            name=function.__name__, source=source if source is not None else inspect.getsource(function),
            entry=function.__name__, params=tuple(shapes[0]), cases=cases, chip=chip, static=static or {},
        )

    def traces(self, function, task):
        import jax

        return {
            c.name: jax.make_jaxpr(lambda *a: function(*a, **task.static))(
                *[jax.ShapeDtypeStruct(a.shape, a.dtype) for a in c.args]
            )
            for c in task.cases
        }

    def recognise(self, recipe, function, *shapes, **options):
        task = self.task(function, *shapes, **options)
        return self.recipes[recipe].recognise(self.traces(function, task), task)

    def kernel(self, recipe, match, **params):
        """The rendered function, from the best guess with ``params`` changed."""
        chosen = {**self.recipes[recipe].space(match).seeds[0], **params}
        self.recipes[recipe].check(match, chosen)
        space = {}
        exec(compile(tidied(self.recipes[recipe].render(match, chosen)), "rendered", "exec"), space)
        return space[match.signature.entry]

    def draw(self, arrays, seed=0):
        import jax.numpy as jnp

        rng = np.random.default_rng(seed)
        made = []
        for shape, dtype, *values in arrays.values():
            if values:
                made.append(jnp.asarray(values[0](rng), dtype))
            elif dtype == "bool":
                made.append(jnp.asarray(rng.random(shape) < 0.7))
            elif dtype == "int8":
                made.append(jnp.asarray(rng.integers(-127, 128, shape), dtype))
            elif dtype.startswith("int"):
                made.append(jnp.asarray(rng.integers(0, 2, shape), dtype))
            else:
                made.append(jnp.asarray(rng.standard_normal(shape), dtype))
        return made

    def assert_agrees(self, function, kernel, arrays, seed=0):
        """Kernel in TPU interpret mode against the function in float32: close, same shape, dtype and NaNs."""
        import jax
        import jax.numpy as jnp
        from jax.experimental.pallas import tpu as pltpu

        args = self.draw(arrays, seed)
        with pltpu.force_tpu_interpret_mode(pltpu.InterpretParams(uninitialized_memory="nan")):
            found = kernel(*args)
        own = jax.eval_shape(function, *args)
        assert (found.shape, found.dtype) == (own.shape, own.dtype)
        wide = [a.astype(jnp.float32) if jnp.issubdtype(a.dtype, jnp.floating) else a for a in args]
        wanted = np.asarray(function(*wide), np.float64)
        found = np.asarray(found, np.float64)
        assert (np.isnan(found) == np.isnan(wanted)).all()
        scale = np.nanmax(np.abs(wanted))
        limit = 2e-2 if any(a.dtype == jnp.bfloat16 for a in (*args, own)) else 1e-4
        assert np.nanmax(np.abs(found - wanted)) <= limit * scale


@pytest.fixture(scope="session")
def bench():
    compat.prepare_host_backend()
    return RecipeBench()

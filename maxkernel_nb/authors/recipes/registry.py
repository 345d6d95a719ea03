"""The recipes the embedded engine knows, in the order they are tried."""

from __future__ import annotations

from maxkernel_nb.authors.recipes.base import Recipe


def all_recipes() -> tuple[Recipe, ...]:
    from maxkernel_nb.authors.recipes.attention import AttentionRecipe
    from maxkernel_nb.authors.recipes.composed import ComposedRecipe
    from maxkernel_nb.authors.recipes.conv import ConvRecipe
    from maxkernel_nb.authors.recipes.delta import DeltaRecipe
    from maxkernel_nb.authors.recipes.depthwise import DepthwiseRecipe
    from maxkernel_nb.authors.recipes.grouped import GroupedRecipe
    from maxkernel_nb.authors.recipes.loss import LossRecipe
    from maxkernel_nb.authors.recipes.matmul import MatmulRecipe
    from maxkernel_nb.authors.recipes.moe import MoeRecipe
    from maxkernel_nb.authors.recipes.paged import PagedRecipe
    from maxkernel_nb.authors.recipes.recurrence import RecurrenceRecipe
    from maxkernel_nb.authors.recipes.rowwise import RowwiseRecipe
    from maxkernel_nb.authors.recipes.transposed import TransposedRecipe

    alone: tuple[Recipe, ...] = (
        AttentionRecipe(), RecurrenceRecipe(), DeltaRecipe(), MatmulRecipe(), RowwiseRecipe(),
    )
    parts = ComposedRecipe({recipe.name: recipe for recipe in alone})
    convolutions: tuple[Recipe, ...] = (ConvRecipe(), DepthwiseRecipe(), TransposedRecipe())
    return (*alone, *convolutions, LossRecipe(), GroupedRecipe(), MoeRecipe(), PagedRecipe(), parts)


def recipe_named(name: str) -> Recipe:
    """Raises ``KeyError`` with the known names."""
    known = {r.name: r for r in all_recipes()}
    if name not in known:
        raise KeyError(f"no recipe {name!r}; there are {', '.join(known)}")
    return known[name]

"""Whole functions that people have: some parts in kernels, the rest in plain JAX between them."""

import ast
import inspect

import jax
import jax.numpy as jnp
import pytest

from maxkernel_nb.authors.recipes.merging import merged
from maxkernel_nb.errors import Declined
from tests.authors.whole_models import mamba_block, mlp_block, transformer_layer


def _weights(*shape):
    return shape, "bfloat16", lambda rng: rng.standard_normal(shape) * shape[0] ** -0.5


def _block_shapes(length, width):
    return {"x": ((1, length, width), "bfloat16"), "gate": _weights(width, width), "value": _weights(width, width),
            "b": _weights(width, 128), "c": _weights(width, 128), "step": _weights(width, 4),
            "step_bias": ((4,), "float32"), "rate": ((4,), "float32"), "g": ((width,), "float32"),
            "out": _weights(width, width)}


def _shapes(length, width, inner):
    return {"x": ((1, length, width), "bfloat16"), "g1": ((width,), "float32"), "packed": _weights(width, 3 * width),
            "out": _weights(width, width), "g2": ((width,), "float32"), "gate": _weights(width, inner),
            "up": _weights(width, inner), "down": _weights(inner, width)}


def _mlp_shapes(length, width, inner):
    return {"x": ((length, width), "bfloat16"), "g": ((width,), "float32"), "gate": _weights(width, inner),
            "up": _weights(width, inner), "down": _weights(inner, width)}


def _kernels(match):
    return [part.kernel for part in match.parts]


def test_a_transformer_layer_gets_several_kernels_and_fewer_or_more_as_other_choices(bench):
    small = _shapes(128, 256, 384)
    match = bench.recognise("parts", transformer_layer, _shapes(4096, 2048, 5632), small, static={"heads": 4})
    assert _kernels(match) == ["_attention", "_normed", "_product"]
    alone, everything, gated = bench.recipes["parts"].others(match)
    assert (alone.part, len(alone.arguments), len(alone.parts)) == ("attention", 3, 1)
    assert _kernels(gated) == ["_attention", "_product"]
    assert _kernels(everything) == ["_normed", "_attention", "_product", "_normed2", "_product2", "_product3"]
    bench.assert_agrees(transformer_layer, bench.kernel("parts", everything), small)


def test_a_plan_says_what_is_left_to_xla_and_what_layout_changes_move(bench):
    shapes = _shapes(4096, 2048, 5632), _shapes(128, 256, 384)
    match = bench.recognise("parts", transformer_layer, *shapes, static={"heads": 4})
    recipe = bench.recipes["parts"]
    moved = 3 * 2 * 3 * 4096 * 2048 * 2  # queries, keys and values are each cut out of the packed product
    alone = recipe.others(match)[0]
    plan = recipe.plan(alone, recipe.space(alone).seeds[0])
    assert alone.layout_bytes == moved and f"{moved / 1e6:.1f} MB" in plan.summary
    assert "3 matmul parts, which may be no faster as a kernel" in plan.summary
    told = recipe.plan(match, recipe.space(match).seeds[0])
    assert told.strategy.startswith("3 parts as kernels: _attention (") and "_product: " in told.grid
    assert recipe.match_type.from_dict(told.spec) == match.model_copy(update={"choices": ()})


def test_points_of_several_kernels_change_one_kernel_at_a_time(bench):
    match = bench.recognise("parts", mlp_block, _mlp_shapes(4096, 2048, 5632), _mlp_shapes(48, 256, 384))
    recipe = bench.recipes["parts"]
    for choice in (match, recipe.others(match)[1]):
        space = recipe.space(choice)
        prefixes = {part.kernel.strip("_").upper() for part in choice.parts}
        assert {axis.split("_")[0] for axis in space.axes} == prefixes
        for seed in space.seeds:
            recipe.check(choice, seed)
            assert len({axis.split("_")[0] for axis in seed if seed[axis] != space.seeds[0][axis]}) <= 1
        with pytest.raises(Declined, match="unknown constants BLOCK_M"):
            recipe.check(choice, {**space.seeds[0], "BLOCK_M": 128})


def test_an_mlp_block_gets_its_norm_and_its_gated_product_as_kernels(bench):
    small = _mlp_shapes(48, 256, 384)
    match = bench.recognise("parts", mlp_block, _mlp_shapes(4096, 2048, 5632), small)
    alone, everything = bench.recipes["parts"].others(match)
    assert _kernels(match) == ["_normed", "_product"] and len(alone.parts) == 1
    assert _kernels(everything) == ["_normed", "_product", "_product2"]
    source = bench.recipes["parts"].render(match, bench.recipes["parts"].space(match).seeds[0])
    functions = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    assert functions.count("_block") == 1 and functions[-1] == "mlp_block"
    assert "out_shape=jax.ShapeDtypeStruct((m, n), jnp.float32)" not in source  # written as the product reads it
    bench.assert_agrees(mlp_block, bench.kernel("parts", everything), small)


def test_a_mamba_block_gets_its_recurrence_as_a_kernel_in_chunks(bench):
    small = _block_shapes(256, 256)
    match = bench.recognise("parts", mamba_block, _block_shapes(4096, 2048), small, static={"heads": 4, "state": 128})
    assert _kernels(match) == ["_fused"] and match.part == "recurrence"
    bench.assert_agrees(mamba_block, bench.kernel("parts", match, CHUNK=128), small)
    [everything] = bench.recipes["parts"].others(match)
    assert _kernels(everything) == ["_product", "_recurrence", "_product2", "_product3"]


def gated_sum(x, w, b, r):
    return jax.nn.gelu(x @ w + b) * r + x[:, :1]


def test_a_slice_read_beside_a_product_is_taken_before_the_kernel(bench):
    def shapes(m, k, n):
        return {"x": ((m, k), "bfloat16"), "w": ((k, n), "bfloat16"), "b": ((n,), "bfloat16"),
                "r": ((m, n), "bfloat16")}

    match = bench.recognise("parts", gated_sum, shapes(2048, 4096, 4096), shapes(48, 256, 384))
    assert match.part == "matmul" and len(match.before) == 1 and not match.after
    bench.assert_agrees(gated_sum, bench.kernel("parts", match), shapes(48, 256, 384))


def triangle(pair, mask, left, left_gate, right, right_gate, scale, out, out_gate):
    masked = pair * mask
    left = (masked @ left) * jax.nn.sigmoid(masked @ left_gate)
    right = (masked @ right) * jax.nn.sigmoid(masked @ right_gate)
    y = jnp.einsum("ikc,jkc->ijc", left, right)
    return (y / jnp.sqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale @ out) * jax.nn.sigmoid(pair @ out_gate)


def test_a_triangle_multiplication_is_a_contraction_between_kernels_of_gated_rows(bench):
    def shapes(n, c):
        weights = ("left", "left_gate", "right", "right_gate", "out", "out_gate")
        found = {"pair": ((n, n, c), "bfloat16"), "mask": ((n, n, 1), "bfloat16"), "scale": ((c,), "bfloat16"),
                 **dict.fromkeys(weights, _weights(c, c))}
        return {name: found[name] for name in inspect.signature(triangle).parameters}

    match = bench.recognise("parts", triangle, shapes(512, 128), shapes(32, 128))
    assert [part.recipe for part in match.parts] == ["matmul", "matmul", "rows"] and not match.after
    assert "einsum" in match.parts[-1].before[0] and len(match.parts[-1].before) == 1
    bench.assert_agrees(triangle, bench.kernel("parts", match), shapes(32, 128))


def masked_gate(x, mask, up, gate):
    masked = x * mask
    return jnp.sum((masked @ up) * jax.nn.silu(masked @ gate), axis=0)


def test_wide_rows_are_scaled_after_their_product(bench):
    def shapes(m, k):
        return {"x": ((m, k), "bfloat16"), "mask": ((m, 1), "bfloat16"), "up": _weights(k, 256),
                "gate": _weights(k, 256)}

    match = bench.recognise("parts", masked_gate, shapes(2048, 1024), shapes(48, 512))
    assert not match.before and {"x", "mask"} <= set(match.arguments)
    bench.assert_agrees(masked_gate, bench.kernel("parts", match), shapes(48, 512))


def pooled(x, w, b):
    y = (x @ w + b).reshape(x.shape[0], -1, 16).mean(axis=-1)
    return jnp.max(jax.nn.gelu(y), axis=1)


def test_short_runs_beside_a_kernel_are_left_to_xla(bench):
    def shapes(m, k, n):
        return {"x": ((m, k), "bfloat16"), "w": ((k, n), "bfloat16"), "b": ((n,), "bfloat16")}

    match = bench.recognise("parts", pooled, shapes(2048, 2048, 4096), shapes(48, 256, 512))
    assert [part.recipe for part in match.parts] == ["matmul"] and bench.recipes["parts"].others(match) == ()


def test_names_that_two_kernels_share_get_the_kernels_name_and_equal_helpers_are_kept_once():
    def module(kernel, size):
        return (f"# {kernel}\n\nimport jax\n\nSIZE = {size}  # rows\n\n\ndef _half(x):\n    return x // 2\n\n\n"
                f"def _limit(x):\n    return min(x, SIZE)\n\n\ndef {kernel}(x):\n    return _limit(_half(x))\n")

    found = merged({"_one": module("_one", 3), "_two": module("_two", 5)}, "def f(x):\n    return _one(x) + _two(x)")
    space = {}
    exec(compile(found, "merged", "exec"), space)
    assert space["f"](100) == 8 and space["ONE_SIZE"] == 3 and space["TWO_SIZE"] == 5
    assert found.count("def _half(") == 1 and {"_one_limit", "_two_limit"} <= set(space)

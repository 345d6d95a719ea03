"""Small kernels that break one rule each, with the kind of diagnosis they must get.

The line at fault is the one that ends in ``# here``; where none does, the tools tell no line.
"""

import jax
import jax.numpy as jnp
import numpy as np
from faulty_calls import fault, rows, spec, whole
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from maxkernel_nb.compat import enable_x64

f32, bf16, i32, i8 = jnp.float32, jnp.bfloat16, jnp.int32, jnp.int8
SMEM, VMEM = pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)


def copy(x_ref, o_ref):
    o_ref[...] = x_ref[...]


# --- tracing


@fault("traced-condition")
def python_if(x):
    def kernel(x_ref, o_ref):
        if pl.program_id(0) == 0:  # here
            o_ref[...] = x_ref[...]

    return rows(kernel, x)


@fault("traced-loop-bound", spec(1, dtype=i32), spec(8, 128))
def python_range(n, x):
    def kernel(n_ref, x_ref, o_ref):
        for _ in range(n_ref[0]):  # here
            o_ref[...] = x_ref[...]

    return whole(kernel, n, x, out=spec(8, 128), in_specs=[SMEM, VMEM])


@fault("traced-size")
def slice_of_traced_size(x):
    def kernel(x_ref, o_ref):
        o_ref[0:1, :] = jnp.sum(x_ref[pl.ds(0, pl.program_id(0)), :], axis=0, keepdims=True)  # here

    return rows(kernel, x)


@fault("traced-size")
def array_of_traced_size(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jnp.zeros((pl.program_id(0), 256))  # here

    return rows(kernel, x)


@fault("captured-constant")
def table_from_outside(x):
    table = jnp.arange(256, dtype=f32)[None] * 2

    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + table

    return rows(kernel, x)  # here


@fault("index-map-arguments")
def index_map_with_one_argument(x):
    block = pl.BlockSpec((8, 128), lambda i: (i, 0))
    return whole(copy, x, grid=(4, 2), in_specs=[block], out_specs=block)  # here


@fault("index-map-result")
def index_map_divides(x):
    block = pl.BlockSpec((8, 256), lambda i: (i / 1, 0))
    return whole(copy, x, grid=(4,), in_specs=[block], out_specs=block)  # here


@fault("index-map-result")
def index_map_of_other_rank(x):
    block = pl.BlockSpec((8, 256), lambda i: (i,))
    return whole(copy, x, grid=(4,), in_specs=[block], out_specs=block)  # here


@fault("block-spec-order")
def block_spec_the_old_way(x):
    block = pl.BlockSpec(lambda i: (i, 0), (8, 256))
    return whole(copy, x, grid=(4,), in_specs=[block], out_specs=block)  # here


@fault("block-rank")
def block_of_other_rank(x):
    block = pl.BlockSpec((256,), lambda i: (i,))
    return whole(copy, x, grid=(4,), in_specs=[block], out_specs=block)  # here


@fault("spec-count", spec(32, 256), spec(32, 256))
def one_spec_for_two_inputs(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]

    block = pl.BlockSpec((8, 256), lambda i: (i, 0))
    return whole(kernel, x, y, grid=(4,), in_specs=[block], out_specs=block)  # here


@fault("kernel-arguments")
def scratch_without_a_parameter(x):
    return rows(copy, x, scratch_shapes=[pltpu.VMEM((8, 256), f32)])  # here


@fault("kernel-returns")
def kernel_that_returns(x):
    return rows(lambda x_ref, o_ref: x_ref[...] * 2, x)  # here


@fault("store-dtype", spec(32, 256, dtype=bf16))
def float32_into_bfloat16(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].astype(f32) * 2  # here

    return rows(kernel, x, block=16)


@fault("store-shape")
def reduction_without_keepdims(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sum(x_ref[...], axis=0)  # here

    return rows(kernel, x)


@fault("index-rank")
def too_many_indices(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[0, 0, :][None]  # here

    return rows(kernel, x)


@fault("index-out-of-bounds")
def slice_past_the_block(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(4, 8), :]  # here

    return rows(kernel, x)


@fault("shapes-do-not-match", spec(32, 256), spec(32, 128))
def shapes_that_do_not_broadcast(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] + y_ref[...]  # here

    return rows(kernel, x, y)


@fault("shapes-do-not-match", spec(8, 256), spec(128, 256))
def contraction_of_unequal_sizes(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.dot(x_ref[...], y_ref[...])  # here

    return whole(kernel, x, y)


@fault("reshape-size")
def reshape_to_another_size(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].reshape(16, 256)  # here

    return rows(kernel, x)


@fault("grid-not-integer")
def grid_of_a_float(x):
    block = pl.BlockSpec((8, 256), lambda i: (i, 0))
    return whole(copy, x, grid=(32 / 8,), in_specs=[block], out_specs=block)  # here


@fault("grid-axis")
def program_id_beyond_the_grid(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * pl.program_id(1)  # here

    return rows(kernel, x)


@fault("dimension-semantics")
def invented_semantics(x):
    return rows(copy, x, compiler_params=pltpu.CompilerParams(dimension_semantics=("sequential",)))  # here


@fault("dimension-semantics")
def semantics_of_other_length(x):
    return rows(copy, x, compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")))  # here


@fault("alias")
def alias_of_another_dtype(x):
    return rows(lambda x_ref, o_ref: None, x, into=bf16, input_output_aliases={0: 0})  # here


@fault("alias")
def alias_beyond_the_inputs(x):
    return rows(copy, x, input_output_aliases={3: 0})  # here


@fault("compiler-params")
def params_as_a_dict(x):
    return rows(copy, x, compiler_params={"mosaic": {"dimension_semantics": ("parallel",)}})  # here


@fault("unknown-attribute")
def old_compiler_params(x):
    return rows(copy, x, compiler_params=pltpu.TPUCompilerOptions(vmem_limit_bytes=1 << 20))  # here


@fault("unknown-attribute")
def old_load(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = pl.load_block(x_ref, (0, 0))  # here

    return rows(kernel, x)


@fault("unknown-argument")
def keyword_that_pallas_has_not(x):
    return rows(copy, x, num_warps=4)  # here


@fault("unknown-name")
def name_that_is_nowhere(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * scale  # noqa: F821  # here

    return rows(kernel, x)


@fault("cost-estimate")
def cost_in_floats(x):
    return rows(copy, x, cost_estimate=pl.CostEstimate(flops=1e9, transcendentals=0, bytes_accessed=1))  # here


@fault("numpy-on-traced")
def numpy_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.asarray(np.tanh(np.asarray(x_ref[...])))  # here

    return rows(kernel, x)


@fault("immutable-array")
def assignment_to_a_value(x):
    def kernel(x_ref, o_ref):
        y = x_ref[...]
        y[0, :] = 0.0  # here
        o_ref[...] = y

    return rows(kernel, x)


@fault("ref-as-value")
def ref_in_arithmetic(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.tanh(x_ref)  # here

    return rows(kernel, x)


@fault("loop-carry")
def carry_of_another_type(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.fori_loop(0, 4, lambda i, c: jnp.sum(x_ref[...] + c, axis=0), x_ref[...])  # here

    return rows(kernel, x)


@fault("branch-results")
def branches_of_unequal_shape(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.cond(pl.program_id(0) == 0, lambda: x_ref[...], lambda: x_ref[0:1, :])  # here

    return rows(kernel, x)


@fault("captured-constant")
def value_that_leaves_its_branch(x):
    def kernel(x_ref, o_ref):
        kept = []

        @pl.when(pl.program_id(0) == 0)
        def _():
            kept.append(x_ref[...] * 2)

        o_ref[...] = kept[0] + 1

    return rows(kernel, x)  # here


@fault("no-gradient", spec(8, 128))
def gradient_through_a_kernel(x):
    return jax.grad(lambda y: jnp.sum(whole(copy, y)))(x)  # here


@fault("out-shape", spec(8, 128))
def out_shape_that_is_no_shape(x):
    return whole(copy, x, out=(8, 128))  # here


# --- lowering


@fault("block-alignment", spec(40, 200))
def block_of_five_rows(x):
    return rows(copy, x, block=5)  # here


@fault("rank-1-block", spec(960))
def short_one_dimensional_block(x):
    block = pl.BlockSpec((96,), lambda i: (i,))
    return whole(copy, x, grid=(10,), in_specs=[block], out_specs=block)  # here


@fault("block-in-any-space")
def block_in_hbm(x):
    block = pl.BlockSpec((8, 256), lambda i: (i, 0), memory_space=pl.ANY)
    return rows(lambda x_ref, o_ref: None, x, in_specs=[block])  # here


@fault("unsupported-sort")
def sort_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.sort(x_ref[...])  # here

    return rows(kernel, x)


@fault("unsupported-sort")
def top_k_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.top_k(x_ref[...], 256)[0]  # here

    return rows(kernel, x)


@fault("unsupported-cumulative")
def cumsum_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.cumsum(x_ref[...], axis=0)  # here

    return rows(kernel, x)


@fault("slice-of-value")
def dynamic_slice_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.dynamic_slice(x_ref[...], (pl.program_id(0), 0), (8, 256))  # here

    return rows(kernel, x)


@fault("update-of-value")
def dynamic_update_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.dynamic_update_slice(x_ref[...], jnp.zeros((1, 256)), (pl.program_id(0), 0))  # here

    return rows(kernel, x)


@fault("update-of-value")
def at_set_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].at[pl.program_id(0), :].set(0.0)  # here

    return rows(kernel, x)


@fault("gather", spec(32, 256), spec(32, 256))
def gather_inside(x, y):
    def kernel(x_ref, i_ref, o_ref):
        o_ref[...] = x_ref[...][i_ref[:, 0].astype(i32)]  # here

    return rows(kernel, x, y)


@fault("unsupported-reverse")
def flip_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.flip(x_ref[...], axis=0)  # here

    return rows(kernel, x)


@fault("unsupported-function")
def exact_gelu_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.nn.gelu(x_ref[...], approximate=False)  # here

    return rows(kernel, x)


@fault("unsupported-function")
def cbrt_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.cbrt(x_ref[...])  # here

    return rows(kernel, x)


@fault("unsupported-function")
def lgamma_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.lgamma(x_ref[...])  # here

    return rows(kernel, x)


@fault("complex")
def fft_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.abs(jnp.fft.fft(x_ref[...]))  # here

    return rows(kernel, x)


@fault("scan-outputs", spec(8, 128))
def scan_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.scan(lambda c, _: (c + 1.0, x_ref[0, :] + c), 0.0, None, length=8)[1]  # here

    return whole(kernel, x)


@fault("host-callback")
def callback_inside(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.pure_callback(np.tanh, spec(8, 256), x_ref[...])  # here

    return rows(kernel, x)


@fault("host-callback")
def callback_around(x):
    return rows(copy, jax.pure_callback(np.tanh, spec(32, 256), x))  # here


@fault("negative-shift")
def roll_backwards(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = pltpu.roll(x_ref[...], -1, 1)  # here

    return rows(kernel, x)


@fault("strided-slice")
def every_second_lane(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...][:, ::2]  # here

    return rows(kernel, x, out=(32, 128))


@fault("interior-padding")
def padding_between(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jax.lax.pad(x_ref[...], 0.0, ((0, 0, 0), (0, 1, 1)))  # here

    return rows(kernel, x, out=(32, 512))


@fault("float-iota")
def arange_of_floats(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] + jax.lax.broadcasted_iota(f32, (8, 256), 1)  # here

    return rows(kernel, x)


@fault("matmul-accumulator", *[spec(128, 128, dtype=bf16)] * 2)
def accumulator_in_bfloat16(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jax.lax.dot(x_ref[...], y_ref[...])  # here

    return whole(kernel, x, y)


@fault("matmul-precision", *[spec(128, 128, dtype=bf16)] * 2)
def highest_on_bfloat16(x, y):
    def kernel(x_ref, y_ref, o_ref):
        highest = jax.lax.Precision.HIGHEST
        o_ref[...] = jax.lax.dot(x_ref[...], y_ref[...], precision=highest, preferred_element_type=f32)  # here

    return whole(kernel, x, y, out=spec(128, 128))


@fault("matmul-contraction", spec(8, 8, 128), spec(8, 128, 128))
def two_contracting_axes(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jax.lax.dot_general(x_ref[...], y_ref[...], (((1, 2), (0, 1)), ((), ())))  # here

    return whole(kernel, x, y, out=spec(8, 128))


@fault("vector-dot", spec(8, 128), spec(8, 128))
def dot_of_vectors(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jnp.full((8, 128), jnp.dot(x_ref[0, :], y_ref[0, :]))  # here

    return whole(kernel, x, y)


@fault("float16", spec(32, 256, dtype=jnp.float16))
def half_precision(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2  # here

    return rows(kernel, x, block=16)


@fault("scalar-to-vmem")
def scalar_into_vmem(x):
    def kernel(x_ref, o_ref):
        o_ref[0, 0] = jnp.sum(x_ref[...])  # here

    return rows(kernel, x)


@fault("array-in-smem", spec(1, 128), spec(8, 128))
def whole_smem_ref(s, x):
    def kernel(s_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[...]  # here

    return whole(kernel, s, x, out=spec(8, 128), in_specs=[SMEM, VMEM])


@fault("small-integers", spec(32, 256, dtype=i8))
def product_of_bytes(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] * x_ref[...]  # here

    return rows(kernel, x, block=32)


@fault("small-integers", spec(32, 256, dtype=i8))
def shift_of_bytes(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...] >> 1  # here

    return rows(kernel, x, block=32)


@fault("integer-reduction", spec(32, 256, dtype=i8))
def maximum_of_bytes(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = jnp.broadcast_to(jnp.max(x_ref[...], axis=1, keepdims=True), (32, 256))  # here

    return rows(kernel, x, block=32)


@fault("float64")
def an_array_of_64_bits(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = (x_ref[...].astype(jnp.float64) * 2).astype(f32)  # here

    with enable_x64():
        return rows(kernel, x)


@fault("float64")
def an_index_map_of_64_bits(x):
    with enable_x64():
        return rows(copy, x)  # here


@fault("dma-mismatch")
def copy_of_unequal_shapes(x):
    def kernel(x_ref, o_ref, sem):
        pltpu.make_async_copy(x_ref.at[0:16], o_ref, sem).start()  # here

    space = pl.BlockSpec(memory_space=pl.ANY)
    scratch = [pltpu.SemaphoreType.DMA]
    return whole(kernel, x, out=spec(8, 256), in_specs=[space], out_specs=space, scratch_shapes=scratch)


# --- the TPU compiler


@fault("packed-rows", spec(32, 256, dtype=i8))
def eight_rows_of_bytes(x):
    return rows(copy, x)  # here


@fault("unaligned-index")
def rows_at_any_start(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(pl.program_id(0) * 3, 8), :]  # here

    return rows(kernel, x, in_specs=[pl.BlockSpec((32, 256), lambda i: (0, 0))])


@fault("unaligned-index", spec(8, 256))
def lanes_at_any_start(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[:, pl.ds(pl.program_id(0) * 3, 128)]  # here

    wide, out = pl.BlockSpec((8, 256), lambda i: (0, 0)), pl.BlockSpec((8, 128), lambda i: (0, i))
    return whole(kernel, x, grid=(2,), in_specs=[wide], out_specs=out)


@fault("dma-alignment")
def copy_of_thirteen_rows(x):
    def kernel(x_ref, o_ref, sem):
        copied = pltpu.make_async_copy(x_ref.at[pl.ds(0, 13), pl.ds(0, 100)], o_ref, sem)
        copied.start()  # here
        copied.wait()

    space = pl.BlockSpec(memory_space=pl.ANY)
    scratch = [pltpu.SemaphoreType.DMA]
    return whole(kernel, x, out=spec(13, 100), in_specs=[space], out_specs=space, scratch_shapes=scratch)


@fault("shape-cast", spec(16, 256), chip="v4")
def lanes_split(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[...].reshape(16, 4, 64).sum(axis=1)  # here

    return whole(kernel, x, out=spec(16, 64))


@fault("shape-cast")
def mask_from_a_vector(x):
    def kernel(x_ref, o_ref):
        numbers = jax.lax.broadcasted_iota(i32, (8,), 0)
        o_ref[...] = jnp.where((numbers < 4)[:, None], x_ref[...], 0.0)  # here

    return rows(kernel, x)


@fault("lane-gather", spec(32, 256), spec(32, 256))
def take_along_many_lanes(x, y):
    def kernel(x_ref, i_ref, o_ref):
        o_ref[...] = jnp.take_along_axis(x_ref[...], i_ref[...].astype(i32), axis=1)  # here

    return rows(kernel, x, y)


@fault("vmem-exceeded", spec(20480, 2048))
def blocks_over_the_limit(x):
    return rows(copy, x, block=1280)  # here


@fault("vmem-exceeded", spec(512, 128), spec(512, 128))
def temporaries_over_the_limit(x, y):
    def kernel(x_ref, y_ref, o_ref):
        s = jax.lax.dot_general(x_ref[...], y_ref[...], (((1,), (1,)), ((), ())))
        o_ref[...] = jnp.dot(jnp.exp(s - jnp.max(s, axis=1, keepdims=True)), y_ref[...])

    return whole(kernel, x, y, compiler_params=pltpu.CompilerParams(vmem_limit_bytes=1 << 20))  # here


@fault("vmem-window", spec(65536, 1024))
def one_window_over_the_chip(x):
    return whole(lambda x_ref, o_ref: None, x)  # here


@fault("smem-exceeded", spec(4096, 1, dtype=i32), spec(8, 128))
def table_over_the_scalar_memory(s, x):
    def kernel(s_ref, x_ref, o_ref):
        o_ref[...] = x_ref[...] * s_ref[0, 0].astype(f32)

    return whole(kernel, s, x, out=spec(8, 128), in_specs=[SMEM, VMEM])  # here


@fault("matmul-dtype", *[spec(128, 128, dtype=i8)] * 2, chip="v4")
def bytes_on_an_old_matrix_unit(x, y):
    def kernel(x_ref, y_ref, o_ref):
        o_ref[...] = jax.lax.dot(x_ref[...], y_ref[...], preferred_element_type=i32)  # here

    return whole(kernel, x, y, out=spec(128, 128, dtype=i32))


@fault("hbm-exceeded", spec(1 << 24, 512))
def arrays_over_the_chips_memory(x):
    return rows(copy, x)  # here


# --- the interpreter


@fault("out-of-bounds-read", run=True)
def read_past_the_end(x):
    def kernel(x_ref, o_ref):
        o_ref[...] = x_ref[pl.ds(pl.program_id(0) * 8 + 8, 8), :]

    return rows(kernel, x, in_specs=[pl.BlockSpec((32, 256), lambda i: (0, 0))])


@fault("out-of-bounds-write", run=True)
def write_past_the_end(x):
    def kernel(x_ref, o_ref):
        o_ref[pl.ds(pl.program_id(0) * 8 + 8, 8), :] = x_ref[...]

    return rows(kernel, x, out_specs=pl.BlockSpec((32, 256), lambda i: (0, 0)))

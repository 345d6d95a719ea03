"""Programs for the tests of the TPU model; run as a script it is the worker that compiles them.

``python programs.py OUT.json CHIP NAME...`` writes {name: profile or failure}.
"""

import json
import os
import sys
import tempfile


def build(name):
    """(function, argument specs) of a test program."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    spec, bf16, f32 = jax.ShapeDtypeStruct, jnp.bfloat16, jnp.float32

    def rows(block, width=None):
        return pl.BlockSpec((block, width or 1024), lambda i: (i, 0))

    def double(x_ref, o_ref):
        o_ref[...] = x_ref[...] * 2

    def call(kernel, shape, dtype=f32, grid=(4,), block=8, **kw):
        io = rows(block, shape[1])
        return (
            lambda x: pl.pallas_call(
                kernel, grid=grid, in_specs=[io], out_specs=io, out_shape=spec(shape, dtype), **kw
            )(x),
            [spec(shape, dtype)],
        )

    def matmul():
        m, k, n, bm, bk, bn = 2048, 2048, 2048, 512, 512, 1024

        def kernel(x_ref, y_ref, o_ref, acc):
            @pl.when(pl.program_id(2) == 0)
            def _init():
                acc[...] = jnp.zeros_like(acc)

            acc[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=f32)

            @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
            def _epilogue():
                o_ref[...] = jnp.tanh(acc[...]).astype(o_ref.dtype)

        def fn(x, y):
            return pl.pallas_call(
                kernel,
                grid=(m // bm, n // bn, k // bk),
                in_specs=[
                    pl.BlockSpec((bm, bk), lambda i, j, k: (i, k)),
                    pl.BlockSpec((bk, bn), lambda i, j, k: (k, j)),
                ],
                out_specs=pl.BlockSpec((bm, bn), lambda i, j, k: (i, j)),
                out_shape=spec((m, n), bf16),
                scratch_shapes=[pltpu.VMEM((bm, bn), f32)],
                compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
            )(x, y)

        return fn, [spec((m, k), bf16), spec((k, n), bf16)]

    def attention(causal):
        heads, length, dim, block = 2, 2048, 128, 256

        def kernel(q_ref, k_ref, o_ref, acc):
            i, j = pl.program_id(1), pl.program_id(2)

            @pl.when(j == 0)
            def _init():
                acc[...] = jnp.zeros_like(acc)

            def step():
                s = jax.lax.dot_general(q_ref[0], k_ref[0], (((1,), (1,)), ((), ())), preferred_element_type=f32)
                acc[...] += jnp.dot(jnp.exp(s).astype(bf16), k_ref[0], preferred_element_type=f32)

            pl.when(j <= i)(step) if causal else step()

            @pl.when(j == pl.num_programs(2) - 1)
            def _out():
                o_ref[0] = acc[...].astype(o_ref.dtype)

        def block_spec(index):
            return pl.BlockSpec((1, block, dim), index)

        def fn(q, k):
            return pl.pallas_call(
                kernel,
                grid=(heads, length // block, length // block),
                in_specs=[block_spec(lambda b, i, j: (b, i, 0)), block_spec(lambda b, i, j: (b, j, 0))],
                out_specs=block_spec(lambda b, i, j: (b, i, 0)),
                out_shape=spec((heads, length, dim), bf16),
                scratch_shapes=[pltpu.VMEM((block, dim), f32)],
                compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
            )(q, k)

        return fn, [spec((heads, length, dim), bf16)] * 2

    def loop(prefetch):
        def kernel(*refs):
            *counts, x_ref, o_ref = refs
            i = pl.program_id(0)
            trips = counts[0][i] if counts else i + 1

            def body(t, carry):
                return carry + jnp.tanh(x_ref[pl.ds(t * 128, 128), :])

            o_ref[...] = jax.lax.fori_loop(0, trips, body, jnp.zeros((128, 256), f32))

        grid_spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=int(prefetch),
            grid=(16,),
            in_specs=[pl.BlockSpec((2048, 256), lambda i, *_: (0, 0))],
            out_specs=pl.BlockSpec((128, 256), lambda i, *_: (i, 0)),
        )

        def fn(*args):
            return pl.pallas_call(kernel, grid_spec=grid_spec, out_shape=spec((2048, 256), f32))(*args)

        return fn, [*([spec((16,), jnp.int32)] if prefetch else []), spec((2048, 256), f32)]

    def scan():
        def fn(x, w):
            return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=37)[0]

        return fn, [spec((512, 512), bf16)] * 2

    def masked():
        """Blocks that a constant table switches on, as splash attention has it; another says which block comes."""
        on = np.tril(np.ones((1, 8, 8), np.int8))

        def kernel(on_ref, order_ref, x_ref, o_ref):
            @pl.when(on_ref[0, pl.program_id(0), pl.program_id(1)].astype(jnp.int32) == 1)
            def _add():
                o_ref[...] = jnp.dot(x_ref[...], x_ref[...], preferred_element_type=f32)

        grid_spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(8, 8),
            in_specs=[pl.BlockSpec((256, 256), lambda i, j, on_ref, order_ref: (order_ref[j], 0))],
            out_specs=pl.BlockSpec((256, 256), lambda i, j, *_: (i, 0)),
        )

        def fn(x):
            call = pl.pallas_call(kernel, grid_spec=grid_spec, out_shape=spec((2048, 256), f32))
            return call(jnp.asarray(on), jnp.arange(8, dtype=jnp.int32), x)

        return fn, [spec((2048, 256), bf16)]

    def two(x_ref, y_ref, o_ref):
        o_ref[...] = x_ref[...] * y_ref[0:1, :]

    def beside(mode):
        other = pl.BlockSpec((8192, 2048), lambda i: (0, 0), **({"pipeline_mode": mode} if mode else {}))
        call = pl.pallas_call(
            two,
            grid=(16,),
            in_specs=[rows(64, 2048), other],
            out_specs=rows(64, 2048),
            out_shape=spec((1024, 2048), f32),
        )
        return call, [spec((1024, 2048), f32), spec((8192, 2048), f32)]

    def unaligned(x_ref, o_ref):
        o_ref[...] = x_ref[:, pl.ds(pl.program_id(0) * 3, 1024)]

    def scratchy(x_ref, o_ref, s_ref):
        s_ref[0:8, :] = x_ref[...]
        o_ref[...] = s_ref[0:8, :]

    def scratch_of(rows, kept=True):
        def kernel(x_ref, o_ref, s_ref):
            @pl.when(pl.program_id(0) == 0)
            def _first():
                s_ref[...] = jnp.zeros_like(s_ref)

            s_ref[pl.ds(pl.program_id(0) * 64, 64), :] += x_ref[...]
            o_ref[...] = s_ref[0:64, :]

        def passing(x_ref, o_ref, s_ref):
            s_ref[0:64, :] = x_ref[...]
            o_ref[...] = s_ref[0:64, :]

        shapes = [pltpu.VMEM((rows, 1024), f32)]
        return call(kernel if kept else passing, (256, 1024), block=64, scratch_shapes=shapes)

    def blocks_of(block, dtype=f32, steps=4, scratch=(), **more):
        """Copies an array of ``steps`` blocks, with a constant operand in HBM that no block is taken of."""

        def kernel(x_ref, big_ref, o_ref, *_):
            o_ref[...] = x_ref[...]

        at = pl.BlockSpec(block, lambda i: (i,) + (0,) * (len(block) - 1))
        shape = (steps * (block[0] or 1), *block[1:])
        call = pl.pallas_call(
            kernel,
            grid=(steps,),
            in_specs=[at, pl.BlockSpec(memory_space=pl.ANY)],
            out_specs=at,
            out_shape=spec(shape, dtype),
            scratch_shapes=list(scratch),
            **more,
        )
        return call, [spec(shape, dtype), spec((1 << 16, 1024), f32)]

    mib = 1 << 18  # float32 words
    makers = {
        "blocks_just_fit": lambda: blocks_of((1984, 1024)),  # 31 of 32 MiB
        "blocks_just_over": lambda: blocks_of((2112, 1024)),  # 33
        "scratch_just_fits": lambda: scratch_of(30 * mib // 1024),
        "scratch_just_over": lambda: scratch_of(32 * mib // 1024),
        "passing_scratch_fits": lambda: scratch_of(40 * mib // 1024, kept=False),
        "unused_scratch_fits": lambda: blocks_of((64, 1024), scratch=[pltpu.VMEM((40 * mib // 1024, 1024), f32)]),
        "narrow_over": lambda: blocks_of((40960, 64)),  # 40 MiB by its numbers
        "squeezed_fit": lambda: blocks_of((None, 1984, 1024)),
        "bfloat16_fit": lambda: blocks_of((3968, 1024), bf16),
        "bytes_fit": lambda: blocks_of((7936, 1024), jnp.int8),
        "narrow_fit": lambda: blocks_of((8192, 64)),  # 8 MiB, 16 with the lanes' padding
        "one_step_fit": lambda: blocks_of((3968, 1024), steps=1),  # held once
        "one_step_over": lambda: blocks_of((4224, 1024), steps=1),
        "raised_fit": lambda: blocks_of((6144, 1024), compiler_params=pltpu.CompilerParams(vmem_limit_bytes=100 << 20)),
        "matmul": matmul,
        "causal": lambda: attention(True),
        "full": lambda: attention(False),
        "fori": lambda: loop(False),
        "prefetch": lambda: loop(True),
        "scan": scan,
        "masked": masked,
        "xla_gemm": lambda: (lambda a, b: jnp.tanh(a @ b), [spec((2048, 2048), bf16)] * 2),
        "elementwise": lambda: call(double, (4096, 1024), block=512, grid=(8,)),
        "too_big": lambda: call(double, (20480, 2048), block=1280, grid=(16,)),
        "far_too_big": lambda: call(double, (65536, 8192), block=8192, grid=(8,)),
        "raised_limit": lambda: call(
            double, (20480, 512), block=1280, grid=(16,), compiler_params=pltpu.CompilerParams(vmem_limit_bytes=8 << 20)
        ),
        "scratch": lambda: call(scratchy, (32, 1024), scratch_shapes=[pltpu.VMEM((1024, 1024), f32)]),
        "constant_index": lambda: beside(None),
        "buffered": lambda: beside(pl.Buffered(1)),
        "int8": lambda: call(double, (32, 1024), dtype=jnp.int8, block=8),
        "unaligned": lambda: (
            lambda x: pl.pallas_call(
                unaligned,
                grid=(2,),
                in_specs=[pl.BlockSpec((128, 2048), lambda i: (0, 0))],
                out_specs=pl.BlockSpec((128, 1024), lambda i: (0, 0)),
                out_shape=spec((128, 1024), f32),
            )(x),
            [spec((128, 2048), f32)],
        ),
        "bad_block": lambda: call(double, (40, 200), block=5),
        "sort": lambda: call(lambda x_ref, o_ref: o_ref.__setitem__(..., jnp.sort(x_ref[...])), (32, 1024)),
    }
    return makers[name]()


def exported(name):
    import jax
    import jax.export

    fn, specs = build(name)
    return jax.export.export(jax.jit(fn), platforms=["tpu"])(*specs).serialize()


def profiled(name, chip, folder):
    """``NAME@no_dump`` and ``NAME@garbage`` compile NAME and then model it without dumps, or with unreadable ones."""
    from pathlib import Path

    from maxkernel_nb.tpu import aot, model

    name, _, spoilt = name.partition("@")
    if not spoilt:
        return model.profile_exported(exported(name), chip, __file__)
    compiled = aot.compile_exported(exported(name), chip)
    for path in Path(folder).iterdir():
        path.write_text("of another form\n")
    profile = model.profile_compiled(compiled, None if spoilt == "no_dump" else Path(folder))
    for path in Path(folder).iterdir():
        path.unlink()
    return profile


def main(out, chip, *names):
    from maxkernel_nb.tpu.aot import worker_environment

    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(worker_environment(folder))
        from maxkernel_nb.tpu.failures import CompileFailure

        results = {}
        for name in names:
            try:
                profile = profiled(name, chip, folder)
                results[name] = {"profile": profile.to_dict(), "text": profile.explain()}
            except CompileFailure as f:
                results[name] = {"failure": [f.kind.value, f.message, f.advice, f.line], **f.numbers()}
            results[name]["left"] = len(os.listdir(folder))
    with open(out, "w") as file:
        json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])

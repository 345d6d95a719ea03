"""Programs for a device that is a CPU: exported as a judge stores them, with the ground that a gate needs."""

import jax
import jax.export
import jax.numpy as jnp

from maxkernel_nb.evaluate.calls import Caller
from maxkernel_nb.evaluate.ground import Ground, Limits
from maxkernel_nb.evaluate.records import Records
from maxkernel_nb.task import ArgSpec, Candidate, Case, CaseRole, KernelTask, ReferenceArtefacts
from maxkernel_nb.tasks.oracle import Oracle

SHAPE = (96, 96)


def products(times):
    """``times`` products in a row: real work that grows with it."""
    def program(x, w):
        for _ in range(times):
            x = jnp.tanh(x @ w)
        return x

    return program


def forever(x, w):
    return jax.lax.while_loop(lambda y: jnp.all(y == y), lambda y: jnp.tanh(y @ w), x)


def wrong_at_one_place(times):
    def program(x, w):
        return products(times)(x, w).at[-1, -1].add(0.5)

    return program


def wrong_between_the_rows(times):
    """Right in the rows that are held against the oracle, wrong in another."""
    def program(x, w):
        return products(times)(x, w).at[2, 5].add(0.5)

    return program


def exported(function, shape=SHAPE, platform="cpu"):
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32)] * 2
    return bytes(jax.export.export(jax.jit(function), platforms=[platform])(*specs).serialize())


def oracle(function, shape=SHAPE):
    from maxkernel_nb.compat import enable_x64

    closed = jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(shape, jnp.float32)] * 2)
    with enable_x64(True):
        wide = [jax.ShapeDtypeStruct(shape, jnp.float64)] * 2
        evaluate = Oracle(closed, "float64")
        return bytes(jax.export.export(jax.jit(lambda *a: evaluate(*a)[0]), platforms=["cpu"])(*wide).serialize())


def ground(store, executor, reference, candidate, shape=SHAPE):
    """As if every gate before the chip's had passed. ``reference`` and ``candidate`` are functions."""
    args = tuple(ArgSpec(name=n, shape=shape, dtype="float32", draw={"std": 0.1}) for n in "xw")
    task = KernelTask(
        name="products", source="", entry="f", params=("x", "w"),
        cases=(Case(name="full", role=CaseRole.TIMING, args=args),),
        references=(ReferenceArtefacts(case="full", device=store.put(exported(reference, shape)),
                                       oracle=store.put(oracle(reference, shape))),),
    )
    made = Ground(task, Candidate(source="", entry="kernel", author="test"), (), Caller(executor), store,
                  Records(store), Limits())
    made.exports["full"] = store.put(exported(candidate, shape))
    made.facts["full"] = {"outputs": {"leaves": [{"shape": list(shape), "dtype": "float32"}]}, "fingerprint": ""}
    return made

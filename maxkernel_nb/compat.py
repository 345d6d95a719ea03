"""Differences between jax versions (0.7.2 to 0.10.2; calibration compiles with 0.6.2), each in one small function."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterator
from typing import Any


def enable_x64(on: bool = True) -> contextlib.AbstractContextManager[None]:
    """64-bit types within the context: ``jax.enable_x64`` since 0.8, ``jax.experimental.enable_x64`` before."""
    import jax

    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    import jax.experimental

    return getattr(jax.experimental, "enable_x64")(on)  # noqa: B009 -- gone from newer versions' types


@contextlib.contextmanager
def no_source_locations() -> Iterator[None]:
    """Lowered modules carry no file names (a notebook cell's name changes with every kernel, and so would a digest)."""
    import jax

    name = "jax_traceback_in_locations_limit"
    previous = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, previous)


def prepare_host_backend(though_attached: bool = False) -> None:
    """Has jax choose its CPU backend, where no accelerator is attached and nobody chose another.

    ``jax.export`` asks for the default backend. With libtpu installed and no TPU, that question loads libtpu, which
    takes a second and writes log lines into the notebook. A no-op once any backend is in use. ``though_attached``: also
    where an accelerator is attached, because another process is to hold it.
    """
    import jax

    if getattr(jax.config, "jax_platforms", None):
        return
    if not though_attached and any(
        glob.glob(pattern) for pattern in ("/dev/accel*", "/dev/vfio/[0-9]*", "/dev/nvidia[0-9]*")
    ):
        return
    jax.config.update("jax_platforms", "cpu")
    try:
        jax.local_devices()
    finally:
        jax.config.update("jax_platforms", None)


def backends_in_use() -> bool:
    """True once this process's jax has chosen its backends. Asking starts none; no public API tells."""
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def evaluated(closed: Any, args: Any) -> list[Any]:
    """A closed jaxpr's results on concrete arrays, computed by the host."""
    import jax
    from jax.extend.core import jaxpr_as_fun

    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        return list(jax.jit(jaxpr_as_fun(closed))(*args))


def inner_jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    """Every open jaxpr among an equation's parameters."""
    for value in params.values():
        for item in value if isinstance(value, tuple | list) else (value,):
            item = getattr(item, "jaxpr", item)
            if hasattr(item, "eqns") and hasattr(item, "invars"):
                yield item


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations of a jaxpr (open or closed) and of the jaxprs inside it."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield eqn
        for inner in inner_jaxprs(eqn.params):
            yield from equations(inner)


def is_float(dtype: Any) -> bool:
    """True for every real floating type, with bfloat16 and the 8-bit ones; False for key types."""
    import jax
    import jax.numpy as jnp

    return not jax.dtypes.issubdtype(dtype, jax.dtypes.extended) and jnp.issubdtype(dtype, jnp.floating)


def is_number(aval: Any) -> bool:
    """True for arrays of numbers and booleans; False for random keys and tokens."""
    import jax

    return hasattr(aval, "dtype") and not jax.dtypes.issubdtype(aval.dtype, jax.dtypes.extended)


def bind_equation(eqn: Any, inputs: Any, params: dict[str, Any]) -> list[Any]:
    """Evaluates one equation with other parameters. Older jax hands inner functions over apart from the parameters."""
    bound = eqn.primitive.get_bind_params(params)
    functions, keywords = bound if isinstance(bound, tuple) else ((), bound)
    out = eqn.primitive.bind(*functions, *inputs, **keywords)
    return list(out) if eqn.primitive.multiple_results else [out]


def mlir_context() -> Any:
    """An MLIR context that can read StableHLO text and the bytecode of Mosaic kernels. No public API offers one."""
    from jax._src.interpreters import mlir
    from jax._src.lib import tpu

    context = mlir.make_ir_context()
    context.allow_unregistered_dialects = True
    tpu.register_dialect(context)
    return context


_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2", "custom_jvp_call",
                    "custom_vjp_call", "custom_vjp_call_jaxpr"})  # fmt: skip
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # the parameter that holds a call's program


def called(equation: Any) -> tuple[Any, Any] | None:
    """The jaxpr and the constants of the program that a call runs on its operands; None where it is no call."""
    if equation.primitive.name not in _CALLS:
        return None
    inner = next(equation.params[name] for name in _BODIES if equation.params.get(name) is not None)
    return getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())


def is_literal(atom: Any) -> bool:
    """True for a jaxpr's inline constant, False for a variable (``Literal`` has moved between modules)."""
    return hasattr(atom, "val")


def precision_name(precision: Any) -> str:
    """``"HIGHEST"``, ``"HIGH"`` or ``""``: what a ``dot_general`` was asked for, across jax's spellings of it."""
    first = precision[0] if isinstance(precision, tuple) else precision
    name = getattr(first, "name", str(first or ""))
    return name if name in ("HIGHEST", "HIGH") else ""


def abstract_mesh(mesh: Any) -> contextlib.AbstractContextManager[Any]:
    """Lowering within the context sees ``mesh`` without devices. Public since 0.7; 0.6 keeps it in ``jax._src``."""
    import jax

    if hasattr(jax.sharding, "use_abstract_mesh"):
        return jax.sharding.use_abstract_mesh(mesh.abstract_mesh)
    from jax._src import mesh as older

    return older.use_abstract_mesh(mesh.abstract_mesh)

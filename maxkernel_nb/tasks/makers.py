"""A case's inputs made by a function of a random key, kept as data: for values that no independent draws can give.

Page tables, group sizes that must add up, tokens that lie between no two experts: where arguments must fit together,
a function makes them all. It is exported once (StableHLO), travels inside the case, and every worker makes the same
arrays from the case and the seed. The function's Python is never run by a worker.
"""

from __future__ import annotations

import base64
import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.errors import TaskError
from maxkernel_nb.task import ArgSpec, Case, CaseRole
from maxkernel_nb.values import content_hash

Make = Callable[[Any], Sequence[Any]]  # jax.random key -> one array for each argument, in order


def made_case(name: str, role: CaseRole, params: Sequence[str], make: Make) -> Case:
    """A case whose arguments ``params`` are the arrays that ``make(key)`` gives. Nothing is drawn here.

    Raises ``TaskError`` when ``make`` cannot be traced with a key, or gives another number of arrays.
    """
    import jax
    from jax import export

    def program(data: Any) -> tuple[Any, ...]:
        return tuple(make(jax.random.wrap_key_data(data)))

    compat.prepare_host_backend()
    with compat.no_source_locations():
        try:
            data = jax.ShapeDtypeStruct((2,), np.uint32)
            exported = export.export(jax.jit(program), platforms=["cpu"])(data)
            packed = base64.b85encode(zlib.compress(bytes(exported.serialize()), 9)).decode()
        except (TypeError, ValueError, NotImplementedError, RuntimeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise TaskError(
                f"The inputs of case {name!r} cannot be made from a key ({reason[:240]}); let the function draw them "
                "with jax.random alone."
            ) from error
    if len(exported.out_avals) != len(params):
        raise TaskError(
            f"The function for case {name!r} gives {len(exported.out_avals)} arrays for the {len(params)} parameters "
            f"{', '.join(params)}; let it give one for each."
        )
    made = zip(params, exported.out_avals, strict=True)
    args = tuple(ArgSpec(name=n, shape=tuple(a.shape), dtype=str(a.dtype)) for n, a in made)
    return Case(name=name, role=role, args=args, maker=packed)


def make_arrays(case: Case, seed: int) -> list[np.ndarray]:
    """The arrays of a made case: the same for the same case and seed, everywhere."""
    digest = content_hash([case.name, seed, case.maker])
    data = np.frombuffer(bytes.fromhex(digest[:16]), np.uint32)
    return [np.asarray(a) for a in _program(case.maker)(data)]


@functools.lru_cache(maxsize=16)
def _program(packed: str) -> Callable[..., Any]:
    import jax
    from jax import export

    exported = export.deserialize(bytearray(zlib.decompress(base64.b85decode(packed))))
    return jax.jit(exported.call)

"""An exported program on a device: deserialised, compiled there, called. Never a candidate's Python."""

from __future__ import annotations

import dataclasses
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.values import content_hash


@dataclass(frozen=True)
class Program:
    """``call`` takes device arrays and gives the flat outputs. ``name`` holds the digest of the exported bytes and the
    device's number, and is what the trace shows: so what was timed is what was judged, and where. Sizes in bytes.
    """

    name: str
    call: Callable[..., Any]
    outputs: tuple[Any, ...]
    input_bytes: int
    output_bytes: int
    temporary_bytes: int
    custom_calls: bool


def load(exported: bytes, side: str, device: Any) -> Program:
    """Raises ``InfrastructureError`` when the bytes are no program, jax's own errors when it cannot be compiled."""
    import jax

    program = _deserialised(exported, device.platform)
    name = f"mk_{side}_{content_hash(exported)[:10]}_{device.id}"

    def call(*arguments: Any) -> Any:
        return jax.tree.leaves(program.call(*arguments))

    call.__name__ = name
    sharding = jax.sharding.SingleDeviceSharding(device)
    specs = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in program.in_avals]
    compiled = jax.jit(call).lower(*specs).compile()
    return Program(
        name=name,
        call=compiled,
        outputs=tuple(program.out_avals),
        input_bytes=_bytes(program.in_avals),
        output_bytes=_bytes(program.out_avals),
        temporary_bytes=_temporaries(compiled),
        custom_calls="tpu_custom_call" in program.mlir_module(),
    )


def _deserialised(exported: bytes, platform: str) -> Any:
    import jax.export

    try:
        program = jax.export.deserialize(bytearray(exported))
    except (ValueError, KeyError, IndexError, AssertionError, TypeError, struct.error) as error:
        raise InfrastructureError(f"The exported program cannot be read back ({error}).") from error
    if platform in program.platforms:
        return program
    if platform == "cpu" and "tpu_custom_call" not in program.mlir_module():
        # A rehearsal: plain StableHLO lowered for a TPU is as good as any for the CPU.
        return dataclasses.replace(program, platforms=("cpu",))
    raise InfrastructureError(f"The program was exported for {', '.join(program.platforms)}, not for {platform}.")


def _bytes(avals: Any) -> int:
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in avals)


def _temporaries(compiled: Any) -> int:
    found = compiled.memory_analysis()
    return int(getattr(found, "temp_size_in_bytes", 0) or 0) + int(
        getattr(found, "generated_code_size_in_bytes", 0) or 0
    )

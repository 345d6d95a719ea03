"""Ahead-of-time compilation for a TPU that is not here. To be used inside a worker process, never in the notebook.

The worker is started with ``worker_environment``: libtpu reads its flags once, when it loads, so the dump folder is
fixed for the worker's life.
"""

from __future__ import annotations

import functools
import os
import re
import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxkernel_nb import compat
from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.tpu.availability import compiler_available
from maxkernel_nb.tpu.chips import chip as chip_named
from maxkernel_nb.tpu.failures import CompileFailure, compile_failure

DUMP_LABELS = "final_bundles|final_hlo-static-per-bundle-utilization"


def worker_environment(dump_dir: str | Path | None = None) -> dict[str, str]:
    """Variables to set before jax is imported in a compile worker. ``dump_dir`` (existing, the worker's own) turns
    the schedule dumps on; without it the worker compiles faster and models from HLO estimates."""
    env = {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        # Silences libtpu's start-up remarks about worker hostnames.
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "TPU_ACCELERATOR_TYPE": "v6e-1",
        "TPU_STDERR_LOG_LEVEL": "3",
        "TPU_MIN_LOG_LEVEL": "3",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "GRPC_VERBOSITY": "NONE",
        "LIBTPU_INIT_ARGS": "",
    }
    if dump_dir is not None:
        env["LIBTPU_INIT_ARGS"] = (
            f"--xla_jf_dump_to={dump_dir} --xla_jf_dump_llo_text=true"
            f" --xla_jf_dump_llo_pass_label_regex=.*({DUMP_LABELS}).*"
        )
    return env


def dump_folder() -> Path | None:
    """The folder that this process's libtpu dumps to, read from its flags; None where dumps are off."""
    found = re.search(r"--xla_jf_dump_to=(\S+)", os.environ.get("LIBTPU_INIT_ARGS", ""))
    return Path(found.group(1)) if found else None


@dataclass(frozen=True)
class Compiled:
    """A program compiled for one chip. ``executable`` is jax's ``Compiled`` (it cannot run here); ``module`` the
    StableHLO text with Mosaic bodies that it was compiled from; ``compile_s`` wall seconds."""

    chip: str
    executable: Any
    module: str
    compile_s: float

    @property
    def hlo(self) -> str:
        """The scheduled HLO text."""
        return self.executable.as_text()

    @property
    def serialized_hlo(self) -> bytes:
        """The same as a protocol buffer, which holds large constants too; empty where this jax does not give it."""
        try:
            modules = self.executable.runtime_executable().hlo_modules()
            return bytes(modules[0].as_serialized_hlo_module_proto())
        except (AttributeError, IndexError, NotImplementedError):
            return b""


@functools.cache
def topology_devices(chip: str) -> tuple[Any, ...]:
    """The devices of ``chip``'s one-chip topology (0.1-0.8 s the first time).

    Raises:
        InfrastructureError: libtpu is missing or does not know this chip.
    """
    available, reason = compiler_available()
    if not available:
        raise InfrastructureError(reason)
    import jax
    from jax.experimental import topologies

    facts = chip_named(chip)
    try:
        found = topologies.get_topology_desc(
            platform="tpu", topology_name=facts.topology, chips_per_host_bounds=facts.bounds
        )
    except (jax.errors.JaxRuntimeError, ValueError, NotImplementedError) as error:
        raise InfrastructureError(
            f"The installed libtpu cannot aim at {chip} ({str(error).splitlines()[0][:200]}): "
            "choose another chip or install a newer jax[tpu]."
        ) from error
    return tuple(found.devices)


def compile_exported(serialized: bytes, chip: str, source_file: str = "") -> Compiled:
    """Compiles ``jax.export`` bytes (made for platform "tpu") for ``chip`` with the real TPU compiler.

    Raises:
        CompileFailure: the compiler refuses the program.
        InfrastructureError: no compiler here, or the bytes are not an exported program.
    """
    import jax

    device = topology_devices(chip)[0]
    exported = _deserialise(serialized)
    sharding = jax.sharding.SingleDeviceSharding(device)
    args = [jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=sharding) for a in exported.in_avals]
    tree = jax.tree.unflatten(exported.in_tree, args)
    begun = time.monotonic()
    with abstract_mesh(device):
        try:
            executable = jax.jit(exported.call).lower(*tree[0], **tree[1]).compile()
        except (jax.errors.JaxRuntimeError, ValueError, TypeError, NotImplementedError) as error:
            raise compile_failure(error, source_file, chip_named(chip).vmem_bytes) from error
        except Exception as error:  # MosaicError derives from Exception and has no public name
            if "pallas" not in type(error).__module__:
                raise
            raise compile_failure(error, source_file, chip_named(chip).vmem_bytes) from error
    return Compiled(
        chip=chip,
        executable=executable,
        module=exported.mlir_module(),
        compile_s=time.monotonic() - begun,
    )


def abstract_mesh(device: Any) -> Any:
    """A context in which lowering believes it runs on ``device``'s chip (rank-1 blocks need to know)."""
    import jax
    import numpy as np

    mesh = jax.sharding.Mesh(np.array([device]), ("x",))
    return compat.abstract_mesh(mesh)


def _deserialise(serialized: bytes) -> Any:
    import jax.export

    try:
        exported = jax.export.deserialize(bytearray(serialized))
    except (ValueError, KeyError, IndexError, AssertionError, TypeError, struct.error) as error:
        raise InfrastructureError(f"The exported program cannot be read back ({error}).") from error
    if "tpu" not in exported.platforms:
        raise InfrastructureError(f"The program was exported for {exported.platforms}, not for tpu.")
    return exported


__all__ = ["CompileFailure", "Compiled", "abstract_mesh", "compile_exported", "topology_devices", "worker_environment"]

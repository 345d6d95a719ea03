"""Within one kernel's tuning space: modelled time beside the compiler's own bundle counts and bytes."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from maxkernel_nb.errors import InfrastructureError
from maxkernel_nb.tpu.profiles import OpProfile
from maxkernel_nb.values import Value

WORKER = "maxkernel_nb.tpu.calibration.order"
DMA_BOUND = 1.1  # HBM time over compute time from which a configuration waits for bytes
SPILLING = 20.0  # percent of a loop's store slots from which it counts as spilling
CONFIGURATIONS = 20


class Point(Value):
    """One configuration. ``bundles``: cycles it runs; ``gigabytes``: through HBM; ``spills``: spill slots in its
    program, ``spilling``: percent of the store slots of its loops that spill registers to VMEM as it runs;
    ``busiest``: what the profile says its kernel is bound by; ``busy``: percent of its cycles that the busiest unit
    works, ``moving``: that the busier of loads and stores does, spills and fills among them.
    """

    label: str
    modelled_ms: float = 0.0
    bundles: float = 0.0
    gigabytes: float = 0.0
    compute_ms: float = 0.0
    memory_ms: float = 0.0
    spills: int = 0
    spilling: float = 0.0
    busiest: str = ""
    busy: float = 0.0
    moving: float = 0.0
    refused: str = ""

    @property
    def dma_bound(self) -> bool:
        return self.memory_ms > DMA_BOUND * self.compute_ms

    @property
    def bound(self) -> str:
        """What limits it: DMA, spills where they keep the load and store units as busy as any, else the busiest unit.

        A kernel may spill in many of its store slots and not be bound by it: a tile larger than the registers lies in
        VMEM between two passes over it, and the stores fill slots that would be idle.
        """
        words = ["DMA-bound"] * (self.dma_bound or self.busiest == "dma")
        words += ["spill-bound"] * (self.moving >= self.busy and self.spilling > SPILLING)
        return " and ".join(words) or f"bound by {self.busiest or 'nothing'}"


class Space(NamedTuple):
    """``build(**choice)`` gives (function, argument specs); ``choices`` are the configurations."""

    build: Callable[..., tuple[Callable[..., Any], tuple[Any, ...]]]
    choices: tuple[dict[str, int], ...]


def _matmul(m: int, n: int, k: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.matmul import matmul

    spec = jax.ShapeDtypeStruct((4096, 4096), jnp.bfloat16)
    return lambda a, b: matmul(a, b, block_shape=(m, n), block_k=k), (spec, spec)


def _flash(q: int, major: int, k: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu import flash_attention as flash

    sizes = flash.BlockSizes(block_q=q, block_k_major=major, block_k=k, block_b=1)
    spec = jax.ShapeDtypeStruct((2, 8, 4096, 128), jnp.bfloat16)
    return lambda *qkv: flash.flash_attention(*qkv, causal=True, sm_scale=128**-0.5, block_sizes=sizes), (spec,) * 3


def _spread(choices: list[dict[str, int]]) -> tuple[dict[str, int], ...]:
    """``CONFIGURATIONS`` of them, evenly over the list."""
    step = len(choices) / CONFIGURATIONS
    return tuple(choices[int(i * step)] for i in range(min(CONFIGURATIONS, len(choices))))


SPACES: dict[str, Space] = {
    "matmul": Space(
        _matmul,
        _spread([
            {"m": m, "n": n, "k": k}
            for m, n, k in itertools.product((256, 512, 1024, 2048), (256, 512, 1024, 2048), (256, 512, 1024, 2048))
        ]),
    ),
    "flash": Space(
        _flash,
        _spread([
            {"q": q, "major": major, "k": k}
            for q, major, k in itertools.product((128, 256, 512, 1024, 2048), (256, 512, 1024, 2048), (256, 512, 1024))
            if k <= major
        ]),
    ),
}  # fmt: skip


def points(space: str, chip: str) -> list[Point]:
    """Compiles every configuration of a space in a worker process: what each would take on ``chip``, fastest first.

    Raises:
        InfrastructureError: the worker ended early.
    """
    from maxkernel_nb.tpu.aot import worker_environment

    with tempfile.TemporaryDirectory(prefix="maxkernel-order-") as dumps:
        ran = subprocess.run(
            [sys.executable, "-m", WORKER, space, chip],
            env={**os.environ, **worker_environment(dumps)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if ran.returncode:
        raise InfrastructureError(f"The compiles of {space} ended early: {ran.stderr.strip().splitlines()[-1:]}")
    found = [Point.model_validate_json(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda p: (bool(p.refused), p.modelled_ms))


def order(space: str, chip: str) -> Iterator[str]:
    """The table of a space, and what its best configuration is bound by."""
    found = points(space, chip)
    yield f"{space} on {chip}: {len(found)} configurations, modelled fastest first"
    heads = (("modelled", 11), ("bundles", 13), ("GB", 8), ("compute", 10), ("HBM", 9), ("busiest", 9), ("ld/st", 7),
             ("spills", 8), ("running", 9))  # fmt: skip
    yield f"{'configuration':28}" + "".join(f"{text:>{width}}" for text, width in heads)
    for p in found:
        if p.refused:
            yield f"{p.label:28} refused: {p.refused[:80]}"
            continue
        yield (
            f"{p.label:28}{p.modelled_ms:8.4f} ms{p.bundles:13.0f}{p.gigabytes:8.3f}{p.compute_ms:10.4f}"
            f"{p.memory_ms:9.4f}{p.busy:8.1f}%{p.moving:6.1f}%{p.spills:8}{p.spilling:8.1f}%  {p.bound}"
        )
    yield from _verdict([p for p in found if not p.refused])


def _verdict(ran: list[Point]) -> Iterator[str]:
    if not ran:
        yield "nothing compiled"
        return
    best, fewest = ran[0], min(ran, key=lambda p: p.bundles)
    if best.spilling > SPILLING:
        yield (
            f"the best spills in {best.spilling:.0f} % of its store slots: its tile is larger than the registers. "
            f"Loads and stores, spills among them, are busy in {best.moving:.0f} % of its cycles, the busiest unit in "
            f"{best.busy:.0f} %: without any spill it would still take {best.compute_ms * best.busy / 100:.3f} ms at "
            "least"
        )
    yield (
        f"best: {best.label}: {best.bound}, {best.spilling:.0f} % of its store slots spill; "
        f"{best.bundles / fewest.bundles:.2f} x the bundles of {fewest.label}, which has the fewest, and "
        f"{best.gigabytes / max(fewest.gigabytes, 1e-9):.2f} x its bytes"
    )


def main(space: str, chip: str) -> None:
    """The worker: a line of JSON for each configuration."""
    for choice in SPACES[space].choices:
        sys.stdout.write(_point(SPACES[space], choice, chip).model_dump_json() + "\n")
        sys.stdout.flush()


def _point(space: Space, choice: dict[str, int], chip: str) -> Point:
    import jax
    import jax.export

    from maxkernel_nb.tpu import aot
    from maxkernel_nb.tpu.model import profile_exported

    label = " ".join(f"{name}={size}" for name, size in choice.items())
    fn, specs = space.build(**choice)
    try:
        with aot.abstract_mesh(aot.topology_devices(chip)[0]):
            exported = jax.export.export(jax.jit(fn), platforms=["tpu"])(*specs)
        p = profile_exported(bytes(exported.serialize()), chip)
    except (aot.CompileFailure, ValueError, NotImplementedError) as refused:
        return Point(label=label, refused=str(refused).splitlines()[0])
    kernels = [o for o in p.ops if o.kind == "pallas"]
    main = max(kernels, key=lambda o: o.modelled_ms, default=None)
    used = main.utilisation if main else {}
    return Point(
        label=label,
        modelled_ms=p.modelled_ms,
        bundles=sum(o.bundles for o in p.ops),
        gigabytes=p.hbm_bytes / 1e9,
        compute_ms=sum(o.compute_ms for o in p.ops),
        memory_ms=sum(o.memory_ms for o in p.ops),
        spills=sum(o.spills for o in kernels),
        spilling=100 * max((_spilling(o) for o in kernels), default=0.0),
        busiest=main.bound_by if main else "",
        busy=100 * max(used.values(), default=0.0),
        moving=100 * max(used.get("vload", 0.0), used.get("vstore", 0.0)),
    )


def _spilling(op: OpProfile) -> float:
    return sum(loop.share * loop.utilisation.get("spill", 0.0) for loop in op.loops)


if __name__ == "__main__":
    main(*sys.argv[1:])

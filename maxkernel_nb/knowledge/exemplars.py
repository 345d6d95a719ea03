"""Verified kernels to learn from, chosen by how much their computation resembles the task's."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Exemplar:
    """``primitives``: how often each jax primitive occurs in the computation it implements."""

    name: str
    primitives: tuple[tuple[str, int], ...]

    @property
    def source(self) -> str:
        return resources.files("maxkernel_nb.knowledge").joinpath(f"exemplar_{self.name}.py").read_text()


EXEMPLARS = (
    Exemplar("matmul", (("dot_general", 1), ("add", 1), ("max", 1), ("broadcast_in_dim", 1))),
    Exemplar("rownorm", (("mul", 3), ("reduce_sum", 1), ("div", 1), ("rsqrt", 1), ("add", 1), ("broadcast_in_dim", 2))),
    Exemplar("attention", (("dot_general", 2), ("exp", 1), ("reduce_max", 1), ("reduce_sum", 1), ("sub", 1),
                           ("div", 1), ("mul", 1), ("select_n", 1), ("broadcast_in_dim", 3))),
)
# Bookkeeping that says nothing about what is computed.
_IGNORED = {"convert_element_type", "pjit", "jit", "closed_call", "custom_jvp_call", "reshape", "squeeze",
            "stop_gradient", "copy", "core_call", "transpose"}
# A shared rare primitive says more than a shared common one.
_WEIGHT = {"broadcast_in_dim": 0.2, "add": 0.4, "mul": 0.4, "sub": 0.5, "div": 0.5, "dot_general": 2.0, "exp": 2.0,
           "reduce_max": 2.0, "rsqrt": 2.0, "select_n": 0.7}


def primitives_of(jaxpr: Any) -> Counter[str]:
    """Counts over the jaxpr and every jaxpr inside it."""
    from maxkernel_nb.compat import equations

    return Counter(e.primitive.name for e in equations(jaxpr) if e.primitive.name not in _IGNORED)


def similarity(left: Counter[str], right: Counter[str]) -> float:
    """Cosine of the weighted, damped counts: 1 for the same mixture, 0 for nothing in common."""
    def vector(counts: Counter[str]) -> dict[str, float]:
        return {name: _WEIGHT.get(name, 1.0) * math.sqrt(count) for name, count in counts.items()}

    a, b = vector(left), vector(right)
    norm = math.sqrt(sum(v * v for v in a.values())) * math.sqrt(sum(v * v for v in b.values()))
    return sum(v * b.get(name, 0.0) for name, v in a.items()) / norm if norm else 0.0


def nearest(jaxpr: Any, count: int = 1) -> list[Exemplar]:
    """The exemplars most like the computation, best first; ties by name, so the choice is reproducible."""
    wanted = primitives_of(jaxpr)
    ranked = sorted(EXEMPLARS, key=lambda e: (-similarity(wanted, Counter(dict(e.primitives))), e.name))
    return ranked[:count]

"""What one step of a loop over time does to its state: found by trying the step on drawn numbers, in float64.

Steps are spelled in many ways (``S - b k (k S)``, ``(I - b k k^T) S``, einsums over heads, ``vmap``), but all of them
are polynomials in what they read. Two polynomials that agree on drawn numbers are the same one, so a step is held
against the formula instead of being parsed. Anything in it that is no polynomial is refused first.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from maxkernel_nb.authors.recipes.canonical import GraphBuilder
from maxkernel_nb.authors.recipes.expressions import describe
from maxkernel_nb.authors.recipes.graph import LAYOUT_OPS, Graph, Node
from maxkernel_nb.authors.recipes.numeric import NoValue, values
from maxkernel_nb.authors.recipes.scans import Loop
from maxkernel_nb.authors.recipes.views import is_positional
from maxkernel_nb.errors import Declined

_POLYNOMIAL = frozenset({"param", "const", "array", "iota", "dot", "add", "sub", "mul", "neg", "reduce_sum", "cast",
                         "square", *LAYOUT_OPS})


@dataclass(frozen=True)
class StepRoles:
    """``S' = a S + k u^T``, ``y = scale * S'^T q``, where ``u = b (v - a S^T k)`` (``delta``) or ``u = b v``.

    Numbers are those of the step's inputs; ``decay`` and ``beta`` are -1 where there is none. ``rates``: a for each
    element of ``batch`` where it is a number, else None.
    """

    q: int
    k: int
    v: int
    decay: int
    beta: int
    delta: bool
    rates: np.ndarray | None
    scale: float
    batch: tuple[int, ...]
    head_dim: int
    v_dim: int


def step_roles(loop: Loop) -> StepRoles:
    """Raises ``Declined`` with the first thing that no formula known here does."""
    if loop.num_carry != 1 or len(loop.step.outvars) != 2:
        raise Declined(f"its loop carries {loop.num_carry} arrays and gives {len(loop.step.outvars) - loop.num_carry} "
                       "for each step, this recipe serves one state and one result")
    return _Step(loop).roles()


class _Step:
    def __init__(self, loop: Loop) -> None:
        self.graph, self.carry = _graph(loop), loop.num_consts
        _check_polynomial(self.graph)
        shapes = {n.attr("index"): n.shape for n in self.graph.nodes if n.op == "param"}
        self.shapes = [shapes[i] for i in range(len(shapes))]
        state, out = (self.graph[n].shape for n in self.graph.outputs)
        if self.shapes[self.carry] != state or len(state) != len(out) + 1 or state[:-2] != out[:-1]:
            raise Declined(f"its loop carries an array {list(state)} and gives {list(out)} a step: no matrix")
        self.batch, self.v_dim = out[:-1], out[-1]
        used = self.used(*self.graph.outputs) - {self.carry}
        vectors = (*self.batch, self.v_dim), (*self.batch, *({*state[-2:]} - {self.v_dim} or {self.v_dim}))
        self.vectors = sorted(i for i in used if self.shapes[i] in vectors and self.shapes[i] != self.batch)
        self.gates = sorted(used - set(self.vectors))
        for gate in self.gates:
            if gate_axes(self.shapes[gate], self.batch) is None:
                raise Declined(f"a step reads an array {list(self.shapes[gate])}, neither a vector nor a number a head")

    def used(self, *roots: int) -> set[int]:
        live = self.graph.ancestors(*roots)
        return {self.graph[n].attr("index") for n in live if self.graph[n].op == "param"}

    def drawn(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.uniform(0.2, 0.9, s) if i in self.gates else rng.standard_normal(s)
                for i, s in enumerate(self.shapes)]

    def run(self, given: list[np.ndarray]) -> list[np.ndarray]:
        try:
            return values(self.graph, 0, given)
        except NoValue as op:
            raise Declined(f"a step of its loop takes {op}, which is not evaluated here") from None

    def gate(self, given: list[np.ndarray], number: int) -> np.ndarray:
        axes = gate_axes(self.shapes[number], self.batch)
        return np.broadcast_to(given[number].reshape(axes or ()), self.batch)

    def roles(self) -> StepRoles:
        written = self.used(self.graph.outputs[0])
        readers = [i for i in self.vectors if i not in written]
        writers = [i for i in self.vectors if i in written]
        if len(readers) != 1 or len(writers) != 2:
            raise Declined(f"a step writes its state from {len(writers)} vectors and reads it with {len(readers)}; "
                           "this recipe serves a key and a value, and a query")
        decay, rates = self.decay()
        betas = [-1, *(g for g in self.gates if g != decay)]
        draws = [self.drawn(seed) for seed in (0, 1)]
        found = [self.run(given) for given in draws]
        for (k, v), beta, delta, turned in product(permutations(writers), betas, (True, False), (False, True)):
            made = [self.written(given, (k, v, decay, beta), rates, delta, turned) for given in draws]
            if all(m is not None and np.allclose(m, f[0], rtol=1e-8, atol=1e-8)
                   for m, f in zip(made, found, strict=True)):
                scale = self.read(draws, found, readers[0], turned)
                return StepRoles(readers[0], k, v, decay, beta, delta, rates, scale, self.batch,
                                 self.shapes[k][-1], self.v_dim)
        raise Declined("a step of its loop is neither a decaying sum of keys times values nor a delta rule")

    def decay(self) -> tuple[int, np.ndarray | None]:
        """The input that the state is multiplied by, or the numbers."""
        shares = []
        for seed in (2, 3):
            given = self.drawn(seed)
            for i in self.vectors:
                given[i] = np.zeros_like(given[i])
            ratio = self.run(given)[0] / given[self.carry]
            share = ratio[..., 0, 0]
            if not np.allclose(ratio, share[..., None, None], rtol=1e-9, atol=0):
                raise Declined("its state decays by more than one number for each head and step")
            shares.append((given, share))
        for gate in self.gates:
            if all(np.allclose(share, self.gate(given, gate), rtol=1e-9) for given, share in shares):
                return gate, None
        (_, one), (_, other) = shares
        if not np.allclose(one, other, rtol=1e-12) or (one <= 0).any():
            raise Declined("its state is multiplied by something other than one input or a positive number")
        return -1, None if np.allclose(one, 1.0, rtol=1e-12) else one

    def written(self, given: list[np.ndarray], numbers: tuple[int, int, int, int], rates: np.ndarray | None,
                delta: bool, turned: bool) -> np.ndarray | None:
        """The state after the step by the formula, or None where the shapes do not fit it."""
        key, value, decay, beta = numbers
        state, k, v = given[self.carry], given[key], given[value]
        state = state.swapaxes(-1, -2) if turned else state
        if k.shape[-1] != state.shape[-2] or v.shape[-1] != state.shape[-1] or v.shape[-1] != self.v_dim:
            return None
        share = self.gate(given, decay) if decay >= 0 else np.ones(self.batch) if rates is None else rates
        state = state * share[..., None, None]
        error = v - (k[..., None, :] @ state)[..., 0, :] if delta else v
        if beta >= 0:
            error = error * self.gate(given, beta)[..., None]
        state = state + k[..., :, None] * error[..., None, :]
        return state.swapaxes(-1, -2) if turned else state

    def read(self, draws: list[list[np.ndarray]], found: list[list[np.ndarray]], query: int, turned: bool) -> float:
        scales = []
        for given, (state, out) in zip(draws, found, strict=True):
            state = state.swapaxes(-1, -2) if turned else state
            wanted = (given[query][..., None, :] @ state)[..., 0, :]
            scales.append(float((out * wanted).sum() / (wanted * wanted).sum()))
            if not np.allclose(out, wanted * scales[-1], rtol=1e-7, atol=1e-8):
                raise Declined("a step's result is not its state, as just written, read by a query")
        if abs(scales[0] - scales[1]) > 1e-9 * abs(scales[0]):
            raise Declined("a step's result is scaled by an input")
        return float(f"{scales[0]:.9g}")  # of a quotient of sums; the number was shorter


def gate_axes(shape: tuple[int, ...], batch: tuple[int, ...]) -> tuple[int, ...] | None:
    """``shape`` as it meets ``batch``: ones at its end dropped, missing axes in front; None where it does not."""
    kept = list(shape)
    while kept and (len(kept) > len(batch) or kept[-1:] != list(batch[-1:])) and kept[-1] == 1:
        kept.pop()
    kept = [1] * (len(batch) - len(kept)) + kept
    fits = len(kept) == len(batch) and all(a in (1, b) for a, b in zip(kept, batch, strict=True))
    return tuple(kept) if fits else None


def _graph(loop: Loop) -> Graph:
    builder = GraphBuilder()
    params = [
        builder.graph.add(Node("param", (), tuple(v.aval.shape), str(v.aval.dtype), (("index", i),)))
        for i, v in enumerate(loop.step.invars)
    ]
    consts = [builder.array(np.asarray(c)) for c in loop.consts]
    builder.graph.outputs = tuple(builder.run(loop.step, consts, params))
    return builder.graph


def _check_polynomial(graph: Graph) -> None:
    for number in sorted(graph.reachable()):
        node = graph[number]
        by_number = node.op == "div" and graph[node.inputs[1]].op == "const"
        if node.op not in _POLYNOMIAL and not by_number and not is_positional(graph, number):
            raise Declined(f"a step of its loop takes {describe(graph, number)} of what it carries or mixes")

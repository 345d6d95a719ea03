"""Recognising attention over a paged key/value cache: roles from shapes, then the traced function tried on values.

A page table makes gathers and loops in as many spellings as there are authors. So the parameters' shapes suggest which
is which, the jaxpr's loops say how many sequences bring how many queries, and the suggestion is believed only where the
smallest case's jaxpr, evaluated on drawn values, gives what the roles say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.errors import Declined

MOST_WORK = 1 << 28  # elements of scores: beyond that the trial is left out


@dataclass(frozen=True)
class Roles:
    """Parameter numbers, -1 where there is none. ``joined``: one array holds keys at even and values at odd heads.

    ``groups``: (sequences, most queries each) in the order of the slots; empty where each sequence brings one query.
    """

    queries: int
    keys: int
    values: int
    lengths: int
    table: int
    starts: int = -1
    active: int = -1
    groups: tuple[tuple[int, int], ...] = ()
    scaled: bool = True

    @property
    def joined(self) -> bool:
        return self.values < 0


def suggest(closed: Any) -> Roles:
    """From shapes and loops alone. Raises ``Declined``."""
    avals = [v.aval for v in closed.jaxpr.invars]
    shapes = [tuple(a.shape) for a in avals]
    whole = [np.issubdtype(a.dtype, np.integer) for a in avals]
    tables = [i for i, s in enumerate(shapes) if whole[i] and len(s) == 2]
    pages = [i for i, s in enumerate(shapes) if not whole[i] and len(s) == 4]
    queries = [i for i, s in enumerate(shapes) if not whole[i] and len(s) == 3]
    if len(tables) != 1 or len(pages) not in (1, 2) or len(queries) != 1:
        raise Declined("its inputs are no pages [n, page, heads, dim], queries [n, heads, dim] and a page table")
    slots = shapes[tables[0]][0]
    vectors = [i for i, s in enumerate(shapes) if whole[i] and s == (slots,)]
    starts = [i for i, s in enumerate(shapes) if whole[i] and s == (slots + 1,)]
    active = [i for i, s in enumerate(shapes) if whole[i] and s == (1,) and i not in vectors]
    used = {*tables, *pages, *queries, *vectors[:1], *starts[:1], *active[:1]}
    if len(vectors) != 1 or used != set(range(len(shapes))):
        raise Declined("its inputs hold more than pages, a page table, lengths and queries")
    one = shapes[pages[0]]
    heads, dim = shapes[queries[0]][1:]
    if one[3] != dim or (len(pages) == 2 and shapes[pages[1]] != one):
        raise Declined("pages and queries differ in the size of a head")
    kv_heads = one[2] if len(pages) == 2 else one[2] // 2
    if heads % kv_heads:
        raise Declined(f"{heads} query heads do not share {kv_heads} key heads evenly")
    roles = Roles(queries=queries[0], keys=pages[0], values=pages[1] if len(pages) == 2 else -1, lengths=vectors[0],
                  table=tables[0], starts=starts[0] if starts else -1, active=active[0] if active else -1)
    if shapes[queries[0]][0] == slots and not active:
        return roles
    return replace(roles, groups=_groups(closed, roles, shapes))


def _groups(closed: Any, roles: Roles, shapes: list[tuple[int, ...]]) -> tuple[tuple[int, int], ...]:
    """(sequences, most queries each) of every loop over sequences."""
    if roles.starts < 0:
        raise Declined("queries are packed, but no input says where each sequence's begin")
    heads, dim = shapes[roles.queries][1:]
    found = []
    for eqn in _equations(closed.jaxpr):
        if eqn.primitive.name == "scan":
            widths = {
                inner.params["slice_sizes"][0] for inner in _equations(eqn.params["jaxpr"].jaxpr)
                if inner.primitive.name == "dynamic_slice" and tuple(inner.params["slice_sizes"][1:]) == (heads, dim)
            }
            if len(widths) == 1:
                found.append((int(eqn.params["length"]), int(widths.pop())))
    if not found or len(found) > 2 or sum(w == 1 for _, w in found) > 1 or sum(w > 1 for _, w in found) > 1:
        raise Declined("its loops over sequences are not one over single queries and one over a fixed width")
    if len(found) == 2 and found[0][1] != 1:
        raise Declined("sequences of one query do not come first")
    return tuple(found)


def _equations(jaxpr: Any) -> Iterator[Any]:
    """All equations outside of loops, calls entered."""
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if eqn.primitive.name != "scan" and inner is not None:
            yield from _equations(getattr(inner, "jaxpr", inner))
        yield eqn


def tried(closed: Any, roles: Roles) -> Roles:
    """The roles, once the traced function gave on drawn values what they say. Raises ``Declined``."""
    for scaled in (True, False):
        given = replace(roles, scaled=scaled)
        if all(_agrees(closed, given, seed) for seed in range(2)):
            return given
    raise Declined("on drawn pages it gives something other than attention over each sequence's keys")


def work(closed: Any, roles: Roles) -> int:
    shapes = [tuple(v.aval.shape) for v in closed.jaxpr.invars]
    slots, pages = shapes[roles.table]
    width = max((w for _, w in roles.groups), default=1)
    return slots * pages * shapes[roles.keys][1] * shapes[roles.queries][1] * width


def _agrees(closed: Any, roles: Roles, seed: int) -> bool:
    args = _draw(closed, roles, seed)
    found = np.asarray(compat.evaluated(closed, args)[0], np.float64)
    wanted = _wanted(roles, [np.asarray(a) for a in args])
    scale = np.abs(wanted).max()
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= 0.04 * scale)


def _draw(closed: Any, roles: Roles, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    avals = [v.aval for v in closed.jaxpr.invars]
    spread = [1.0 if roles.scaled or i != roles.queries else avals[i].shape[2] ** -0.5 for i in range(len(avals))]
    args = [(rng.standard_normal(a.shape) * s).astype(a.dtype) for a, s in zip(avals, spread, strict=True)]
    pool, page = avals[roles.keys].shape[:2]
    slots, per = avals[roles.table].shape
    pages = rng.permutation(pool) if pool >= slots * per else rng.integers(0, pool, slots * per)
    args[roles.table] = pages[: slots * per].reshape(slots, per).astype(avals[roles.table].dtype)
    queries = np.ones(slots, int)
    rows = avals[roles.queries].shape[0]
    if roles.groups:
        count = sum(n for n, _ in roles.groups) - seed  # the last slot stays empty in the second trial
        room = rows - count
        queries = np.zeros(slots, int)
        first = 0
        for n, width in roles.groups:
            for slot in range(first, min(first + n, count)):
                queries[slot] = 1 + rng.integers(0, min(width - 1, room, per * page - 1) + 1)
                room -= queries[slot] - 1
            first += n
        if roles.active >= 0:
            args[roles.active] = np.asarray([count], avals[roles.active].dtype)
    lengths = rng.integers(np.maximum(queries, 1), per * page + 1)
    lengths[0] = per * page
    args[roles.lengths] = lengths.astype(avals[roles.lengths].dtype)
    if roles.starts >= 0:
        args[roles.starts] = np.concatenate([[0], np.cumsum(queries)]).astype(avals[roles.starts].dtype)
    return args


def _wanted(roles: Roles, args: list[np.ndarray]) -> np.ndarray:
    """What attention over pages is, sequence by sequence, in float64."""
    queries = args[roles.queries].astype(np.float64)
    pages = args[roles.keys].astype(np.float64)
    k_pages, v_pages = (pages[:, :, 0::2], pages[:, :, 1::2]) if roles.joined else (
        pages, args[roles.values].astype(np.float64))
    out = np.zeros_like(queries)
    table, lengths = args[roles.table], args[roles.lengths]
    starts = args[roles.starts] if roles.starts >= 0 else np.arange(len(lengths) + 1)
    count = int(args[roles.active][0]) if roles.active >= 0 else len(lengths)
    factor = queries.shape[2] ** -0.5 if roles.scaled else 1.0
    for slot in range(min(count, len(lengths))):
        rows = slice(int(starts[slot]), int(starts[slot + 1]))
        k, v = (p[table[slot]].reshape(-1, *p.shape[2:])[: lengths[slot]] for p in (k_pages, v_pages))
        q = queries[rows]
        group = q.shape[1] // k.shape[1]
        scores = np.einsum("qhd,khd->hqk", q, np.repeat(k, group, 1)) * factor
        last = lengths[slot] - len(q) + np.arange(len(q))
        scores = np.where(np.arange(len(k)) <= last[:, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        out[rows] = np.einsum("hqk,khd->qhd", weights, np.repeat(v, group, 1))
    return out

"""Recipe: attention with an online softmax; scores and probabilities never leave the chip's VMEM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.authors.recipes import attention_source
from maxkernel_nb.authors.recipes.attention_match import AttentionMatch, Sizes
from maxkernel_nb.authors.recipes.attention_reader import Found, recognise_case
from maxkernel_nb.authors.recipes.base import (
    VMEM_MARGIN,
    Bound,
    Recipe,
    at_least,
    bound_text,
    check_axes,
    check_vmem,
    in_every_case,
    itemsize,
    pad_up,
)
from maxkernel_nb.authors.recipes.expressions import Expression, Leaf, Step, combine
from maxkernel_nb.authors.recipes.signature import signature_of
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import KernelTask, Plan
from maxkernel_nb.tpu.chips import chip as chip_named

_FLOATS = ("float32", "bfloat16")
_READABLE = (*_FLOATS, "bool", "int32", "int8")


class AttentionRecipe(Recipe):
    name = "attention"
    title = "attention with an online softmax"
    match_type = AttentionMatch
    limits = (
        "queries, keys and values are inputs as they are (projections and rotations stay outside)",
        "keys and values of one head that do not fit the VMEM are fetched again for each block of queries",
        "masks by position are bands along the diagonal (causal, sliding window); others are inputs",
    )

    def recognise(self, traces: Mapping[str, Any], task: KernelTask) -> AttentionMatch:
        found = in_every_case(traces, task, recognise_case, _shape_free)
        first = found[0]
        leaves, grouping = _leaves(found), _grouping(found)
        if "bsm" in first.layouts and len({f.sizes.heads for f in found}) > 1:
            raise Declined("heads are merged with their elements, and their number follows the shapes")
        dtypes = [first.dtypes[i] for i in first.names]
        if any(d not in _FLOATS for d in dtypes):
            raise Declined(f"queries, keys and values are {', '.join(dtypes)}: this recipe takes float32 and bfloat16")
        for leaf in leaves:
            if first.dtypes[leaf.param] not in _READABLE:
                known = ", ".join(_READABLE)
                raise Declined(f"a mask or bias is {first.dtypes[leaf.param]}, this recipe takes {known}")
        causal, window = _causal(found), _window(found)
        masked_by_input = any(s.op == "select" for s in first.trail.reader.steps)
        return AttentionMatch(
            signature=signature_of(task), chip=task.chip, q=first.names[0], k=first.names[1], v=first.names[2],
            layouts=first.layouts, sizes=first.sizes, dtypes=first.dtypes, out_dtype=first.out_dtype,
            weights_dtype=first.weights_dtype, score=_expression(found, leaves), causal=causal, window=window,
            mask_fill=first.fill if masked_by_input and (causal or window is not None) else None,
            nan_rows=first.fill == float("-inf"), grouping=grouping, precision=first.trail.precision,  # type: ignore[arg-type]
        )

    def space(self, match: AttentionMatch) -> TuningSpace:
        axes = _axes(match)
        limit = chip_named(match.chip).vmem_bytes - VMEM_MARGIN
        points = [
            {"BLOCK_Q": q, "BLOCK_K": k, "ROWS": r, **({"SPAN": 8192} if "SPAN" in axes else {})}
            for q, k, r in (
                (1024, 1024, 256), (2048, 1024, 512), (1024, 1024, 512), (512, 512, 256), (1024, 512, 256),
                (256, 256, 128), (128, 128, 128),
            )
        ]
        if match.window is not None and match.window < 1024:
            points = points[-2:] + points[:-2]  # wide blocks would mostly be masked
        fitted = [{name: _nearest(axes[name], value) for name, value in point.items()} for point in points]
        seeds: list[dict[str, int]] = []
        for point in fitted:
            if point not in seeds and self.vmem_bytes(match, point) <= limit and not _uneven(match, point):
                seeds.append(point)
        if not seeds:
            raise Declined(f"blocks of vectors of {match.sizes.head_dim} do not fit the VMEM of {match.chip}")
        return TuningSpace(axes=axes, seeds=tuple(seeds))

    def check(self, match: AttentionMatch, params: dict[str, int]) -> None:
        check_axes(params, TuningSpace(axes=_axes(match)))
        for name, value in params.items():
            if value < 128 or value % 128:
                raise Declined(f"{name}={value} is not a multiple of 128, the width of the TPU's registers")
        reason = _uneven(match, params)
        if reason:
            raise Declined(reason)
        check_vmem(self.vmem_bytes(match, params), chip_named(match.chip))

    def vmem_bytes(self, match: AttentionMatch, params: dict[str, int]) -> int:
        s = match.sizes
        block_q = min(params["BLOCK_Q"], pad_up(s.q_len, 128))
        block_k = min(params["BLOCK_K"], pad_up(s.kv_len, 128))
        rows = min(params["ROWS"], block_q)
        keys = min(pad_up(s.kv_len, block_k), params.get("SPAN", s.kv_len + block_k))
        d, dv = pad_up(s.head_dim, 128), pad_up(s.v_dim, 128)
        q, k, v = (itemsize(match.dtypes[i]) for i in (match.q, match.k, match.v))
        moving = block_q * (d * q + dv * itemsize(match.out_dtype)) + keys * (d * k + dv * v)
        for leaf in match.score.leaves:
            area = (block_q if "q" in leaf.kind else 8) * (keys if "k" in leaf.kind else 128)
            moving += area * itemsize(match.dtypes[leaf.param])
        triangle = match.causal == "square" and match.window is None and "SPAN" not in params
        width = max(block_k, block_q) if triangle else block_k
        state = block_q * (2 * dv + 256) * 4
        temporaries = rows * width * (4 + 4 + v) + state  # two parts' scores, one's probabilities, the new state
        return 2 * moving + state + temporaries

    def bound(self, match: AttentionMatch) -> Bound:
        s = match.sizes
        pairs = _pairs(match)
        flops = 2.0 * s.batch * s.heads * pairs * (s.head_dim + s.v_dim)
        q, k, v = (itemsize(match.dtypes[i]) for i in (match.q, match.k, match.v))
        moved = s.batch * s.heads * s.q_len * (s.head_dim * q + s.v_dim * itemsize(match.out_dtype))
        moved += s.batch * s.kv_heads * s.kv_len * (s.head_dim * k + s.v_dim * v)
        by_role = {"b": s.batch, "h": s.heads, "q": s.q_len, "k": s.kv_len, "1": 1}
        for leaf in match.score.leaves:
            size = itemsize(match.dtypes[leaf.param])
            for role in leaf.kind:
                size *= by_role[role]
            moved += size
        return Bound(flops=flops, hbm_bytes=float(moved))

    def bound_with(self, match: AttentionMatch, params: dict[str, int]) -> Bound:
        """Streamed keys and values are fetched for each block of queries, under a causal mask half of them."""
        whole = self.bound(match)
        if "SPAN" not in params or match.window is not None:
            return whole
        s = match.sizes
        pair = s.head_dim * itemsize(match.dtypes[match.k]) + s.v_dim * itemsize(match.dtypes[match.v])
        times = s.heads * (s.q_len // params["BLOCK_Q"]) * (0.5 if match.causal else 1.0) - s.kv_heads
        return Bound(whole.flops, whole.hbm_bytes + max(0.0, s.batch * s.kv_len * pair * times))

    def plan(self, match: AttentionMatch, params: dict[str, int]) -> Plan:
        s, chip, bound = match.sizes, chip_named(match.chip), self.bound(match)
        shared = f", {s.heads // s.kv_heads} query heads to a key head" if s.heads != s.kv_heads else ""
        kind = {"": "full", "square": "causal", "start": "causal", "end": "causal"}[match.causal]
        window = f", window of {match.window}" if match.window is not None else ""
        streamed = "SPAN" in params
        return Plan(
            strategy="online softmax, keys and values of a head "
            + ("streamed through VMEM in spans" if streamed else "kept in VMEM"),
            summary=(
                f"{kind.capitalize()} attention{window}: {s.batch} x {s.heads} heads{shared}, {s.q_len} queries, "
                f"{s.kv_len} keys of {s.head_dim}. Scores stay in VMEM; blocks that the mask empties are neither "
                f"fetched nor computed, and only blocks on its edge are masked. The product of a block's next part "
                f"is issued before the softmax of the current one, so the MXU and the vector units overlap. "
                f"{at_least(bound, chip)}"
            ),
            attacks=bound.attacks(chip) + ", then the vector units' exponentials",
            tiling=params,
            grid="(batch, head, block of queries), all independent" + (", then spans of keys in order" * streamed),
            memory="SPAN keys and values at a time; maximum, sum and result of a block of queries in scratch"
            if streamed else "keys and values of one key head whole in VMEM, fetched once for all its queries",
            pipelining="the next span is fetched during the current one" if streamed else
            "the next queries, and the next head's keys and values, are fetched during the current block",
            recipe=self.name,
            spec=match.to_dict(),
        )

    def render(self, match: AttentionMatch, params: dict[str, int]) -> str:
        chip = chip_named(match.chip)
        limit = self.vmem_limit(match, params, spare=1 / 2)
        sums_on_mxu = chip.mxu_size >= 256 and match.sizes.v_dim == 128
        return attention_source.render(match, params, bound_text(self.bound(match), match.chip), limit, sums_on_mxu)


def _axes(match: AttentionMatch) -> dict[str, tuple[int, ...]]:
    def upto(size: int, values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(v for v in values if v <= pad_up(size, 128)) or (128,)

    streamed = {"SPAN": upto(match.sizes.kv_len, (2048, 4096, 8192, 16384))} if _streams(match) else {}
    return {
        "BLOCK_Q": upto(match.sizes.q_len, (128, 256, 512, 1024, 2048)),
        "BLOCK_K": upto(match.sizes.kv_len, (128, 256, 512, 1024, 2048)),
        "ROWS": upto(match.sizes.q_len, (128, 256, 512, 1024)),
        **streamed,
    }


def _streams(match: AttentionMatch) -> bool:
    """True where blocks of a useful size leave no room for all keys and values of a head, each twice."""
    point = {"BLOCK_Q": 512, "BLOCK_K": 512, "ROWS": 256}
    need = AttentionRecipe().vmem_bytes(match, point)
    return need > chip_named(match.chip).vmem_bytes - VMEM_MARGIN


def _nearest(values: tuple[int, ...], wanted: int) -> int:
    return max((v for v in values if v <= wanted), default=values[0])


def _uneven(match: AttentionMatch, params: dict[str, int]) -> str:
    if params["BLOCK_Q"] % params["ROWS"]:
        return f"BLOCK_Q={params['BLOCK_Q']} is not a multiple of ROWS={params['ROWS']}"
    if params["BLOCK_Q"] // params["ROWS"] > 8:
        return f"more than 8 parts of {params['ROWS']} rows in a block take minutes to compile"
    if params.get("SPAN", params["BLOCK_K"]) % params["BLOCK_K"]:
        return f"SPAN={params['SPAN']} is not a multiple of BLOCK_K={params['BLOCK_K']}"
    if "SPAN" in params:
        return ""
    if match.causal == "square" and match.window is None and params["BLOCK_Q"] % params["BLOCK_K"]:
        return f"BLOCK_Q={params['BLOCK_Q']} is not a multiple of BLOCK_K={params['BLOCK_K']}, as the diagonal needs"
    return ""


def _pairs(match: AttentionMatch) -> int:
    """Query-key pairs that the mask leaves, in one head."""
    s = match.sizes
    shift = s.kv_len - s.q_len if match.causal == "end" else 0
    total = 0
    for query in range(s.q_len):
        last = min(s.kv_len, query + shift + 1) if match.causal else s.kv_len
        first = max(0, query + shift - match.window + 1) if match.window is not None else 0
        total += max(0, last - first)
    return total


def _shape_free(found: Found) -> tuple[Any, ...]:
    trail = found.trail
    scaled = tuple(op for op, _ in trail.reader.prescales)
    return (
        found.names, found.layouts, tuple(leaf.param for leaf in found.leaves), found.dtypes,
        found.out_dtype, found.weights_dtype, trail.result, trail.precision, scaled, trail.keep is None,
    )


def _leaves(found: Sequence[Found]) -> tuple[Leaf, ...]:
    """The timing case's roles; another case may show an axis of one where its batch, heads or lengths are one."""
    first = found[0].leaves
    for f in found[1:]:
        sizes = {"b": f.sizes.batch, "h": f.sizes.heads, "q": f.sizes.q_len, "k": f.sizes.kv_len, "1": 1}
        for leaf, other in zip(first, f.leaves, strict=True):
            same = len(leaf.kind) == len(other.kind) and all(
                a == b or (b == "1" and sizes[a] == 1) for a, b in zip(leaf.kind, other.kind, strict=True)
            )
            if not same:
                raise Declined("a mask or bias lies differently in different shape cases")
    return first


def _grouping(found: Sequence[Found]) -> str:
    kinds = {f.grouping for f in found if f.sizes.kv_heads not in (1, f.sizes.heads)}
    if len(kinds) > 1:
        raise Declined("keys are shared between heads differently in different shape cases")
    return kinds.pop() if kinds else "block"


def _causal(found: Sequence[Found]) -> Any:
    """How the upper edge of the band lies in every case."""
    kinds: set[str] = set()
    for f in found:
        high, s = f.band[1], f.sizes
        if high is None:
            kinds.add("open" if s.q_len > 1 else "any")
        elif s.q_len == s.kv_len and high == 0:
            kinds.add("square")
        elif high in (0, s.kv_len - s.q_len):
            kinds.add("start" if high == 0 else "end")
        else:
            raise Declined(f"keys are masked from {high} after the query, neither causal nor aligned to the end")
    kinds.discard("any")
    if len(kinds) > 1:
        kinds.discard("square")
    if len(kinds) > 1:
        raise Declined("the mask is laid differently in different shape cases")
    kind = kinds.pop() if kinds else "open"
    return "" if kind == "open" else kind


def _window(found: Sequence[Found]) -> int | None:
    """Number of keys back that a query sees, itself included; the same in every case or not visible."""
    seen = set()
    for f in found:
        low, shift = f.band[0], 0
        if f.band[1] is not None and f.sizes.q_len != f.sizes.kv_len and f.band[1] != 0:
            shift = f.sizes.kv_len - f.sizes.q_len
        if low is not None:
            seen.add(shift - low + 1)
    if len(seen) > 1:
        raise Declined("the window's width follows the shapes")
    return seen.pop() if seen else None


def _expression(found: Sequence[Found], leaves: tuple[Leaf, ...]) -> Expression:
    """The score expression, with factors applied to queries or keys moved onto the raw scores."""
    for f in found:
        reader = f.trail.reader
        reader.leaves = list(leaves)
        first = len(reader.constants)
        reader.constants += [(node.attr("value"), node.dtype) for _, node in reader.prescales]
        count = len(reader.prescales)
        ahead = []
        for i, (op, _) in enumerate(reader.prescales):
            ahead.append(Step(op=op, args=(f"%{i - 1}" if i else "acc", f"#{first + i}")))
        if count:
            reader.steps = [*ahead, *(_moved(step, count) for step in reader.steps)]
    result = found[0].trail.result
    count = len(found[0].trail.reader.prescales)
    sizes = [f.sizes for f in found]
    return combine(
        _moved_argument(result, count), [f.trail.reader for f in found],
        [{"head_dim": s.head_dim, "kv_len": s.kv_len} for s in sizes],
    )


def _moved(step: Step, by: int) -> Step:
    return step.model_copy(update={"args": tuple(_moved_argument(a, by) for a in step.args)})


def _moved_argument(argument: str, by: int) -> str:
    if not by:
        return argument
    if argument == "acc":
        return f"%{by - 1}"
    return f"%{int(argument[1:]) + by}" if argument.startswith("%") else argument


__all__ = ["AttentionRecipe", "Leaf", "Sizes"]

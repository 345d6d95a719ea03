"""FLOPs of matrix products and convolutions in an exported program, Mosaic kernels included.

Counted from the exported artefact: StableHLO ops by their shapes; ``tpu.matmul`` inside a kernel by its vector types,
as often as its grid, its ``pl.when`` conditions and its loops run it. Elementwise work is not counted (the peak rate it
would be held against is the matrix unit's). Data-dependent conditions count as true, data-dependent loops as one trip.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from typing import Any

import numpy as np

from maxkernel_nb import compat

GRID_POINTS = 65_536  # beyond this a grid's outer axes are sampled
LOOP_TRIPS = 256  # beyond this a loop's body is taken as the same for every trip
ARITHMETIC = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "andi": np.bitwise_and, "ori": np.bitwise_or,
    "xori": np.bitwise_xor, "minsi": np.minimum, "maxsi": np.maximum, "shli": np.left_shift, "shrsi": np.right_shift,
    "floordivsi": np.floor_divide,
}  # fmt: skip
PREDICATES = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal,
              np.less, np.less_equal, np.greater, np.greater_equal)  # fmt: skip


def count(module_text: str) -> float:
    """FLOPs of one run of an exported module (``Exported.mlir_module()``); 0.0 where the text cannot be read."""
    from jax.extend.mlir import ir

    with compat.mlir_context(), ir.Location.unknown():
        try:
            module = ir.Module.parse(module_text)
        except (ir.MLIRError, ValueError):
            return 0.0
        functions = {_name(f): f for f in module.body.operations if f.operation.name == "func.func"}
        return _block(functions["main"].regions[0].blocks[0], functions) if "main" in functions else 0.0


def _name(function: Any) -> str:
    return str(function.attributes["sym_name"]).strip('"')


def _block(block: Any, functions: dict[str, Any]) -> float:
    return sum(_operation(op.operation, functions) for op in block.operations)


def _operation(op: Any, functions: dict[str, Any]) -> float:
    name = op.name
    if name == "stablehlo.dot_general":
        dims = _numbers(str(op.attributes["dot_dimension_numbers"]), "lhs_contracting_dimensions")
        return 2.0 * _size(op.results[0]) * math.prod(_shape(op.operands[0])[d] for d in dims)
    if name == "stablehlo.convolution":
        return _convolution(op)
    if name in ("stablehlo.composite", "chlo.ragged_dot"):
        return _composite(op, functions)
    if name in ("func.call", "call"):
        callee = functions.get(str(op.attributes["callee"]).lstrip("@").strip('"'))
        return _block(callee.regions[0].blocks[0], functions) if callee is not None else 0.0
    if name == "stablehlo.custom_call":
        return _custom_call(op)
    inner = [_block(block, functions) for region in op.regions for block in region.blocks]
    if name == "stablehlo.while":
        return sum(inner) * _trips(op)
    return max(inner, default=0.0) if name in ("stablehlo.case", "stablehlo.if") else sum(inner)


def _composite(op: Any, functions: dict[str, Any]) -> float:
    """A ragged product multiplies every row with one matrix; any other composite is what it decomposes into."""
    if "ragged_dot" in op.name or "ragged_dot" in str(op.attributes["name"]):
        return 2.0 * _size(op.results[0]) * _shape(op.operands[0])[-1]
    inner = functions.get(str(op.attributes["decomposition"]).lstrip("@").strip('"'))
    return _block(inner.regions[0].blocks[0], functions) if inner is not None else 0.0


def _convolution(op: Any) -> float:
    kernel = re.search(r"x\[([^\]]*)\]->", str(op.attributes["dimension_numbers"]))
    axes = [a.strip() for a in kernel.group(1).split(",")] if kernel else []
    shape = _shape(op.operands[1])
    outputs = shape[axes.index("o")] if "o" in axes else 1
    dilation = math.prod(_integers(op, "lhs_dilation"))  # a transposed convolution multiplies only every n-th element
    return 2.0 * _size(op.results[0]) * math.prod(shape) / max(outputs, 1) / dilation


def _integers(op: Any, attribute: str) -> list[int]:
    if attribute not in op.attributes:
        return [1]
    return [int(n) for n in re.findall(r"-?\d+", str(op.attributes[attribute]).partition(":")[2])] or [1]


def _numbers(text: str, field: str) -> list[int]:
    found = re.search(rf"{field} = \[([\d, ]*)\]", text)
    return [int(n) for n in found.group(1).split(",") if n.strip()] if found else []


def _trips(loop: Any) -> float:
    """Trips of ``i < constant`` counting up by one from its start; 1 for any other form of loop."""
    block = loop.regions[0].blocks[0]
    for op in block.operations:
        if op.operation.name != "stablehlo.compare" or "LT" not in str(op.attributes["comparison_direction"]):
            continue
        left, right = op.operands
        bound = _constant(right)
        for i, argument in enumerate(block.arguments):
            if argument == left:
                start = _constant(loop.operands[i])
                bound = _constant(right) if bound is None else bound
                if bound is None:
                    bound = next(
                        (_constant(loop.operands[j]) for j, a in enumerate(block.arguments) if a == right), None
                    )
                if bound is not None:
                    return float(max(bound - (start or 0), 0))
    return 1.0


def _constant(value: Any) -> int | None:
    owner = value.owner
    if not hasattr(owner, "name") or owner.name != "stablehlo.constant":
        return None
    found = re.search(r"dense<(-?\d+)>", str(owner.attributes["value"]))
    return int(found.group(1)) if found else None


def _shape(value: Any) -> list[int]:
    from jax.extend.mlir import ir

    return list(ir.ShapedType(value.type).shape)


def _size(value: Any) -> int:
    return math.prod(_shape(value))


# --- Mosaic kernels


def _custom_call(op: Any) -> float:
    from jax.extend.mlir import ir

    if "tpu_custom_call" not in str(op.attributes["call_target_name"]) or "backend_config" not in op.attributes:
        return 0.0
    try:
        config = json.loads(ir.StringAttr(op.attributes["backend_config"]).value)
        module = ir.Module.parse(base64.b64decode(config["custom_call_config"]["body"]))
    except (ValueError, KeyError, TypeError, binascii.Error, ir.MLIRError):
        return 0.0
    return max((_kernel(f) for f in module.body.operations if len(f.regions[0].blocks)), default=0.0)


def _kernel(function: Any) -> float:
    if "iteration_bounds" not in function.attributes and "dimension_semantics" not in function.attributes:
        return _Kernel(np.ones(1)).block(function.regions[0].blocks[0], {}) if _is_entry(function) else 0.0
    bounds = [
        max(int(n), 1) for n in re.findall(r"-?\d+", str(function.attributes["iteration_bounds"]).partition(":")[2])
    ]
    points, weight = _grid(bounds)
    arguments = function.regions[0].blocks[0].arguments
    env = {_key(a): points[i] for i, a in enumerate(arguments[: len(bounds)])}
    return weight * _Kernel(np.ones(len(points[0]) if bounds else 1)).block(function.regions[0].blocks[0], env)


def _is_entry(function: Any) -> bool:
    return "transform" not in str(function.attributes["sym_name"])


def _grid(bounds: list[int]) -> tuple[list[np.ndarray], float]:
    """Grid indices of every step (one array an axis), and what to multiply by where outer axes were left out."""
    weight, kept = 1.0, list(bounds)
    for axis in range(len(kept)):
        while math.prod(kept) > GRID_POINTS and kept[axis] > 1:
            smaller = max(1, kept[axis] // 2)
            weight, kept[axis] = weight * kept[axis] / smaller, smaller
    axes = [
        np.linspace(0, b - 1, k).astype(np.int64) if k < b else np.arange(b) for b, k in zip(bounds, kept, strict=True)
    ]
    mesh = np.meshgrid(*axes, indexing="ij") if axes else [np.zeros(1, np.int64)]
    return [m.ravel() for m in mesh], weight


def _key(value: Any) -> int:
    return hash(value)


class _Kernel:
    """Evaluates the scalar side of a Mosaic function for all grid steps at once; unknown values are absent."""

    def __init__(self, mask: np.ndarray) -> None:
        self.mask = mask

    def block(self, block: Any, env: dict[int, Any], mask: np.ndarray | None = None) -> float:
        mask = self.mask if mask is None else mask
        return sum(self._operation(op.operation, env, mask) for op in block.operations)

    def _operation(self, op: Any, env: dict[int, Any], mask: np.ndarray) -> float:
        name = op.name.rpartition(".")[2]
        if name == "matmul":
            return _matmul(op) * float(mask.sum())
        if op.name.endswith("scf.if"):
            return self._branch(op, env, mask)
        if op.name.endswith("scf.for"):
            return self._loop(op, env, mask)
        if op.regions:
            return sum(self.block(b, env, mask) for r in op.regions for b in r.blocks)
        value = _scalar(op, name, env)
        if value is not None and len(op.results) == 1:
            env[_key(op.results[0])] = value
        return 0.0

    def _branch(self, op: Any, env: dict[int, Any], mask: np.ndarray) -> float:
        condition = env.get(_key(op.operands[0]))
        taken = mask if condition is None else mask * np.asarray(condition, bool)
        total = 0.0
        for region, part in zip(op.regions, (taken, mask - taken), strict=False):
            if part.any():
                total += sum(self.block(b, env, part) for b in region.blocks)
        return total

    def _loop(self, op: Any, env: dict[int, Any], mask: np.ndarray) -> float:
        body = op.regions[0].blocks[0]
        bounds = [env.get(_key(v)) for v in list(op.operands)[:3]]
        if any(b is None for b in bounds):
            return self.block(body, env, mask)
        low, high, step = (np.asarray(b) for b in bounds)
        trips = np.maximum(-(-(high - low) // np.maximum(step, 1)), 0) * np.ones_like(mask)
        most = int((trips * (mask > 0)).max(initial=0))
        if most > LOOP_TRIPS:
            return self.block(body, env, mask * trips)
        total = 0.0
        for n in range(most):
            env[_key(body.arguments[0])] = low + n * step
            total += self.block(body, env, mask * (trips > n))
        return total


def _matmul(op: Any) -> float:
    numbers = re.search(r"<\[([\d, ]*)\]", str(op.attributes["dimension_numbers"])) if (
        "dimension_numbers" in op.attributes
    ) else None  # fmt: skip
    lhs = _shape(op.operands[0])
    dims = [int(n) for n in numbers.group(1).split(",") if n.strip()] if numbers else [len(lhs) - 1]
    return 2.0 * _size(op.results[0]) * math.prod(lhs[d] for d in dims)


def _scalar(op: Any, name: str, env: dict[int, Any]) -> Any:
    if name == "constant":
        found = re.match(r"(-?\d+|true|false)\b(?!\.)", str(op.attributes["value"]))
        return {"true": 1, "false": 0}.get(found.group(1)) if found and found.group(1) in ("true", "false") else (
            int(found.group(1)) if found else None
        )  # fmt: skip
    values: list[Any] = [env.get(_key(v)) for v in op.operands]
    if not values or any(v is None for v in values):
        return None
    if name == "cmpi":
        return PREDICATES[int(str(op.attributes["predicate"]).split(":")[0])](*values)
    if name in ARITHMETIC:
        return ARITHMETIC[name](*values)
    if name in ("extui", "extsi", "index_cast", "trunci", "assume_multiple"):
        return np.asarray(values[0]).astype(np.int64)
    if name in ("divsi", "remsi") and np.all(np.asarray(values[1]) != 0):
        quotient = np.trunc(np.asarray(values[0]) / np.asarray(values[1])).astype(np.int64)
        return quotient if name == "divsi" else values[0] - quotient * values[1]
    if name == "select":
        return np.where(values[0], values[1], values[2])
    return None

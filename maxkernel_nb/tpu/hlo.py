"""A small reader of scheduled HLO text: what runs in which order, how often, and which bytes live in HBM."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "s32": 32, "u32": 32, "s64": 64, "u64": 64,
    "bf16": 16, "f16": 16, "f32": 32, "f64": 64, "c64": 64, "c128": 128, "token": 0, "s2": 2, "u2": 2,
}  # fmt: skip
FREE = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "partition-id", "replica-id",
     "opt-barrier", "copy-done", "async-done", "async-update", "slice-done", "domain", "add-dependency")
)  # fmt: skip
SHAPE = re.compile(r"([a-z]\w*)\[([\d,<=]*)\](?:\{([^{}]*)\})?")
INSTRUCTION = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-<>]+) (?:\([^\n]*\) -> [^\n]*)?\{\s*$")


@dataclass(frozen=True)
class Shape:
    """One array of an HLO type. ``bytes`` includes the padding of its tiled layout; ``in_hbm`` is memory space 0."""

    dtype: str
    dims: tuple[int, ...]
    layout: str = ""

    @property
    def in_hbm(self) -> bool:
        return "S(" not in self.layout or "S(0)" in self.layout

    @property
    def bytes(self) -> int:
        bits = BITS.get(self.dtype, 8 if self.dtype.startswith("f8") else 32)
        return math.prod(self._padded()) * bits // 8

    def _padded(self) -> list[int]:
        order, _, tiling = self.layout.partition(":")
        major_to_minor = [self.dims[int(i)] for i in reversed(order.split(",")) if i.isdigit()]
        if len(major_to_minor) != len(self.dims):
            return list(self.dims)
        tile = re.search(r"T\(([\d,]+)\)", tiling)
        if tile:
            sizes = [int(t) for t in tile.group(1).split(",")]
            if len(sizes) > len(major_to_minor):
                return [-(-math.prod(major_to_minor) // math.prod(sizes)) * math.prod(sizes)]
            for i, size in enumerate(reversed(sizes), start=1):
                major_to_minor[-i] = -(-major_to_minor[-i] // size) * size
        return major_to_minor


@dataclass(frozen=True)
class Instruction:
    """``called`` are the computations it runs (a fusion's body, a while's body and condition ...)."""

    name: str
    opcode: str
    result: str
    operands: tuple[str, ...]
    attributes: str
    root: bool = False

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        return parse_shapes(self.result)

    @cached_property
    def called(self) -> tuple[str, ...]:
        names = re.findall(r"(?:calls|body|to_apply|condition|true_computation|false_computation)=%?([\w.\-]+)",
                           self.attributes)  # fmt: skip
        for group in re.findall(r"branch_computations=\{([^}]*)\}", self.attributes):
            names += re.findall(r"%?([\w.\-]+)", group)
        return tuple(names)

    def attribute(self, name: str) -> str:
        found = re.search(rf"\b{name}=%?([\w.\-]+)", self.attributes)
        return found.group(1) if found else ""

    @property
    def target(self) -> str:
        found = re.search(r'custom_call_target="([^"]*)"', self.attributes)
        return found.group(1) if found else ""

    @property
    def estimated_cycles(self) -> float:
        """The compiler's own estimate (cycles), 0 where it gives none."""
        found = re.search(r'"estimated_cycles":"?(\d+)', self.attributes)
        return float(found.group(1)) if found else 0.0

    @property
    def scoped_vmem_bytes(self) -> int:
        """VMEM that the op holds while it runs (blocks, scratch, spills), as the compiler allotted it; 0 unknown."""
        found = re.search(r'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"',
                          self.attributes)  # fmt: skip
        return int(found.group(1)) if found else 0

    @property
    def trip_count(self) -> int | None:
        """Of a while instruction, where the compiler knows it."""
        found = re.search(r'"known_trip_count":\{"n":"?(\d+)', self.attributes)
        return int(found.group(1)) if found else None


@dataclass
class Module:
    """``computations`` by name, each in scheduled order; ``entry`` the name of the first."""

    computations: dict[str, list[Instruction]] = field(default_factory=dict)
    entry: str = ""

    @cached_property
    def by_name(self) -> dict[str, Instruction]:
        return {i.name: i for c in self.computations.values() for i in c}

    def walk(
        self, computation: str = "", times: float = 1.0, ends: bool = False
    ) -> Iterator[tuple[Instruction, float, bool]]:
        """Instructions that cost time, with how often each runs and whether that number is known for certain.

        Enters while bodies (times their trip count, 1 where unknown), calls and conditionals (each branch counted as
        taken); a fusion is one instruction. ``ends`` gives the ends of asynchronous copies too.
        """
        for i in self.computations.get(computation or self.entry, ()):
            if i.opcode == "while":
                n = i.trip_count
                if n is None:
                    n = self._trip_from_condition(i)
                for inner, t, sure in self.walk(i.attribute("body"), times * (n if n is not None else 1), ends):
                    yield inner, t, sure and n is not None
            elif i.opcode in ("call", "conditional", "async-start") and "custom_call_target" not in i.attributes:
                for called in i.called:
                    for inner, t, sure in self.walk(called, times, ends):
                        yield inner, t, sure and i.opcode != "conditional"
            elif i.opcode not in FREE or (ends and i.opcode.endswith("-done")):
                yield i, times, True

    def _trip_from_condition(self, loop: Instruction) -> int | None:
        """The bound of ``iv < constant`` in a while's condition, where that is the whole condition."""
        body = self.computations.get(loop.attribute("condition"), [])
        compares = [i for i in body if i.opcode == "compare" and "direction=LT" in i.attributes]
        constants = {i.name: i for i in body if i.opcode == "constant"}
        if len(compares) != 1 or len(body) > 6:
            return None
        for name in compares[0].operands:
            if name in constants:
                found = re.search(r"constant\((\d+)\)", constants[name].attributes)
                return int(found.group(1)) if found else None
        return None

    def likeness(self, i: Instruction) -> str:
        """What the program of ``i`` follows from, without names: equal for instructions that the compiler schedules
        alike (it writes out the program of one of them only)."""
        operands = " ".join(o.result for o in map(self.by_name.get, i.operands) if o)
        window = re.search(r'"window_config":\{.*?"iteration_bounds":\[[^\]]*\]', i.attributes)
        kernel = i.attributes.partition("backend_config=")[2] if i.opcode == "custom-call" else ""
        own = f"{i.opcode} {i.result} {operands} {_plain(i.attributes)} {window.group(0) if window else kernel}"
        return "\n".join([own, *(self._body(c) for c in i.called)])

    def _body(self, computation: str) -> str:
        body = self.computations.get(computation, [])
        place = {i.name: str(n) for n, i in enumerate(body)}
        lines = []
        for i in body:
            inner = " ".join(self._body(c) for c in i.called)
            lines.append(
                f"{i.opcode} {i.result} {[place.get(o, o) for o in i.operands]} {_plain(i.attributes)} {inner}"
            )
        return "\n".join(lines)

    def hbm_traffic(self, i: Instruction) -> tuple[float, float]:
        """(bytes read, bytes written) in HBM by one execution, from shapes: slices and updates count their own size."""
        reads = [s for name in i.operands for s in self._operand(name)]
        written: float = sum(s.bytes for s in i.shapes if s.in_hbm)
        read: float = sum(s.bytes for s in reads if s.in_hbm)
        if i.opcode in ("dynamic-slice", "slice", "gather"):
            read = sum(s.bytes for s in i.shapes) if any(s.in_hbm for s in reads[:1]) else 0
        if i.opcode == "dynamic-update-slice":
            update = self._operand(i.operands[1]) if len(i.operands) > 1 else ()
            size = sum(s.bytes for s in update)
            read = size if any(s.in_hbm for s in update) else 0
            written = size if any(s.in_hbm for s in i.shapes) else 0
        if i.opcode in ("copy-start", "slice-start"):
            # a copy's shapes are (result, source, context), a slice's ((source), result, context)
            source, result = reads[:1], i.shapes[1:2] if i.opcode == "slice-start" else i.shapes[:1]
            size = min(s.bytes for s in (*source, *result)) if source and result else 0
            read = size if source and source[0].in_hbm else 0
            written = size if result and result[0].in_hbm else 0
        if i.opcode == "fusion":
            read, written = self._fusion_traffic(i)
        return float(read), float(written)

    def _fusion_traffic(self, i: Instruction) -> tuple[float, float]:
        """A fusion reads a parameter that it only slices by the slice, and writes an update in place by the update."""
        body = self.computations.get(i.called[0], []) if i.called else []
        params = {self._number(p): p for p in body if p.opcode == "parameter"}
        read = 0.0
        for n, name in enumerate(i.operands):
            shapes = self._operand(name)
            full = sum(s.bytes for s in shapes if s.in_hbm)
            users = [u for u in body if n in params and params[n].name in u.operands]
            slices = [u for u in users if u.opcode in ("dynamic-slice", "slice", "gather")]
            updates = [u for u in users if u.opcode == "dynamic-update-slice" and u.operands[0] == params[n].name]
            if full and users and len(slices) + len(updates) == len(users):
                full = min(full, sum(s.bytes for u in slices for s in u.shapes))
            read += full
        written = sum(s.bytes for s in i.shapes if s.in_hbm)
        roots = [u for u in body if u.root and u.opcode == "dynamic-update-slice"]
        if roots and written:
            written = sum(s.bytes for s in self._operand(roots[0].operands[1]))
        return read, float(written)

    @staticmethod
    def _number(parameter: Instruction) -> int:
        found = re.match(r"\(?(\d+)\)?", parameter.attributes)
        return int(found.group(1)) if found else -1

    def _operand(self, name: str) -> tuple[Shape, ...]:
        found = self.by_name.get(name)
        return found.shapes if found else ()


def _plain(attributes: str) -> str:
    """An instruction's attributes without names, places in the source and the compiler's settings."""
    plain = re.sub(r"(metadata|backend_config)=\{.*|(calls|to_apply)=%?[\w.\-]+|sharding=\{[^}]*\}", "", attributes)
    return plain.strip(", ")


def parse_shapes(text: str) -> tuple[Shape, ...]:
    return tuple(
        Shape(dtype, tuple(int(d.strip("<=")) for d in dims.split(",") if d.strip("<=")), layout or "")
        for dtype, dims, layout in SHAPE.findall(text)
    )


def parse_module(text: str) -> Module:
    """Reads ``compiled.as_text()``. Lines it does not understand are skipped."""
    module, current = Module(), ""
    for line in text.splitlines():
        head = COMPUTATION.match(line)
        if head and not line.startswith("HloModule"):
            current = str(head.group(2))
            module.computations[current] = []
            if head.group(1):
                module.entry = current
            continue
        found = INSTRUCTION.match(line) if current else None
        if found:
            instruction = _instruction(found)
            if instruction:
                module.computations[current].append(instruction)
    return module


def _instruction(found: re.Match[str]) -> Instruction | None:
    rest = found.group(3)
    end = _type_end(rest)
    opened = re.match(r"\s*([\w\-]+)\(", rest[end:])
    if not opened:
        return None
    start = end + opened.end()
    close = _matching(rest, start - 1)
    inside = rest[start:close]
    operands = tuple(re.findall(r"%([\w.\-]+)", inside))
    keep = f"({inside})" if opened.group(1) in ("parameter", "constant") else ""
    if keep:
        keep = f"constant{keep}" if opened.group(1) == "constant" else keep
    return Instruction(
        found.group(2), opened.group(1), rest[:end], operands, keep + rest[close + 1 :], bool(found.group(1))
    )


def _type_end(text: str) -> int:
    """Where the result type ends: it is one tuple in parentheses, or runs to the first space."""
    return _matching(text, 0) + 1 if text.startswith("(") else text.index(" ") if " " in text else len(text)


def _matching(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        if text[i] == "(":
            depth += 1
        elif text[i] == ")":
            depth -= 1
            if depth == 0:
                return i
    return len(text) - 1

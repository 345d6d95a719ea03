"""Tables in SMEM whose values the compiler knows: constants that a kernel is given as scalar prefetch.

A splash kernel's block masks, say, decide which blocks run. They are constants of the program, so that how often its
regions run is known too. Here they are read from the compiled module, laid out as they lie in memory, and found in a
kernel's own program by the DMA that fetches them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import numpy as np

from maxkernel_nb.tpu.hlo import Instruction, Module
from maxkernel_nb.tpu.scalars import LOAD, SCALAR, STORE, literal
from maxkernel_nb.tpu.schedule import Program

OPERAND = re.compile(r"inlined_call_operand\.\w+ \[shape: [^\]]*\], index: (\d+), kind: input")
TYPES = {"s8": np.int8, "u8": np.uint8, "pred": np.int8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
         "u32": np.uint32}  # fmt: skip
PACKED, BYTES = (
    {2, 4, 6},
    {3, 15, 16, 17},
)  # fields of a literal that hold numbers one by one, and those that hold bytes
MOST = 1 << 20  # elements of a table
Words = tuple[int, ...]


class Tables:
    """The integer constants of a module. ``serialized``: the compiled HLO module's protocol buffer."""

    def __init__(self, module: Module, serialized: bytes) -> None:
        self.module = module
        self.values = dict(_literals(serialized)) if serialized else {}

    def of(self, i: Instruction) -> dict[int, Words]:
        """By operand number, those of its operands that are known, as the 32-bit words that lie in memory."""
        known = ((n, self._words(self.module.by_name.get(name))) for n, name in enumerate(i.operands))
        return {n: words for n, words in known if words}

    def _words(self, operand: Instruction | None) -> Words:
        if operand is None or len(operand.shapes) != 1 or operand.shapes[0].dtype not in TYPES:
            return ()
        shape = operand.shapes[0]
        count = int(np.prod(shape.dims, dtype=np.int64))
        if count > MOST:
            return ()
        if operand.opcode == "iota" and len(shape.dims) == 1:
            flat = np.arange(count)
        elif len(self.values.get(operand.name, ())) == count:
            flat = np.asarray(self.values[operand.name])
        else:
            return ()
        return _stored(flat.astype(TYPES[shape.dtype]).reshape(shape.dims), shape.layout)


def placed(program: Program, tables: Mapping[int, Words]) -> dict[int, int]:
    """{address: word} of every table that the program fetches to SMEM; ``scalars.literal`` numbers the addresses."""
    if not tables:
        return {}
    texts = [t for b in program.bundles for t in b.scalars]
    made = {m["to"]: t for t in texts if (m := SCALAR.match(t))}
    kept = {m["key"]: m["value"] for t in texts if (m := STORE.search(t))}
    memory: dict[int, int] = {}
    for dma in (d for b in program.bundles for d in b.dmas if d.kind.endswith("_to_smem")):
        operand = OPERAND.search(_origin(dma.source, made, kept))
        words = tables.get(int(operand[1]), ()) if operand else ()
        at = literal(_origin(dma.target, made, kept).partition("smov")[2])
        memory.update({at + n: word for n, word in enumerate(words) if at})
    return memory


def _origin(register: str, made: Mapping[str, str], kept: Mapping[str, str]) -> str:
    """The text that defines a register, behind copies and spills."""
    seen: set[str] = set()
    while register in made and register not in seen:
        seen.add(register)
        text = made[register]
        load = LOAD.search(text)
        if load and load["key"] in kept:
            register = kept[load["key"]]
            continue
        copied = re.search(r"= (?:smov|sshll\.u32|int_to_ptr\.\w+)(?: \[resolvable:\S+\])? (%s\w+)", text)
        if not copied:
            return text
        register = copied[1]
    return ""


def _stored(values: np.ndarray, layout: str) -> Words:
    """An array's 32-bit words in the order in which its tiled layout puts them."""
    order, _, tiling = layout.partition(":")
    major = [int(d) for d in reversed(order.split(",")) if d.isdigit()]
    found = values.transpose(major) if len(major) == values.ndim else values
    for tile in re.findall(r"\(([\d,]+)\)", tiling.partition("S(")[0]):
        found = _tiled(found, [int(n) for n in tile.split(",")])
    raw = found.tobytes()
    return tuple(np.frombuffer(raw + b"\0" * (-len(raw) % 4), dtype=np.int32).tolist())


def _tiled(values: np.ndarray, tile: list[int]) -> np.ndarray:
    values = values.reshape((1,) * max(len(tile) - values.ndim, 0) + values.shape)
    outer = values.ndim - len(tile)
    values = np.pad(values, [(0, 0)] * outer + [(0, -n % t) for n, t in zip(values.shape[outer:], tile, strict=True)])
    split = [m for n, t in zip(values.shape[outer:], tile, strict=True) for m in (n // t, t)]
    apart = values.reshape((*values.shape[:outer], *split))
    axes = range(outer, outer + len(split))
    return apart.transpose((*range(outer), *axes[::2], *axes[1::2]))


# --- the protocol buffer: HloModuleProto.computations (3) .instructions (2) .name (1), .literal (8)


def _literals(serialized: bytes) -> Iterator[tuple[str, list[int]]]:
    for computation in (v for n, v in _fields(serialized) if n == 3):
        for instruction in (v for n, v in _fields(computation) if n == 2):
            fields = dict(reversed(list(_fields(instruction))))
            if 8 in fields:
                yield fields[1].decode(), _numbers(fields[8])


def _numbers(told: bytes) -> list[int]:
    for number, value in _fields(told):
        if number in BYTES:
            wide = np.uint8 if number in (3, 15) else np.uint16
            return [int(n) for n in np.frombuffer(value, wide)]
        if number in PACKED:
            return [n & 0xFFFFFFFF for n in _varints(value)]
    return []


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, bytes) of every field that holds bytes; the others are passed over."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 2:
            size, at = _varint(message, at)
            yield key >> 3, message[at : at + size]
            at += size
        elif wire == 0:
            _, at = _varint(message, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of wire type {wire} in the compiled module")


def _varints(message: bytes) -> Iterator[int]:
    at = 0
    while at < len(message):
        number, at = _varint(message, at)
        yield number


def _varint(message: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at

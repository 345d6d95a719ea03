"""The little language of ``--shapes`` and ``--case``: ``x: bf16[4096,8192], labels: i32[4096] 0..32000, s: f32[]``."""

from __future__ import annotations

import difflib
import re
from typing import NoReturn

from maxkernel_nb.errors import UsageError
from maxkernel_nb.task import ArgSpec, Draw

EXAMPLE = "x: bf16[4096,8192], labels: i32[4096] 0..32000"

# Short name -> numpy-style name, as jax.numpy.dtype understands it.
DTYPES = {
    "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8e4m3": "float8_e4m3fn", "f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2", "f8": "float8_e4m3fn",
    "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "s4": "int4", "s8": "int8", "s16": "int16", "s32": "int32", "s64": "int64",
    "u4": "uint4", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "pred": "bool", "b1": "bool",
}  # fmt: skip
_FULL_NAMES = frozenset(DTYPES.values())
_ENTRY = re.compile(
    r"""\s*(?P<name>[^\W\d]\w*(?:\.\w+)*)\s*:\s*(?P<dtype>\w+)\s*
        \[(?P<dims>[\d\s,_]*)\]\s*(?:(?P<low>-?\d+)\s*\.\.\s*(?P<high>-?\d+))?\s*(?P<end>[,;\n]|$)""",
    re.VERBOSE,
)


def parse_shapes(text: str) -> tuple[ArgSpec, ...]:
    """One ``ArgSpec`` for each ``name: dtype[dims]``, in the order written; ``params.w`` lies inside ``params``.

    ``low..high`` after the brackets of an integer argument bounds its values, ``high`` excluded. Raises ``UsageError``
    with the column (1-based) of what is wrong.
    """
    found: list[ArgSpec] = []
    at = 0
    while text[at:].strip(" \t\n,;"):
        match = _ENTRY.match(text, at)
        if match is None:
            _complain(text, at)
        found.append(_argument(text, match))
        at = match.end()
    if not found:
        raise UsageError(f'No shapes were given; write for example "{EXAMPLE}".')
    names = [a.name for a in found]
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice:
        raise UsageError(f'Argument {twice!r} is given twice in "{_short(text)}"; keep one of them.')
    return tuple(found)


def dtype_name(word: str) -> str:
    """The numpy-style name for a short or full dtype name. Raises ``UsageError`` naming the nearest known one."""
    word = word.lower()
    if word in _FULL_NAMES:
        return word
    if word not in DTYPES:
        near = difflib.get_close_matches(word, [*DTYPES, *_FULL_NAMES], n=1, cutoff=0.0)[0]
        raise UsageError(f"Unknown dtype {word!r}; did you mean {near!r}? Known are {', '.join(sorted(DTYPES))}.")
    return DTYPES[word]


def default_draw(dtype: str) -> Draw:
    """What is drawn when only a dtype is known: N(0, 1), fair booleans, all of an 8-bit type, else {0, 1}."""
    if dtype == "bool":
        return Draw(kind="bernoulli", mean=0.5, std=0.5)
    bits = re.fullmatch(r"(u?)int(\d+)", dtype)
    if bits is None:
        return Draw()
    width = int(bits[2])
    if width > 8:  # most often an index: 0 and 1 are inside almost any array
        return Draw(kind="integers", low=0, high=2)
    low, high = (0, 2**width) if bits[1] else (-(2 ** (width - 1)), 2 ** (width - 1))
    return Draw(kind="integers", low=low, high=high)


def _argument(text: str, match: re.Match[str]) -> ArgSpec:
    try:
        dtype = dtype_name(match["dtype"])
    except UsageError as error:
        raise UsageError(f'Column {match.start("dtype") + 1} of "{_short(text)}": {error}') from None
    words = [d.strip().replace("_", "") for d in match["dims"].split(",")]
    if words[-1] == "":  # "[]" and a trailing comma
        words.pop()
    if not all(w.isdigit() and int(w) > 0 for w in words):
        raise UsageError(
            f'Column {match.start("dims") + 1} of "{_short(text)}": the dimensions [{match["dims"]}] of '
            f'{match["name"]!r} are not positive whole numbers; write for example "{EXAMPLE}".'
        )
    draw = default_draw(dtype)
    if match["low"] is not None:
        low, high = int(match["low"]), int(match["high"])
        if draw.kind != "integers" or low >= high:
            raise UsageError(
                f'Column {match.start("low") + 1} of "{_short(text)}": the range {low}..{high} needs an integer dtype '
                "and a lower bound below the upper one."
            )
        draw = Draw(kind="integers", low=low, high=high)
    return ArgSpec(name=match["name"], shape=tuple(int(w) for w in words), dtype=dtype, draw=draw)


_PARTS = ((r"\s*[^\W\d]\w*(?:\.\w+)*", "a parameter's name"), (r"\s*:", "':'"), (r"\s*\w+", "a dtype such as bf16"),
          (r"\s*\[", "'['"), (r"[\d\s,_]*\]", "whole numbers and ']'"))  # fmt: skip


def _complain(text: str, at: int) -> NoReturn:
    expected = "',' or the end"
    for pattern, part in _PARTS:
        match = re.compile(pattern).match(text, at)
        if match is None:
            expected = part
            break
        at = match.end()
    at += len(text[at:]) - len(text[at:].lstrip())
    seen = repr(text[at : at + 10]) if at < len(text) else "the end"
    raise UsageError(
        f'Column {at + 1} of "{_short(text)}": expected {expected}, found {seen}; write for example "{EXAMPLE}".'
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 120 else text[:117] + "..."

"""One module from several kernels' modules: names that clash get the kernel's name, shared helpers are kept once."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

_STANDARD = ("import functools", "import math")


@dataclass(frozen=True)
class Piece:
    """A top-level statement with the comments above it. ``name``: what it defines."""

    name: str
    text: str
    function: bool
    reads: frozenset[str]


def merged(sources: Mapping[str, str], entry: str = "") -> str:
    """``sources``: a kernel's function -> a whole module that defines it. ``entry``: the code that calls them."""
    imports: dict[str, None] = {}
    shared: dict[str, str] = {}
    blocks = []
    for kernel, source in sources.items():
        head, lines, pieces = taken_apart(source)
        imports.update(dict.fromkeys(lines))
        blocks.append(_renamed(kernel, head, pieces, shared))
    if "lax." in entry.replace("jax.lax.", ""):
        imports["from jax import lax"] = None
    return "\n\n\n".join(["\n".join(_sorted(list(imports))), *blocks, *([entry] if entry else [])]) + "\n"


def constant_name(kernel: str, constant: str) -> str:
    """``_norm``, ``BLOCK_M`` -> ``NORM_BLOCK_M``."""
    return f"{kernel.strip('_').upper()}_{constant}"


def taken_apart(source: str) -> tuple[str, list[str], list[Piece]]:
    """A module's head comment, its imports and its other statements."""
    body = ast.parse(source).body
    lines = source.split("\n")
    head = "\n".join(lines[: body[0].lineno - 1]).strip("\n")
    imports, pieces, end = [], [], body[0].lineno - 1
    for node in body:
        text = "\n".join(lines[end : node.end_lineno]).strip("\n")
        end = node.end_lineno or end
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(text)
            continue
        rest = lines[end - 1].encode()[node.end_col_offset or 0:].decode().strip()  # a comment behind it
        assert not rest or rest.startswith("#"), rest
        reads = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name))
        pieces.append(Piece(_defined(node), text, isinstance(node, ast.FunctionDef), reads))
    return head, imports, pieces


def _defined(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    raise ValueError(f"a kernel's module has {ast.unparse(node)[:60]!r} at its top")


def _renamed(kernel: str, head: str, pieces: list[Piece], shared: dict[str, str]) -> str:
    tops = {piece.name for piece in pieces}
    new: dict[str, str] = {}
    kept = []
    for piece in pieces:
        alone = piece.function and not (piece.reads & tops) - {piece.name}
        if piece.name == kernel:
            kept.append(piece)
        elif alone and piece.text == shared.get(piece.name, piece.text):
            kept += [] if piece.name in shared else [piece]
            shared[piece.name] = piece.text
        else:
            new[piece.name] = f"{kernel}{piece.name}" if piece.function else constant_name(kernel, piece.name)
            kept.append(piece)
    texts = [head]
    for before, piece in zip([None, *kept], kept, strict=False):
        gap = "\n" if before is not None and not before.function and not piece.function else "\n\n\n"
        texts.append((gap if before is not None else "\n\n") + piece.text)
    found = "".join(texts)
    for old, name in new.items():
        found = re.sub(rf"(?<![\w.]){re.escape(old)}\b", name, found)
    return found


def _sorted(imports: list[str]) -> list[str]:
    standard = sorted(line for line in imports if line in _STANDARD)
    others = sorted((line for line in imports if line not in _STANDARD), key=lambda x: (x.startswith("from"), x))
    return [*standard, *([""] if standard else []), *others]

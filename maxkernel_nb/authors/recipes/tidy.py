"""The last pass over a rendered module: what a template wrote and this kernel does not need goes, long lines break.

Nothing here changes what is computed: imports nobody reads, second names for an argument, a name that is only
returned. What cannot be shown to be safe stays as it is.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from maxkernel_nb.authors.recipes.text import fold_raises

WIDTH = 120


def tidied(source: str) -> str:
    """``source``, a module of functions; it must parse."""
    for change in (_without_imports, _without_aliases, _without_results, _broken):
        source = change(source)
    return source


def _without_imports(source: str) -> str:
    tree = ast.parse(source)
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    lines = source.split("\n")
    for node in tree.body:
        if not isinstance(node, ast.Import | ast.ImportFrom) or len(node.names) > 1:
            continue
        alias = node.names[0]
        if (alias.asname or alias.name.split(".")[0]) not in read:
            lines[node.lineno - 1] = "\0"
    text = "\n".join(lines)
    text = re.sub(r"\n\n(?:\0\n)+\n", "\n\n", text)  # a whole group of imports
    return text.replace("\0\n", "")


def _without_aliases(source: str) -> str:
    """``rows, columns = A, B``: where neither name is ever given another value, the first names go."""
    while (found := next(_aliases(source), None)) is not None:
        source = found
    return source


def _aliases(source: str) -> Iterator[str]:
    for function in (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)):
        stored = Counter(n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
        arguments = Counter(n.arg for n in ast.walk(function) if isinstance(n, ast.arg))
        for statement in function.body:
            pairs = _pairs(statement)
            ends = all(stored[a] == 1 and not arguments[a] and not stored[b] and arguments[b] == 1 for a, b in pairs)
            if pairs and ends:
                renamed = _renamed(source, function, statement, dict(pairs))
                if renamed is not None:
                    yield renamed


def _pairs(statement: ast.stmt) -> list[tuple[str, str]]:
    """New names and the names they stand for; empty where the statement does more than that."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return []
    if isinstance(statement.targets[0], ast.Tuple) != isinstance(statement.value, ast.Tuple):
        return []  # ``(a,) = b`` takes apart
    sides = [n.elts if isinstance(n, ast.Tuple) else [n] for n in (statement.targets[0], statement.value)]
    if len(sides[0]) != len(sides[1]) or not all(isinstance(n, ast.Name) for side in sides for n in side):
        return []
    return [(a.id, b.id) for a, b in zip(*sides, strict=True)]  # type: ignore[attr-defined]


def _renamed(source: str, function: ast.FunctionDef, statement: ast.stmt, names: dict[str, str]) -> str | None:
    """None where a name stands in an f-string, whose parts have no places before Python 3.12, or a line gets long."""
    inside = {n.id for s in ast.walk(function) if isinstance(s, ast.JoinedStr) for n in ast.walk(s)
              if isinstance(n, ast.Name)}  # fmt: skip
    if not inside.isdisjoint(names) or statement.lineno != statement.end_lineno:
        return None
    lines = source.split("\n")
    read = (n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id in names)
    places = [n for n in read if n.lineno != statement.lineno]
    for node in sorted(places, key=lambda n: (n.lineno, n.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()
        changed = line[: node.col_offset] + names[node.id].encode() + line[node.end_col_offset :]
        lines[node.lineno - 1] = changed.decode()
        if len(changed) > WIDTH:
            return None
    del lines[statement.lineno - 1]
    return "\n".join(lines)


def _without_results(source: str) -> str:
    """``y = ...; return y`` becomes ``return ...``."""
    lines = source.split("\n")
    functions = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and len(n.body) > 1]
    for function in reversed(functions):
        last, end = function.body[-2:]
        if not (isinstance(last, ast.Assign) and isinstance(end, ast.Return) and isinstance(end.value, ast.Name)):
            continue
        target = last.targets[0]
        loads = sum(isinstance(n, ast.Name) and n.id == end.value.id for n in ast.walk(function))
        if isinstance(target, ast.Name) and target.id == end.value.id and loads == 2 and end.lineno == end.end_lineno:
            lines[last.lineno - 1] = lines[last.lineno - 1].replace(f"{target.id} = ", "return ", 1)
            del lines[end.lineno - 1]
    return "\n".join(lines)


def _broken(source: str) -> str:
    """Heads of functions and calls that are too long, over several lines."""
    lines = source.split("\n")
    nodes = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.Assign | ast.Return)]
    for node in sorted(nodes, key=lambda n: n.lineno, reverse=True):
        line = lines[node.lineno - 1]
        if len(line) <= WIDTH or not line.isascii():  # ast counts bytes
            continue
        if isinstance(node, ast.FunctionDef):
            found = re.fullmatch(r"( *def \w+\()(.*)(\).*:)", line)
            lines[node.lineno - 1 : node.lineno] = _over(*found.groups()) if found else [line]
        elif node.lineno == node.end_lineno and isinstance(node.value, ast.Call):
            start, end = line.index("(", node.value.func.end_col_offset) + 1, (node.value.end_col_offset or 0) - 1
            lines[node.lineno - 1 : node.lineno] = _over(line[:start], line[start:end], line[end:])
    return fold_raises("\n".join(lines), WIDTH)


def _over(head: str, inside: str, tail: str) -> list[str]:
    margin = " " * (len(head) - len(head.lstrip()))
    whole = f"{margin}    {inside}"
    if len(whole) <= WIDTH:
        return [head, whole, margin + tail]
    return [head, *(f"{margin}    {part}," for part in _split(inside)), margin + tail]


def _split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts, depth, start, quoted = [], 0, 0, ""
    for at, character in enumerate(text):
        if quoted or character in "\"'":
            quoted = "" if character == quoted else quoted or character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]

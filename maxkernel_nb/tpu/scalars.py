"""Reads the scalar instructions of a scheduled program as definitions, each with its value as a Python expression."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from maxkernel_nb.tpu.schedule import CORE, LOAD, SCALAR, STORE, Bundle

MASK = 0xFFFFFFFF
NAME = re.compile(r"%([sp])(\w+)")
BINARY = {
    "sadd.s32": "{0} + {1}", "ssub.s32": "{0} - {1}", "sand.u32": "{0} & {1}", "sor.u32": "{0} | {1}",
    "sxor.u32": "{0} ^ {1}", "smul.u32": "wrap({0} * {1})", "smul.s32": "wrap({0} * {1})",
    "sshll.u32": "wrap({0} << ({1} & 63))", "sshrl.u32": "wrap(({0} & 4294967295) >> ({1} & 63))",
    "sshra.s32": "{0} >> ({1} & 63)", "smin.s32": "min({0}, {1})", "smax.s32": "max({0}, {1})",
    "smin.u32": "min({0} & 4294967295, {1} & 4294967295)", "smax.u32": "max({0} & 4294967295, {1} & 4294967295)",
    "scalar_lea.vmem": "{0} + {1}", "scalar_lea.hbm": "{0} + {1}", "scalar_lea.smem": "{0} + {1}",
    "scalar_lea.sflag": "{0} + {1}",
    "por": "{0} or {1}", "pand": "{0} and {1}", "pnand": "not ({0} and {1})", "pnor": "not ({0} or {1})",
    "pxor": "bool({0}) != bool({1})",
}  # fmt: skip
UNARY = {"smov": "{0}", "pmov": "{0}", "pneg": "not {0}", "int_to_ptr.vmem": "{0}", "int_to_ptr.smem": "{0}"}
COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass
class Definition:
    """``to`` becomes ``expression`` in bundle ``bundle``; ``needs``: the names in it. A ``phi`` has no expression: it
    takes one of its two needs, by the way control came."""

    to: str
    expression: str
    needs: tuple[str, ...]
    bundle: int
    phi: bool = False


def definitions(bundles: list[Bundle], tables: Container[int] = ()) -> tuple[list[Definition], set[str]]:
    """What is known, and the names of what is not. ``tables``: addresses in SMEM whose words are known; a load from
    them becomes a call of ``peek``."""
    defs: list[Definition] = []
    unknown: set[str] = set()
    stored = {m["key"] for b in bundles for t in b.scalars if (m := STORE.search(t))}
    memory = _Memory(bundles, tables) if tables else None
    for i, bundle in enumerate(bundles):
        for text in bundle.scalars:
            made = _store(text, i) if "sst [" in text else _scalar(text, i, stored)
            made = made or (memory.peek(text, i) if memory else None)
            if made:
                defs.append(made)
            elif found := SCALAR.match(text):
                unknown.add(local(found["to"]))
    return defs, unknown


class _Memory:
    """Which loads with a computed address can only hit known tables."""

    def __init__(self, bundles: list[Bundle], tables: Container[int]) -> None:
        self.tables = tables
        texts = [t for b in bundles for t in b.scalars]
        self.made = {m["to"]: m["args"] for t in texts if (m := SCALAR.match(t))}
        self.kept = {m["key"]: m["value"] for t in texts if (m := STORE.search(t))}
        written = [d.target for b in bundles for d in b.dmas if d.kind.endswith("_to_smem")]
        written += [m["key"] for t in texts if (m := STORE.search(t)) and "_spill" not in m["key"]]
        self.filled = {a for target in written for a in self.bases(target)}

    def peek(self, text: str, at: int) -> Definition | None:
        """Allocations that nothing fills stand in where a guard rules the load out."""
        found, load = SCALAR.match(text), LOAD.search(text)
        if not found or found["op"] != "sld" or not load or "%" not in load["key"]:
            return None
        parts = load["key"].split(" + ")
        filled = {a for part in parts for a in self.bases(part)} & self.filled
        if not filled or any(a not in self.tables for a in filled):
            return None
        return _make(local(found["to"]), f"peek({' + '.join(map(value, parts))})", tuple(parts), at)

    def bases(self, text: str) -> set[int]:
        """Addresses of the allocations that a register can hold, through copies, choices and spills."""
        found: set[int] = set()
        seen: set[str] = set()
        todo = [text]
        while todo:
            here = todo.pop()
            found |= {literal(a) for a in re.findall(r"#allocation\d+(?!\d|_spill)", here)}
            for name in re.findall(r"%s\w+", here):
                if name not in seen and name in self.made:
                    seen.add(name)
                    todo += [self.kept.get(k, "") for k in LOAD.findall(self.made[name])] or [self.made[name]]
        return found


def _store(text: str, at: int) -> Definition | None:
    found = STORE.search(text)
    if not found or "%" in found["key"]:
        return None
    stored, key = value(found["value"]), _slot(found["key"])
    predicate = found["pred"] or ""
    needs = [*names(found["value"])]
    if predicate:
        stored = f"({stored} if {value(predicate)} else {key})"
        needs += [*names(predicate), key]
    return Definition(key, stored, tuple(needs), at)


def _scalar(text: str, at: int, stored: set[str]) -> Definition | None:
    found = SCALAR.match(text)
    if not found:
        return None
    to, op, args = local(found["to"]), found["op"], found["args"].strip()
    if op == "sld":
        load = LOAD.match(args)
        if load and load["key"] in stored and "%" not in load["key"]:
            return Definition(to, _slot(load["key"]), (_slot(load["key"]),), at)
        return None
    args = re.sub(r"\[resolvable:\$\w+\]", "", args)
    select = re.match(r"\((!?%p\w+), (%\w+)\),\s*(.+)$", args)  # keeps the old value unless the predicate holds
    if select:
        p, old, new = select.groups()
        return _make(to, f"({value(new)} if {value(p)} else {value(old)})", (p, old, new), at)
    guard = re.match(r"\((!?%p\w+)\),?\s*", args)
    if guard:
        args = args[guard.end() :]
    parts = [p.strip() for p in args.split(",") if p.strip()]
    if op == "sphi" and len(parts) == 2:
        return Definition(to, "", tuple(local(p) for p in parts), at, phi=True)
    if op == "scalar_select" and len(parts) == 3:
        return _make(to, f"({value(parts[1])} if {value(parts[0])} else {value(parts[2])})", tuple(parts), at)
    expression = _expression(op, parts)
    return _make(to, expression, tuple(parts), at) if expression else None


def _expression(op: str, parts: list[str]) -> str:
    values = [value(p) for p in parts]
    compare = re.match(r"scmp\.(\w\w)\.([su])32", op)
    if compare and len(values) == 2 and compare[1] in COMPARE:
        a, b = (f"({v} & 4294967295)" if compare[2] == "u" else v for v in values)
        return f"{a} {COMPARE[compare[1]]} {b}"
    if op in BINARY and len(values) == 2:
        return BINARY[op].format(*values)
    if op in UNARY and len(values) == 1:
        return UNARY[op].format(*values)
    return ""


def _make(to: str, expression: str, parts: tuple[str, ...], at: int) -> Definition:
    return Definition(to, expression, tuple(n for p in parts for n in names(p)), at)


def local(text: str) -> str:
    """``%s23536_s29`` -> ``s23536_s29``; a literal stays as it is."""
    if text.strip() == CORE:
        return CORE
    return text.lstrip("!").lstrip("%") if "%" in text else str(literal(text))


def value(text: str) -> str:
    text = text.strip()
    if text.startswith("!"):
        return f"(not {local(text)})"
    return local(text)


def names(text: str) -> list[str]:
    return [kind + rest for kind, rest in NAME.findall(text)]


def _slot(key: str) -> str:
    return "m_" + re.sub(r"\W+", "_", key)


def literal(text: str) -> int:
    """Integers as signed 32-bit; an allocation's address is not known: a number of its own tells it from others."""
    place = re.search(r"#allocation(\d+)(?: \+ \$0x([0-9a-f]+))?", text)
    if place:
        return ((int(place[1]) + 1) << 20) + int(place[2] or "0", 16)
    found = re.fullmatch(r"-?\d+|-?0x[0-9a-f]+", text.strip().lstrip("$"))
    return wrap(int(found.group(0), 0)) if found else 0


def wrap(value: int) -> int:
    value &= MASK
    return value - (MASK + 1) if value > MASK >> 1 else value


def taint(defs: list[Definition], unknown: set[str]) -> set[str]:
    known = {d.to for d in defs}
    tainted = set(unknown) | {n for d in defs for n in d.needs if n not in known and not _is_number(n)}
    changed = True
    while changed:
        changed = False
        for d in defs:
            if d.to not in tainted and any(n in tainted for n in d.needs):
                tainted.add(d.to)
                changed = True
    return tainted


def _is_number(name: str) -> bool:
    return name.lstrip("-").isdigit()


def needed(defs: list[Definition], roots: set[str]) -> set[str]:
    by_name: dict[str, list[Definition]] = {}
    for d in defs:
        by_name.setdefault(d.to, []).append(d)
    needed, todo = set(), list(roots)
    while todo:
        name = todo.pop()
        if name in needed:
            continue
        needed.add(name)
        todo += [n for d in by_name.get(name, ()) for n in d.needs if not _is_number(n)]
    return needed

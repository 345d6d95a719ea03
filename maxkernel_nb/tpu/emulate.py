"""Runs the scalar side of a scheduled program, to learn how often each of its bundles executes and what its DMAs move.

The compiler's final program carries its whole control flow: grid counters, ``pl.when`` conditions, loop bounds and DMA
guards are scalar instructions in single-assignment form. They are translated to one Python function (only what
branches and DMAs depend on) and run. So region frequencies and trip counts come from the very program that would run,
for Pallas kernels and XLA fusions alike. What depends on data (scalar prefetch, values taken from vectors) is unknown:
such a branch is counted as falling into its region, such a loop as run once, and both are reported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from maxkernel_nb.tpu.schedule import CORE, LOAD, SCALAR, STORE, Bundle, Dma, Program, Wait

DELAY_SLOTS = 4  # bundles after a branch that run anyway (v4 to v6e); a region marker may show fewer
STEP_BUDGET = 400_000  # executed basic blocks; about half a second
MASK = 0xFFFFFFFF
SIZE_UNKNOWN = "DMA sizes that depend on data are counted as whole blocks"
GUARD_UNKNOWN = "DMAs whose guard depends on data are counted as always issued"
REGION_UNKNOWN = "regions whose condition depends on data are counted as always run"
TRIPS_UNKNOWN = "a loop whose trip count depends on data is counted as one trip"
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
class Execution:
    """``times[i]``: how often bundle i runs. ``bytes_in``/``bytes_out``: HBM bytes by DMA, over the whole program.

    ``steps``: for each iteration of the outermost loop (one entry without a loop) the bundles it runs and the HBM bytes
    it issues; ``trace``: its DMAs and waits in order; ``repeat`` scales both where only the first part of a long loop
    was run. ``unknown`` says what could not be followed, each as a sentence.
    """

    times: list[float]
    bytes_in: float = 0.0
    bytes_out: float = 0.0
    steps: list[tuple[float, float, float]] = field(default_factory=list)
    trace: list[Event] = field(default_factory=list)
    bundles: int = 0  # that were run; ``times`` adds up to ``repeat`` times this
    repeat: float = 1.0
    trips: tuple[float, ...] = ()
    unknown: list[str] = field(default_factory=list)
    moved: list[tuple[int, str, float]] = field(default_factory=list)  # (bundle, kind, bytes) a DMA instruction


class Guess(NamedTuple):
    """Stands in for data: ``trips`` of a loop that data ends, ``granules`` of a DMA that data sizes and that moves no
    block, and whether regions and DMAs that data guards run."""

    trips: int = 1
    granules: int = 0
    regions: bool = True


class Event(NamedTuple):
    """One thing that the program does at bundle number ``at`` of its run: issue a DMA, wait for one, or pass the
    head of its outermost loop. ``flag`` is the sync flag of a DMA or wait, ``size`` in granules."""

    at: int
    kind: int
    flag: int = 0
    size: int = 0


WAITS, READS, WRITES, HEAD = range(4)


@dataclass
class _Def:
    to: str
    expression: str
    needs: tuple[str, ...]
    bundle: int
    phi: bool = False
    predicate: str = ""


@dataclass
class _Block:
    first: int
    last: int  # inclusive
    branch_at: int = -1


def execute(program: Program, granule: int = 32, core: int = 0, guess: Guess | None = None) -> Execution:
    """Emulates the control flow of ``program``; ``granule``: the chip's DMA unit in bytes; ``core``: whose share of
    the work, on a device of several cores; ``guess``: what to take for what depends on data."""
    guess = guess or Guess()
    bundles = program.bundles
    blocks = _blocks(bundles)
    defs, unknown_names = _definitions(bundles, blocks)
    tainted = _taint(defs, unknown_names)
    source, dmas, notes = _generate(bundles, blocks, defs, tainted, granule, guess)
    scope: dict = {"wrap": _wrap}
    exec(compile(source, "<schedule>", "exec"), scope)
    counts, moved, trace, cycles, finished = scope["run"](STEP_BUDGET, core)
    run = _collect(program, blocks, counts, moved, dmas, finished, notes, granule)
    run.trace, run.bundles = [Event(*e) for e in trace], cycles
    run.steps = _steps(run, granule)
    return run


def _wrap(value: int) -> int:
    value &= MASK
    return value - (MASK + 1) if value > MASK >> 1 else value


# --- structure


def _delay(bundles: list[Bundle], at: int) -> int:
    for d in range(DELAY_SLOTS + 1):
        if at + d < len(bundles) and bundles[at + d].ends_region:
            return d
    return min(DELAY_SLOTS, len(bundles) - 1 - at)


def _blocks(bundles: list[Bundle]) -> list[_Block]:
    leaders, branch_ends = {0}, {}
    for i, b in enumerate(bundles):
        if b.branch:
            end = i + _delay(bundles, i)
            if b.branch.target > i:
                end = min(end, b.branch.target - 1)
            branch_ends[end] = i
            leaders.update({b.branch.target, end + 1})
    starts = sorted(x for x in leaders if x < len(bundles))
    ends = [s - 1 for s in starts[1:]] + [len(bundles) - 1]
    return [_Block(s, e, branch_ends.get(e, -1)) for s, e in zip(starts, ends, strict=True)]


# --- reading instructions


def _definitions(bundles: list[Bundle], blocks: list[_Block]) -> tuple[list[_Def], set[str]]:
    defs: list[_Def] = []
    unknown: set[str] = set()
    stored = {m["key"] for b in bundles for t in b.scalars if (m := STORE.search(t))}
    for i, bundle in enumerate(bundles):
        for text in bundle.scalars:
            made = _store(text, i) if "sst [" in text else _scalar(text, i, stored)
            if made:
                defs.append(made)
            elif found := SCALAR.match(text):
                unknown.add(_local(found["to"]))
    return defs, unknown


def _store(text: str, at: int) -> _Def | None:
    found = STORE.search(text)
    if not found or "%" in found["key"]:
        return None
    value, key = _value(found["value"]), _slot(found["key"])
    predicate = found["pred"] or ""
    needs = [*_names(found["value"])]
    if predicate:
        value = f"({value} if {_value(predicate)} else {key})"
        needs += [*_names(predicate), key]
    return _Def(key, value, tuple(needs), at)


def _scalar(text: str, at: int, stored: set[str]) -> _Def | None:
    found = SCALAR.match(text)
    if not found:
        return None
    to, op, args = _local(found["to"]), found["op"], found["args"].strip()
    if op == "sld":
        load = LOAD.match(args)
        if load and load["key"] in stored and "%" not in load["key"]:
            return _Def(to, _slot(load["key"]), (_slot(load["key"]),), at)
        return None
    args = re.sub(r"\[resolvable:\$\w+\]", "", args)
    select = re.match(r"\((!?%p\w+), (%\w+)\),\s*(.+)$", args)  # keeps the old value unless the predicate holds
    if select:
        p, old, new = select.groups()
        return _make(to, f"({_value(new)} if {_value(p)} else {_value(old)})", (p, old, new), at)
    guard = re.match(r"\((!?%p\w+)\),?\s*", args)
    if guard:
        args = args[guard.end() :]
    parts = [p.strip() for p in args.split(",") if p.strip()]
    if op == "sphi" and len(parts) == 2:
        return _Def(to, "", tuple(_local(p) for p in parts), at, phi=True)
    if op == "scalar_select" and len(parts) == 3:
        return _make(to, f"({_value(parts[1])} if {_value(parts[0])} else {_value(parts[2])})", tuple(parts), at)
    expression = _expression(op, parts)
    return _make(to, expression, tuple(parts), at) if expression else None


def _expression(op: str, parts: list[str]) -> str:
    values = [_value(p) for p in parts]
    compare = re.match(r"scmp\.(\w\w)\.([su])32", op)
    if compare and len(values) == 2 and compare[1] in COMPARE:
        a, b = (f"({v} & 4294967295)" if compare[2] == "u" else v for v in values)
        return f"{a} {COMPARE[compare[1]]} {b}"
    if op in BINARY and len(values) == 2:
        return BINARY[op].format(*values)
    if op in UNARY and len(values) == 1:
        return UNARY[op].format(*values)
    return ""


def _make(to: str, expression: str, parts: tuple[str, ...], at: int) -> _Def:
    return _Def(to, expression, tuple(n for p in parts for n in _names(p)), at)


def _local(text: str) -> str:
    """``%s23536_s29`` -> ``s23536_s29``; a literal stays as it is."""
    if text.strip() == CORE:
        return CORE
    return text.lstrip("!").lstrip("%") if "%" in text else str(_literal(text))


def _value(text: str) -> str:
    text = text.strip()
    if text.startswith("!"):
        return f"(not {_local(text)})"
    return _local(text)


def _names(text: str) -> list[str]:
    return [kind + rest for kind, rest in NAME.findall(text)]


def _slot(key: str) -> str:
    return "m_" + re.sub(r"\W+", "_", key)


def _literal(text: str) -> int:
    """Integers as signed 32-bit; an allocation's address is not known: a number of its own tells it from others."""
    place = re.search(r"#allocation(\d+)(?: \+ \$0x([0-9a-f]+))?", text)
    if place:
        return ((int(place[1]) + 1) << 20) + int(place[2] or "0", 16)
    found = re.fullmatch(r"-?\d+|-?0x[0-9a-f]+", text.strip().lstrip("$"))
    return _wrap(int(found.group(0), 0)) if found else 0


# --- what can be known


def _taint(defs: list[_Def], unknown: set[str]) -> set[str]:
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


def _needed(defs: list[_Def], roots: set[str]) -> set[str]:
    by_name: dict[str, list[_Def]] = {}
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


# --- translation to Python


def _generate(
    bundles: list[Bundle], blocks: list[_Block], defs: list[_Def], tainted: set[str], granule: int, guess: Guess
) -> tuple[str, list[tuple[int, str]], list[str]]:
    notes: list[str] = []
    dmas = [(i, d) for i, b in enumerate(bundles) for d in b.dmas if "hbm" in d.kind]
    waits = [(i, w) for i, b in enumerate(bundles) for w in b.waits]
    roots = {n for b in bundles if b.branch for n in _names(b.branch.predicate)}
    moved: list[tuple[int, Dma | Wait]] = [*dmas, *waits]
    roots |= {n for _, x in moved for text in (x.predicate, x.size, x.flag) for n in _names(text)}
    needed = _needed(defs, roots) - tainted
    kept = [d for d in defs if d.to in needed]
    by_bundle: dict[int, list[_Def]] = {}
    for d in kept:
        by_bundle.setdefault(d.bundle, []).append(d)
    index_of = {b.first: k for k, b in enumerate(blocks)}
    home = {d.to: d.bundle for d in kept}
    outer = next((k for k, b in enumerate(blocks) if bundles[b.first].mark == "LB" and bundles[b.first].depth <= 1), -1)
    flags = _Flags(defs, tainted)
    body: list[list[str]] = []
    for k, block in enumerate(blocks):
        head = k == outer
        lines = [f"log((cy, {HEAD}))"] if head else []
        lines += [f"c[{k}] += 1"]
        for i in range(block.first, block.last + 1):
            lines += _phis(by_bundle.get(i, ()), k, i, blocks, home)
            lines += [f"{d.to} = {d.expression}" for d in by_bundle.get(i, ()) if not d.phi]
            now = f"cy + {i - block.first}"
            here = [(n, d) for n, (at, d) in enumerate(dmas) if at == i]
            lines += [_move(n, d, now, granule, tainted, notes, guess, flags) for n, d in here]
            for n, (at, w) in enumerate(waits):
                lines += _wait(n, w, now, tainted, flags).splitlines() if at == i else []
        lines += [f"cy += {block.last - block.first + 1}"]
        lines += _jump(bundles, blocks, k, index_of, tainted, notes, guess)
        body.append(lines)
    names = sorted(needed)
    start = [f"{' = '.join(names)} = 0"] if names else []
    start += ["prev = -1", "pc = cy = 0", "trace = []", "log = trace.append"]
    start += [
        f"w = [0] * {len(waits)}",
        f"c = [0] * {len(blocks)}",
        f"t = [0] * {len(blocks)}",
        f"d = [0] * {len(dmas)}",
    ]
    out = [f"def run(budget, {CORE}):", *("    " + s for s in start), "    while budget:", "        budget -= 1"]
    out += _dispatch(body, 0, len(body), 2)
    out += ["    return c, d, trace, cy, False"]
    return "\n".join(out), [(i, d.kind) for i, d in dmas], notes


def _phis(defs, block: int, at: int, blocks: list[_Block], home: dict[str, int]) -> list[str]:
    """All phis of a bundle at once (they read the old values). The operand is chosen by the edge control came along."""
    phis = [d for d in defs if d.phi]
    if not phis:
        return []
    values = []
    for d in phis:
        first, second = d.needs
        at_1, at_2 = home.get(first, -1), home.get(second, -1)
        if max(at_1, at_2) >= at:  # a loop: one operand comes from the back edge
            back, entry = (second, first) if at_2 >= at_1 else (first, second)
            values.append(f"({back} if prev >= {block} else {entry})")
        else:  # a join: the operand defined later lies in the region that may have been skipped
            late, early = (second, first) if at_2 >= at_1 else (first, second)
            lo = next((k for k, b in enumerate(blocks) if b.first <= max(at_1, at_2) <= b.last), block)
            values.append(f"({late} if prev >= {lo} else {early})")
    return [f"{', '.join(d.to for d in phis)} = {', '.join(values)}" + ("," if len(phis) == 1 else "")
            if len(phis) > 1 else f"{phis[0].to} = {values[0]}"]  # fmt: skip


def _move(n: int, dma, now: str, granule: int, tainted: set[str], notes: list[str], guess: Guess, flags: _Flags) -> str:
    size = _local(dma.size)
    if size in tainted:
        size = str(dma.window_bytes // granule or guess.granules)
        notes.append(SIZE_UNKNOWN)
    condition = _value(dma.predicate) if dma.predicate else "True"
    if _local(dma.predicate or "0") in tainted:
        condition = str(guess.regions)
        notes.append(GUARD_UNKNOWN)
    kind = READS if dma.kind.startswith("hbm_to") else WRITES
    return f"if {condition}: d[{n}] += {size}; log(({now}, {kind}, {flags.number(dma.flag)}, {size}))"


def _wait(n: int, wait, now: str, tainted: set[str], flags: _Flags) -> str:
    """A wait whose guard or size depends on data is for one DMA, always; a pipeline's first finds nothing to wait for,
    for its guard would have said that no block is under way."""
    size = "1" if _local(wait.size) in tainted else _local(wait.size)
    event = f"log(({now}, {WAITS}, {flags.number(wait.flag)}, {size}))"
    if wait.predicate and _local(wait.predicate) in tainted:
        return f"if w[{n}]: {event}\nw[{n}] = 1" if wait.pipelined else event
    return f"if {_value(wait.predicate) if wait.predicate else 'True'}: {event}"


class _Flags:
    """Sync flags by number. Where data chooses between a buffer's flags (which slot is next), the buffer's first stands
    for all of them: its DMAs are waited for in the order in which they were issued."""

    def __init__(self, defs: list[_Def], tainted: set[str]) -> None:
        self.tainted = tainted
        self.made = {d.to: d for d in defs}

    def number(self, text: str) -> str:
        if not text:
            return "0"
        if "[" in text and "%" in text:
            return str(_literal(text.partition("+")[0]))
        if not any(n in self.tainted for n in _names(text)):
            return _local(text)
        return self.first(_local(text), set())

    def first(self, name: str, seen: set[str]) -> str:
        """The allocation that a register's value is counted from; 0 where none is found."""
        made = self.made.get(name)
        if made is None or name in seen:
            return "0"
        seen.add(name)
        place = re.search(r"\b\d{7,}\b", made.expression)
        if place:
            return place.group()
        return next((f for n in made.needs if (f := self.first(n, seen)) != "0"), "0")


def _jump(bundles, blocks, k, index_of, tainted, notes, guess: Guess) -> list[str]:
    at = blocks[k].branch_at
    last = k + 1 >= len(blocks)
    following = "return c, d, trace, cy, True" if last else f"pc = {k + 1}"
    leave = [f"prev = {k}"]
    if at < 0:
        return [*leave, following]
    branch = bundles[at].branch
    target = index_of[branch.target]
    if branch.predicate and _local(branch.predicate) in tainted:
        if branch.target > at:
            notes.append(REGION_UNKNOWN)
            return [*leave, following if guess.regions else f"pc = {target}"]
        notes.append(TRIPS_UNKNOWN)
        again = f"t[{k}] = (t[{k}] + 1) % {guess.trips}"
        return [*leave, again, f"if t[{k}]: pc = {target}", f"else: {following}"]
    condition = _value(branch.predicate) if branch.predicate else "True"
    return [*leave, f"if {condition}: pc = {target}", f"else: {following}"]


def _dispatch(body: list[list[str]], lo: int, hi: int, depth: int) -> list[str]:
    """A balanced tree of comparisons on ``pc``: Python has no jump table."""
    pad = "    " * depth
    if hi - lo == 1:
        return [pad + line for line in body[lo]]
    mid = (lo + hi) // 2
    return [
        f"{pad}if pc < {mid}:",
        *_dispatch(body, lo, mid, depth + 1),
        f"{pad}else:",
        *_dispatch(body, mid, hi, depth + 1),
    ]


# --- result


def _collect(program, blocks, counts, moved, dmas, finished, notes, granule) -> Execution:
    times = [0.0] * len(program.bundles)
    for block, count in zip(blocks, counts, strict=True):
        times[block.first : block.last + 1] = [float(count)] * (block.last - block.first + 1)
    scale = 1.0
    if not finished:
        scale = _remaining(program, times)
        notes.append("the program is long: its frequencies were read from the first part of its grid")
        times = [t * scale for t in times]
    into = sum(m for m, (_, kind) in zip(moved, dmas, strict=True) if kind.startswith("hbm_to"))
    out = sum(m for m, (_, kind) in zip(moved, dmas, strict=True) if kind.endswith("to_hbm"))
    return Execution(
        times=times,
        bytes_in=into * granule * scale,
        bytes_out=out * granule * scale,
        repeat=scale,
        trips=tuple(times[i] for i, b in enumerate(program.bundles) if b.mark == "LB"),
        unknown=list(dict.fromkeys(notes)),
        moved=[(at, kind, m * granule * scale) for m, (at, kind) in zip(moved, dmas, strict=True)],
    )


def _steps(run: Execution, granule: int) -> list[tuple[float, float, float]]:
    """Between one loop head and the next: (bundles, HBM bytes read, HBM bytes written)."""
    steps, begun = [], 0
    moved = {READS: 0, WRITES: 0}
    for event in (*run.trace, Event(run.bundles, HEAD)):
        if event.kind == HEAD:
            steps.append((float(event.at - begun), float(moved[READS] * granule), float(moved[WRITES] * granule)))
            begun, moved = event.at, {READS: 0, WRITES: 0}
        elif event.kind != WAITS:
            moved[event.kind] += event.size
    return steps


def _remaining(program: Program, times: list[float]) -> float:
    """How many times longer the outermost loop is than what was run of it: its exit test's constant over its count."""
    for i, b in enumerate(program.bundles):
        ends = [c for c in program.bundles[i:] if c.branch and c.branch.target == i]
        if b.mark != "LB" or b.depth > 1 or not times[i] or not ends:
            continue
        test = re.compile(rf"{re.escape(ends[0].predicate.lstrip('!'))} = scmp\.g\w\.s32\.totalorder %\w+, (\d+)")
        for text in (t for c in program.bundles[i:] for t in c.scalars):
            bound = test.match(text)
            if bound:
                return max(int(bound.group(1)) / times[i], 1.0)
    return 1.0

"""Reads the compiler's schedule dumps: the VLIW program of each op and the issue slots of each bundle.

A bundle is one cycle. Only scalar instructions, branches and DMAs are read one by one; vector work is counted from the
utilisation table that the compiler writes beside the program.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path

STAMPED = re.compile(r"^\d+-(?P<op>.+?)-\d+-(?P<kind>final_bundles|final_hlo-static-per-bundle-utilization)\.txt$")
BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|0)\s+(?P<mark>L[BHE]|P[BF]|CT)?\s*:\s*(?P<depth>>*)\s*\{(?P<body>.*)$")
REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
SCALAR = re.compile(r"^(?P<to>%[sp]\w+) = (?P<op>[a-z][\w.]*)\s*(?P<args>.*)$")
STORE = re.compile(r"sst \[smem:\[(?P<key>[^\]]*)\]\]\s*(?:\((?P<pred>!?%p\w+)\),\s*)?(?P<value>\S+)")
LOAD = re.compile(r"\[smem:\[(?P<key>[^\]]*)\]\]")
BRANCH = re.compile(  # libtpu 0.0.23 also gives a bundle number, from before packing: of no use
    r"sbr\.rel\s*(?:\((?P<pred>!?%p\w+)\)\s*)?target (?:= \$region|bundleno = [^,]*, region = )(?P<region>\d+)"
)
DMA = re.compile(
    r"= dma\.(?P<kind>\w+)\s+(?:\[[^\]]*\]\s*)?(?:\((?P<pred>!?%p\w+)\),)?\s*/\*\w+=\*/(?P<src>%?\w+),"
    r"\s*/\*size_in_granules=\*/(?P<size>[%\w]+),\s*/\*\w+=\*/(?P<dst>%?\w+)",
    re.S,
)
WAIT = re.compile(
    r"= dma\.done\.wait\s+(?:\((?P<pred>!?%p\w+)\),\s*)?(?P<flag>\[#\w+[^\]]*\]|%\w+),\s*(?P<size>[%\w]+)"
)
FLAG = re.compile(r"/\*dst_syncflagno=\*/(\[#\w+[^\]]*\]|%?\w+)")
WINDOW = re.compile(r"\nwindow_bounds: \(([\d, ]*)\).*?\nelement_size_in_bytes: (\d+)", re.S)
MATMUL = re.compile(r"= vmatmul\.(?:[\w.]*\b(?P<wide>f32)\b)?")
CORE = "core_number"
OTHERS = ("dma.", "sbr.rel", "sst [")  # what is read of instructions that define no scalar
UNITS = {
    "MXU": "mxu", "XLU": "xlu", "VALU": "valu", "VPOP": "vpop", "EUP": "eup", "VLOAD": "vload",
    "VLOAD:FILL": "fill", "VSTORE": "vstore", "VSTORE:SPILL": "spill", "SALU": "salu",
    "LOAD": "vload", "STORE": "vstore",  # libtpu 0.0.17, which separates them by bars
}  # fmt: skip


@dataclass(frozen=True)
class Dma:
    """One DMA instruction. ``size`` is in granules: an integer, or the register that holds it.

    ``source`` and ``target`` are its addresses, ``flag`` the sync flag that tells of its end: registers or literals.
    ``window_bytes``: the most it moves, where it fetches or writes a block; 0 unknown.
    """

    kind: str
    predicate: str
    size: str
    source: str = ""
    target: str = ""
    flag: str = ""
    window_bytes: int = 0


@dataclass(frozen=True)
class Wait:
    """Waits until ``size`` granules (integer or register) have arrived on the sync flag ``flag``. ``pipelined``: it is
    the pipeline's own, for a block that an earlier step began to move."""

    predicate: str
    flag: str
    size: str
    pipelined: bool = False


@dataclass(frozen=True)
class Branch:
    """``target`` is a bundle index; it is taken when ``predicate`` (may start with ``!``; empty: always) holds."""

    predicate: str
    target: int


@dataclass
class Bundle:
    mark: str = ""
    depth: int = 0
    scalars: list[str] = field(default_factory=list)
    dmas: list[Dma] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    branch: Branch | None = None
    label: str = ""  # the region a branch goes to, before targets are known
    predicate: str = ""
    ends_region: bool = False
    rows: int = 0  # that its instructions send through the matrix units, counted as bfloat16 ones


@dataclass
class Program:
    """The final program of one scheduled op. ``slots[unit]`` has an entry a bundle, ``capacity[unit]`` is a cycle's."""

    name: str
    bundles: list[Bundle]
    slots: dict[str, list[int]] = field(default_factory=dict)
    capacity: dict[str, int] = field(default_factory=dict)
    asks_core: bool = False  # reads its core's number: its work is shared between the cores of the device


class UnknownForm(Exception):
    """A dump that this reader does not understand: fall back to HLO estimates."""


def read_programs(folder: Path) -> dict[str, Program]:
    """Every op's program in a dump folder, by the HLO instruction's name.

    Raises:
        UnknownForm: there are dumps, and none could be read.
    """
    programs: dict[str, Program] = {}
    tables: dict[str, tuple[dict[str, list[int]], dict[str, int]]] = {}
    for path in sorted(folder.iterdir()):
        found = STAMPED.match(path.name)
        if not found or found["op"].startswith("<") or found["op"] == "TLP":
            continue
        text = path.read_text(errors="replace")
        if found["kind"] == "final_bundles":
            with contextlib.suppress(UnknownForm):
                asks_core = "/* core id */" in text
                programs[found["op"]] = Program(found["op"], parse_bundles(text), asks_core=asks_core)
        else:
            tables[found["op"]] = parse_utilisation(text)
    for name, program in programs.items():
        program.slots, program.capacity = tables.get(name, ({}, {}))
    if tables and not any(p.bundles for p in programs.values()):
        raise UnknownForm(f"none of {len(tables)} schedule dumps could be read")
    return programs


def deduplicated(folder: Path) -> dict[str, str]:
    """Names of ops whose program was not dumped again, each with the op it equals."""
    same: dict[str, str] = {}
    for path in folder.glob("*deduplication-map*"):
        for line in path.read_text(errors="replace").splitlines():
            names = re.findall(r"%?([\w.\-]+)", line)
            if len(names) >= 2:
                same[names[0]] = names[-1]
    return same


def parse_utilisation(text: str) -> tuple[dict[str, list[int]], dict[str, int]]:
    """The per-bundle slot counts by unit, and each unit's slots a cycle. Empty where the table has another form."""
    head, _, rows = text.partition("== UTILIZATION:")
    names = [line for line in head.splitlines() if "MXU" in line]
    numbers = [line for line in head.splitlines() if re.fullmatch(r"[\d\s]+", line) and line.strip()]
    if not names or not numbers:
        return {}, {}
    units = [UNITS.get(n.strip(), n.strip().lower()) for n in re.split(r"[,|]", names[0])]
    capacity = dict(zip(units, map(int, numbers[0].split()), strict=False))
    table = [[int(n) for n in line.split()] for line in rows.splitlines() if line.strip()]
    return {u: [row[i] for row in table if i < len(row)] for i, u in enumerate(units)}, capacity


def parse_bundles(text: str) -> list[Bundle]:
    """The program as bundles, with branch targets resolved to bundle indices."""
    bundles: list[Bundle] = []
    regions: dict[str, int] = {}
    way_out = -1  # the one region without a mark is the program's end
    for mark, depth, body in _raw_bundles(text):
        if mark == "PF" and "exit bundle" in body and not REGION.search(body):
            way_out = len(bundles)
        code, trailer = _split(body)
        for region in REGION.findall(trailer):
            regions.setdefault(region, len(bundles))
        bundles.append(_bundle(mark, depth, code, trailer))
    for bundle in bundles:
        if bundle.label:
            target = regions.get(bundle.label, way_out)
            if target < 0:
                raise UnknownForm(f"branch to region {bundle.label}, which the dump does not mark")
            bundle.branch = Branch(bundle.predicate, target)
    _name_general_dmas(bundles)
    return bundles


def _window_bytes(text: str) -> int:
    window = WINDOW.search(text)
    return math.prod(int(n) for n in window[1].split(",") if n.strip()) * int(window[2]) if window else 0


def _name_general_dmas(bundles: list[Bundle]) -> None:
    """``dma.general`` does not say which way it goes: its two addresses do."""
    if not any(d.kind == "general" for b in bundles for d in b.dmas):
        return
    made = {m["to"]: t for b in bundles for t in b.scalars if (m := SCALAR.match(t))}
    kept = {m["key"]: m["value"] for b in bundles for t in b.scalars if (m := STORE.search(t))}
    for bundle in bundles:
        for n, d in enumerate(bundle.dmas):
            if d.kind == "general":
                way = f"{_space(d.source, made, kept)}_to_{_space(d.target, made, kept)}"
                bundle.dmas[n] = replace(d, kind=way)


def _space(register: str, made: dict[str, str], kept: dict[str, str]) -> str:
    """The memory an address register points into: followed through copies, spills and pointer arithmetic."""
    seen: set[str] = set()
    todo = [register]
    while todo:
        name = todo.pop()
        text = made.get(name, "")
        if name in seen or not text:
            continue
        seen.add(name)
        for space in ("hbm", "vmem", "smem"):
            if re.search(rf"(scalar_lea|int_to_ptr|inlined_call_operand)\.{space}\b", text):
                return space
        load = LOAD.search(text)
        todo += [kept[load["key"]]] if load and load["key"] in kept else re.findall(r"%s\w+", text)[1:]
    return "unknown"


def _raw_bundles(text: str):
    """(mark, loop depth, text) a bundle; comments inside may run over several lines."""
    current: list[str] | None = None
    mark, depth = "", 0
    for line in text.splitlines():
        found = BUNDLE.match(line)
        if found:
            if current is not None:
                yield mark, depth, "\n".join(current)
            mark, depth, current = found["mark"] or "", len(found["depth"]), [found["body"]]
        elif current is not None:
            current.append(line)
    if current is not None:
        yield mark, depth, "\n".join(current)


def _split(body: str) -> tuple[str, str]:
    """The instructions, and the comment behind the closing brace."""
    end = body.rfind("}")
    comment = body.rfind("} /*")
    end = comment if comment >= 0 else end
    return body[:end], body[end + 1 :]


def _rows(code: str) -> int:
    """A register holds 8 rows of float32 and 16 of bfloat16; narrower types hold more and are as much quicker."""
    return sum(8 if m["wide"] else 16 for m in MATMUL.finditer(code)) if "= vmatmul." in code else 0


def _bundle(mark: str, depth: int, code: str, trailer: str) -> Bundle:
    bundle = Bundle(mark=mark, depth=depth, ends_region="End region" in trailer, rows=_rows(code))
    for part in code.split(";;"):
        if not part.lstrip().startswith(("%s", "%p")) and not any(word in part for word in OTHERS):
            continue  # vector work, which is most of it
        if "dma." in part and "= dma." in part:
            found = DMA.search(part)
            if found and "shalt" not in part:
                flag = FLAG.search(part)
                ends = (found["src"], found["dst"], flag[1] if flag else "")
                bundle.dmas.append(Dma(found["kind"], found["pred"] or "", found["size"], *ends, _window_bytes(part)))
                continue
            wait = WAIT.search(part)
            if wait:
                pipelined = "pipeline-emitter-dma-wait" in part
                bundle.waits.append(Wait(wait["pred"] or "", wait["flag"], wait["size"], pipelined))
                continue
        core = "/* core id */" in part
        text = re.sub(r"/\*.*?\*/", " ", part, flags=re.S).strip()
        if core:
            text = re.sub(r"= sld .*", f"= smov {CORE}", text)
        jump = BRANCH.search(text)
        if jump:
            bundle.predicate, bundle.label = jump["pred"] or "", jump["region"]
        elif SCALAR.match(text) or STORE.search(text):
            bundle.scalars.append(text)
    return bundle

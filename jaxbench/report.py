"""Results summed up: as text for a terminal, as Markdown, and as one HTML page that needs nothing else."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jaxbench import pictures, statistics
from jaxbench.results import Kind, Result, Status
from jaxbench.statistics import POLICY, THRESHOLDS, Summary, breakdown, summarise
from maxkernel_nb.store import write_atomically

KERNEL_FILES = "kernel files"


@dataclass(frozen=True)
class Table:
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Section:
    """``picture``: (file name, PNG)."""

    title: str
    paragraphs: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    pictures: tuple[tuple[str, bytes], ...] = ()


def sections(results: Sequence[Result], draw: bool = True) -> list[Section]:
    """One section for the references of each chip and size, one for each entrant (author and mode, or kernel files)."""
    made: list[Section] = []
    for (chip, size), group in _grouped(results, Kind.REFERENCE).items():
        made.append(_references(chip, size, group, draw))
    rivals = [r for r in results if r.kind is Kind.RIVAL]
    for (chip, name), group in _entrants(results).items():
        made.append(_entrant(chip, name, group, draw, [r for r in rivals if r.chip == chip]))
    return made


def text_report(results: Sequence[Result]) -> str:
    parts = []
    for section in sections(results, draw=False):
        parts += [section.title, "=" * len(section.title), *section.paragraphs, *map(_text_table, section.tables), ""]
    return "\n".join(parts).rstrip()


def write_report(results: Sequence[Result], folder: Path) -> list[Path]:
    """``report.md`` with its pictures beside it, and ``report.html`` with everything inside. Gives the files."""
    made = sections(results)
    folder.mkdir(parents=True, exist_ok=True)
    made_files = [(folder / name, data) for section in made for name, data in section.pictures]
    made_files += [(folder / "report.md", _markdown(made).encode()), (folder / "report.html", _html(made).encode())]
    for path, data in made_files:
        write_atomically(path, data)
    return [path for path, _ in made_files]


# -- what is said ----------------------------------------------------------------------------------------------------


def _references(chip: str, size: str, group: list[Result], draw: bool) -> Section:
    timed = [r for r in group if r.ok and r.reference_ms]
    failed = [r for r in group if not r.ok]
    head = ("task", "modelled ms", "roofline ms", "bound by", "published ms", "modelled/published", "algebra alone")
    rows = tuple(
        (r.task, _ms(r.reference_ms), _ms(r.roofline_ms), r.bound_by, _ms(r.published_ms), *_published(r))
        if r.ok else (r.task, r.status, "", "", "", "", r.reason)
        for r in group
    )  # fmt: skip
    errors = sorted({f"{r.error_pct:g} %" for r in timed if r.error_pct is not None})
    said = [
        f"{len(group)} references on {chip}: {len(timed)} compiled and modelled, {len(failed)} failed. Times are "
        f"modelled from the TPU compiler's schedule, not measured (typical error by program: {', '.join(errors)})."
    ]
    ratios = statistics.ratio_to_published(group)
    if ratios:
        mean = statistics.geomean(list(ratios.values())) or 0.0
        said.append(
            f"Where a published time applies as it is (n = {len(ratios)}), modelled/published is {mean:.2f} in the "
            f"geometric mean, {min(ratios.values()):.2f} to {max(ratios.values()):.2f}. Published: medians on a v6e by "
            "the original benchmark's authors; ratios in brackets are for programs or inputs that differ a little."
        )
    if any(r.cpu_wall_ms is not None for r in group):
        said.append("Wall clock on this machine's CPU is in the results file; it says nothing about a TPU.")
    name = f"roofline-{chip}-{size}.png"
    title = f"References under XLA, {size} size, modelled"
    drawn = ((name, pictures.roofline(timed, title)),) if draw and timed else ()
    return Section(f"References on {chip}, {size} size", tuple(said), (Table(head, rows),), drawn)


def _entrant(chip: str, name: str, group: list[Result], draw: bool, rivals: Sequence[Result] = ()) -> Section:
    total = summarise(group)
    said = [_sentence(total), POLICY, _kept(group)]
    if ratios := statistics.against(group, rivals):
        each = ", ".join(f"{task} {_x(ratio)}" for task, ratio in ratios.items())
        said.append(f"Against jax's own Pallas kernel with tuned blocks, under the same model: {each}.")
    if any(r.weak for r in group):
        weak = ", ".join(f"{r.task} ({', '.join(r.weak)})" for r in group if r.weak)
        said.append(f"Weak tasks, where a wrong answer would pass: {weak}.")
    if any(r.loosened for r in group):
        said.append("Tolerance loosened by the user: " + ", ".join(r.task for r in group if r.loosened) + ".")
    head = ("task", "kernel ms", "XLA ms", "speedup", "algebra x kernel", "bound by", "verdict")
    rows = tuple(_kernel_row(r) for r in group)
    classes = {
        **breakdown(group, lambda r: r.tier or "other"),
        **breakdown(group, lambda r: "mostly algebra" if r.algebra else "no algebra"),
    }
    slug = "".join(c if c.isalnum() else "-" for c in f"{chip}-{name}")
    how = " and ".join(sorted({r.evidence for r in group if r.evidence})) or "not timed"
    drawn: tuple[tuple[str, bytes], ...] = ()
    if draw:
        drawn = (
            (f"speedups-{slug}.png", pictures.lollipop(group, f"{name} on {chip}, {how}")),
            (f"roofline-{slug}.png", pictures.roofline(group, f"{name} on {chip}, {how}")),
        )
    return Section(f"{name} on {chip}", tuple(said), (Table(head, rows), _summary_table(total, classes)), drawn)


def _sentence(total: Summary) -> str:
    if not total.n:
        return f"Nothing was judged ({total.faults} faults of our own)."
    counted = f"n = {total.n}, {total.failed} failures as 1x, {total.clipped} clipped"
    told = (
        f"{total.verified} of {total.n} tasks have a verified kernel; geometric mean {_x(total.geomean)} ({counted}), "
        f"{_x(total.geomean_verified)} over the {len(total.speedups)} verified and timed alone."
    )
    return told + (f" {total.faults} tries ended in a fault of our own and do not count." if total.faults else "")


def _kept(group: Sequence[Result]) -> str:
    k = statistics.kept(group)
    told = (
        f"With the reference kept wherever it is faster: {k.answered} of {k.n} tasks answered ({k.verified} by a "
        f"verified kernel), geometric mean {_x(k.geomean)}; by algebra alone, in plain JAX, {_x(k.algebraic)}"
    )
    return told + (f"; the {k.eight_n} production tasks with a hand-tuned kernel {_x(k.eight)}." if k.eight_n else ".")


def _kernel_row(r: Result) -> tuple[str, ...]:
    split = statistics.split_gain(r)
    parts = f"{split[0]:.2f} x {split[1]:.2f}" if split and r.algebra_ms else ""
    verdict = ", ".join(filter(None, ("verified", r.evidence))) if r.ok else f"{r.status}: {r.reason}"
    return (r.task, _ms(r.kernel_ms if r.ok else None), _ms(r.reference_ms), _x(r.speedup), parts, r.bound_by, verdict)


def _summary_table(total: Summary, classes: dict[str, Summary]) -> Table:
    head = ("class", "n", "verified", "geomean", *(f"fast_{p:g}" for p in THRESHOLDS))
    named = {"all": total, **classes}
    rows = tuple(
        (name, str(s.n), str(s.verified), _x(s.geomean), *(f"{100 * s.fast[p]:.0f} %" for p in THRESHOLDS))
        for name, s in named.items()
    )
    return Table(head, rows)


def _grouped(results: Sequence[Result], kind: Kind) -> dict[tuple[str, str], list[Result]]:
    groups: dict[tuple[str, str], dict[tuple[str, str], Result]] = {}
    for r in results:
        if r.kind is kind:
            groups.setdefault((r.chip, r.size), {})[r.suite, r.task] = r  # of several versions, the last
    return {key: sorted(group.values(), key=_order) for key, group in groups.items()}


def _entrants(results: Sequence[Result]) -> dict[tuple[str, str], list[Result]]:
    """By chip and entrant; of several tries at one task the best, or the last where none was verified."""
    groups: dict[tuple[str, str], dict[tuple[str, str], Result]] = {}
    for r in results:
        if r.kind in (Kind.REFERENCE, Kind.RIVAL):
            continue
        name = KERNEL_FILES if r.kind is Kind.KERNEL else f"{r.author}, {r.mode}"
        tries = groups.setdefault((r.chip, name), {})
        known = tries.get((r.suite, r.task))
        if known is None or _rank(r) >= _rank(known):
            tries[r.suite, r.task] = r
    return {key: sorted(group.values(), key=_order) for key, group in groups.items()}


def _rank(r: Result) -> tuple[bool, bool, float]:
    return r.status is not Status.INFRASTRUCTURE, r.ok, r.speedup or 0.0


def _order(r: Result) -> tuple[str, int, str]:
    digits = "".join(c for c in r.task.split("_")[0] if c.isdigit())
    return r.suite, int(digits or 0), r.task


# -- how it is said --------------------------------------------------------------------------------------------------


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _x(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"


def _published(r: Result) -> tuple[str, str]:
    ratio = r.reference_ms / r.published_ms if r.reference_ms and r.published_ms else None
    told = "" if ratio is None else f"({ratio:.2f})" if r.published_note else f"{ratio:.2f}"
    return told, f"{r.algebraic_gain:.1f}x" if r.algebraic_gain else ""


def _text_table(table: Table) -> str:
    columns = list(zip(table.head, *table.rows, strict=True))
    widths = [min(60, max(map(len, column))) for column in columns]

    def told(row: Sequence[str]) -> str:
        cells = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "  ".join(cells).rstrip()

    return "\n".join(["", told(table.head), *map(told, table.rows)])


def _markdown(made: Sequence[Section]) -> str:
    parts = ["# jaxbench"]
    for section in made:
        parts += [f"## {section.title}", *section.paragraphs]
        parts += [f"![{section.title}]({name})" for name, _ in section.pictures]
        for table in section.tables:
            rows = [table.head, tuple("---" for _ in table.head), *table.rows]
            parts.append("\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows))
    return "\n\n".join(parts) + "\n"


def fragment(results: Sequence[Result]) -> str:
    """The report as HTML with its pictures inside, to be shown within a page."""
    return _html(sections(results), whole=False)


def _html(made: Sequence[Section], whole: bool = True) -> str:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    page = (files("jaxbench") / "report.jinja").read_text(encoding="utf-8")
    return environment.from_string(page).render(
        sections=made, whole=whole, b64=lambda data: base64.b64encode(data).decode()
    )

"""``python -m maxkernel_nb.tpu.calibrate``: the model of time held against published times.

``--report`` prints, for every stored compiler, each published row beside what the model says with constants that were
fitted without it (seconds: nothing is compiled). ``--compile`` makes the terms of the programs anew with the installed
jax (or ``--python``'s) into a cache folder, ``--table`` prints all programs of the cache, ``--store`` writes the
published ones into the package, ``--fit`` fits the constants and stores the leave-one-out times. ``--sample`` prints
the stored references on the chips that nobody published times of; ``--compile --sample`` makes them anew (ten minutes a
chip) into folders beside ``--cache``, ``--store --sample`` writes them into the package. ``--order`` compiles a tuning
space and prints modelled times beside bundles and bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.tpu.calibration import compile as compiling
from maxkernel_nb.tpu.calibration import report as reporting
from maxkernel_nb.tpu.calibration.fit import OUTLIER, Fit
from maxkernel_nb.tpu.calibration.order import SPACES, order
from maxkernel_nb.tpu.calibration.rows import (
    CHIP,
    FOLDER,
    SAMPLED,
    environments,
    modelled_ms,
    published,
    sample,
    write_environment,
)
from maxkernel_nb.tpu.constants import constants

# Ten references a chip that compile in minutes. XLA takes ten over a product on v7x; 16p does not fit v4 and v5e.
_SAMPLE = ("1p", "6p", "11p", "12p", "14p", "15p", "20k", "46k")
SAMPLE = {
    "v4": (*_SAMPLE, "5p", "25k"), "v5e": (*_SAMPLE, "25k", "44k"), "v5p": (*_SAMPLE, "16p", "25k"),
    "v7x": (*_SAMPLE, "5p", "44k"),
}  # fmt: skip


def report() -> Iterator[str]:
    """All stored environments, the one of the measured age first."""
    yield from reporting.summary()
    for environment in environments():
        yield ""
        yield from reporting.report(environment)


def fit(folder: Path) -> Iterator[str]:
    """Fits to the environment of the measured age; stores every environment's times with the row's own left out."""
    stored = environments()
    fitting = Fit(stored[0], published())
    best = fitting.best(start=constants(CHIP))
    yield f"fitted to {stored[0].name}: {reporting.constants_text(best)}"
    yield f"mean error {100 * fitting.loss(fitting.rows, best):.1f} %, outliers counted as {100 * OUTLIER:.0f} %"
    unseen = fitting.leave_one_out(best)
    found = {e.name: {p: modelled_ms(e.programs[p], c) for p, c in unseen.items() if p in e.programs} for e in stored}
    yield f"left-one-out times in {reporting.write_leave_one_out(found, folder)}"
    for program, c in unseen.items():
        if c != best:
            yield f"  without {program}: {reporting.constants_text(c)}"


def compile_all(options: argparse.Namespace) -> int:
    """Compiles what the cache lacks; for ``--sample`` on each of its chips."""
    python = options.python or sys.executable
    if not options.sample:
        return compiling.compile_programs(options.programs, options.names, options.chip, options.cache, python)
    return max(
        compiling.compile_programs(
            options.programs, options.names or SAMPLE[chip], chip, _of(options.cache, chip), python
        )
        for chip in SAMPLED
    )


def store(cache: Path, folder: Path) -> str:
    """Writes the cache's published programs into the package."""
    found = compiling.read_cache(cache)
    wanted = {r.program for r in published()}
    kept = {name: p for name, p in found.programs.items() if name in wanted}
    return str(write_environment(found.model_copy(update={"programs": kept}), folder))


def store_samples(cache: Path, folder: Path) -> Iterator[str]:
    """Writes every sampled chip's references into the package."""
    for chip in SAMPLED:
        yield str(write_environment(compiling.read_cache(_of(cache, chip)), folder, chip))


def samples() -> Iterator[str]:
    """The stored references on the other chips beside their roofline."""
    for chip in SAMPLED:
        yield from reporting.table(sample(chip), chip)
        yield ""


def _of(cache: Path, chip: str) -> Path:
    return cache.with_name(f"{cache.name}-{chip}")


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="python -m maxkernel_nb.tpu.calibrate", description=__doc__)
    found.add_argument("--report", action="store_true", help="print the stored calibration (the default)")
    found.add_argument("--fit", action="store_true", help="fit the constants and store the leave-one-out times")
    found.add_argument("--compile", action="store_true", help="compile the programs into --cache (minutes)")
    found.add_argument("--store", action="store_true", help="write the cache into the package")
    found.add_argument("--table", action="store_true", help="print every program of --cache as modelled on --chip")
    found.add_argument("--sample", action="store_true", help="the references on the chips without published times")
    found.add_argument("--order", choices=sorted(SPACES), help="compile a tuning space and print its order")
    found.add_argument("--cache", type=Path, default=Path(".maxkernel") / "calibration", help="folder of --compile")
    found.add_argument("--programs", default=compiling.MODULE, help="module with names() and program(name)")
    found.add_argument("--names", nargs="*", default=(), help="only these programs")
    found.add_argument("--chip", default=CHIP)
    found.add_argument("--python", default="", help="another environment's interpreter, for its compiler")
    return found


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    folder = Path(str(files(FOLDER)))
    status = 0
    try:
        if options.compile:
            status = compile_all(options)
        if options.store:
            kept = store_samples(options.cache, folder) if options.sample else (store(options.cache, folder),)
            _say(*(f"stored {path}" for path in kept))
        if options.fit:
            _say(*fit(folder))
        if options.table:
            _say(*reporting.table(compiling.read_cache(options.cache), options.chip))
        if options.order:
            _say(*order(options.order, options.chip))
        if options.sample and not (options.compile or options.store):
            _say(*samples())
        others = (options.compile, options.store, options.fit, options.table, options.order, options.sample)
        if options.report or not any(others):
            _say(*report())
    except MaxKernelError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return status


def _say(*lines: str) -> None:
    sys.stdout.write("".join(line + "\n" for line in lines))
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

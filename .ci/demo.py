"""``make demo``: executes the quickstart without a browser and says what came out, one line a task.

``make quickstart`` (``--store``) does it in an empty project and keeps the outputs in the notebook itself.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import nbclient
import nbformat
from nbconvert import HTMLExporter

HERE = Path(__file__).resolve().parent.parent
NOTEBOOK = HERE / "example_notebooks" / "01_quickstart.ipynb"
OUT = HERE / "build" / "demo"
LIMIT_S = 420  # one cell


def main(store: bool) -> int:
    if store:
        shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True, exist_ok=True)
    before = {run.id for run in _runs()}
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    print(f"Running {NOTEBOOK.name}: {len(code)} cells, a few minutes, no TPU and no key needed.", flush=True)
    failed = _execute(notebook, code)
    report = _write(notebook)
    new = [run for run in _runs() if run.id not in before]
    for run in new:
        print(_line(run))
    print(f"Report: {report}")
    wrong = failed or not new or any(run.outcome == "failed" for run in new)
    if store and not wrong:
        nbformat.write(notebook, NOTEBOOK)
        print(f"Stored in {NOTEBOOK.relative_to(HERE)}")
    return 1 if wrong else 0


def _runs():
    from maxkernel_nb import api

    return api.runs(project=OUT)


def _execute(notebook, code) -> bool:
    start = time.monotonic()

    def started(cell, cell_index):
        if cell.cell_type == "code":
            first = (cell.source.strip().splitlines() or [""])[0]
            print(f"  {time.monotonic() - start:5.0f} s  [{code.index(cell) + 1}/{len(code)}] {first[:80]}", flush=True)

    client = nbclient.NotebookClient(notebook, timeout=LIMIT_S, kernel_name="python3", record_timing=False,
                                     on_cell_start=started, resources={"metadata": {"path": str(OUT)}})
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        print(f"A cell failed:\n{error}", file=sys.stderr)
        return True
    return False


def _write(notebook) -> Path:
    nbformat.write(notebook, OUT / NOTEBOOK.name)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    report = OUT / "01_quickstart.html"
    report.write_text(page, encoding="utf-8")
    return report


def _line(run) -> str:
    speed = f"{run.speedup:.2f}x over XLA, modelled" if run.speedup else "no verified kernel timed"
    return f"{run.id:<24} {run.chip:<4} {speed:<28} {run.outcome or run.status}"


if __name__ == "__main__":
    sys.exit(main(store="--store" in sys.argv[1:]))

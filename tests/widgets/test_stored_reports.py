"""Reports where no style, script or kernel lives: GitHub, nbconvert's HTML, a PDF made of it."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
import samples
from github_html import as_read

from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.widgets.html import render_fragment

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "example_notebooks").glob("*.ipynb"))
GOLDEN = Path(__file__).parent / "golden" / "report_as_github_reads_it.txt"
HEADS = ("Checks", "Profile", "Plan", "Proposal", "Candidates", "Steps and spend")


def reports(path):
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            text = output.get("data", {}).get("text/html", "")
            if "mkn-report" in text:
                yield text


def test_a_report_without_styles_ids_and_scripts_reads_as_kept():
    read = as_read(render_fragment(document(fold(samples.accepted()))))
    assert read == GOLDEN.read_text(encoding="utf-8"), "look at what it says now; it goes into the file"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_stored_report_reads_without_styles(path):
    for html in reports(path):
        read = as_read(html)
        heads = re.findall(r"^## (.+)$", read, re.MULTILINE)
        assert set(heads) & set(HEADS), heads[:4]
        assert "Next:" in read and "mkn-" not in read and "{" not in read.split("Next:")[0]
        assert not re.search(r"<(script|iframe|link)\b|\bon\w+=|https?://(?!localhost)", html)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_nbconvert_makes_html_with_every_report_in_it(path):
    from nbconvert import HTMLExporter

    body, _ = HTMLExporter().from_filename(str(path))
    assert body.count('class="mkn-report"') == len(list(reports(path)))
    assert "application/vnd.jupyter.widget-state" not in body


@pytest.mark.e2e
def test_a_notebook_with_a_report_prints_as_pdf(browser, tmp_path):
    from nbconvert import HTMLExporter

    path = next(path for path in NOTEBOOKS if list(reports(path)))
    page = browser.new_page()
    page.set_content(HTMLExporter(template_name="webpdf").from_filename(str(path))[0], wait_until="domcontentloaded")
    made = page.pdf(path=tmp_path / "notebook.pdf", print_background=True)
    page.close()
    assert made.startswith(b"%PDF") and len(made) > 20_000

"""One JupyterLab and one Chromium for the folder; a fresh page a test, its last sight kept in test-results/."""

import shutil
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "test-results"
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    from jupyter_lab import LabServer

    server = LabServer(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser, request):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    yield opened
    RESULTS.mkdir(exist_ok=True)
    opened.screenshot(path=RESULTS / f"{request.node.name}.png")
    context.close()

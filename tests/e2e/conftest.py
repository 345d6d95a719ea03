"""One JupyterLab for the folder; a fresh page a test, its last sight kept in test-results/."""

import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "test-results"


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    from jupyter_lab import LabServer

    server = LabServer(tmp_path_factory.mktemp("lab"))
    yield server
    server.stop()


@pytest.fixture(scope="module")
def notebook7(tmp_path_factory):
    from jupyter_lab import LabServer

    server = LabServer(tmp_path_factory.mktemp("notebook7"), app="notebook")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def lab_together(tmp_path_factory):
    from jupyter_lab import LabServer

    server = LabServer(tmp_path_factory.mktemp("together"), together=True)
    yield server
    server.stop()


@pytest.fixture
def name(request):
    """For a notebook and its folder: the test's, and another when it is tried again."""
    return f"{re.sub(r'[^a-zA-Z0-9]+', '_', request.node.name)}_{getattr(request.node, 'execution_count', 1)}"


@pytest.fixture
def page(browser, request):
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    opened = context.new_page()
    yield opened
    RESULTS.mkdir(exist_ok=True)
    opened.screenshot(path=RESULTS / f"{request.node.name}.png")
    context.close()

"""One server of each kind for the folder; a fresh page a test, its last sight kept in test-results/."""

import os
import re
from pathlib import Path

import pytest

RESULTS = Path(__file__).resolve().parents[2] / "test-results"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    from lab_venv import build_wheel

    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def installed(request, tmp_path_factory):
    """What the servers run: this environment, or with MAXKERNEL_E2E=wheel a new one with the wheel and no Node."""
    if os.environ.get("MAXKERNEL_E2E") != "wheel":
        return {}
    from jupyter_lab import SUPPORT
    from lab_venv import Environment

    environment = Environment(tmp_path_factory.mktemp("wheel") / "venv", also=("notebook", "jupyter-collaboration"))
    environment.install(request.getfixturevalue("wheel"))
    return {"python": environment.python, "environment": {**environment.variables, "PYTHONPATH": str(SUPPORT)}}


@pytest.fixture(scope="session")
def started(installed, tmp_path_factory):
    """``started(app, together)``: a server of its kind, one for all tests."""
    from jupyter_lab import LabServer

    servers = {}

    def start(app="jupyterlab", together=False):
        if (app, together) not in servers:
            folder = tmp_path_factory.mktemp(f"{app}{'_together' if together else ''}")
            servers[app, together] = LabServer(folder, app=app, together=together, **installed)
        return servers[app, together]

    yield start
    for server in servers.values():
        server.stop()


@pytest.fixture
def lab(started):
    return started()


@pytest.fixture
def notebook7(started):
    return started("notebook")


@pytest.fixture
def lab_together(started):
    return started(together=True)


@pytest.fixture
def notebook7_together(started):
    return started("notebook", together=True)


@pytest.fixture
def server(request):
    """JupyterLab, or what a test's parameter names."""
    return request.getfixturevalue(getattr(request, "param", "lab"))


@pytest.fixture
def fresh(server, page, name):
    """A notebook with a plain function, MaxKernel loaded. Nothing on the page may leave the server it came from."""
    from lab_page import FUNCTION, LabPage, foreign, scripted

    elsewhere = foreign(page.context, server.url)
    opened = LabPage(page, server.notebook(f"{name}.ipynb", [scripted(name), FUNCTION, "z = 1"]))
    opened.run(0)
    yield opened
    assert elsewhere == []


@pytest.fixture
def notebook(fresh):
    """The same, with a proposal in the cell of the function."""
    from playwright.sync_api import expect

    fresh.optimise(1)
    expect(fresh.proposal).to_be_visible()
    return fresh


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

"""The wheel in an environment of its own, with no Node in reach: installed, used, switched off, uninstalled.

MAXKERNEL_TEST_FRESH=1 has pip fetch every dependency too, in place of linking those that are installed here.
"""

import json
import os
import re
import shutil

import pytest
from jupyter_lab import SUPPORT, LabServer
from lab_page import FUNCTION, KERNEL, LabPage, foreign, scripted
from lab_venv import Environment, build_wheel
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def extensions(environment, settings):
    """Ours, as `jupyter labextension list` has it."""
    listed = environment.run("jupyter", "labextension", "list", environment=settings)
    plain = re.sub(r"\x1b\[\d+m", "", listed)
    return [line.strip() for line in plain.splitlines() if "maxkernel" in line]


def buttons(page, address):
    """Our buttons and sidebar tabs on a page that is there in full."""
    opened = LabPage(page, address)
    page.evaluate("() => window.jupyterapp.restored")
    opened.select(1)
    below = page.locator(".jp-cell-toolbar").get_by_role("button", name=re.compile("^Insert a cell below"))
    expect(below).to_be_visible()
    opened.settle()
    return [page.get_by_role("button", name=re.compile("MaxKernel")).count(),
            page.get_by_role("tab", name="MaxKernel runs").count()]


@pytest.mark.timeout(900)
def test_the_wheel_brings_the_button_without_node_and_leaves_nothing_behind(tmp_path, page):
    environment = Environment(tmp_path / "venv", fresh=bool(os.environ.get("MAXKERNEL_TEST_FRESH")))
    before = environment.contents()
    environment.install(build_wheel(tmp_path / "dist"))
    assert shutil.which("node", path=environment.variables["PATH"]) is None
    settings = {f"JUPYTER_{kind.upper()}_DIR": str(tmp_path / "lab" / kind) for kind in ("config", "data")}
    assert extensions(environment, settings) == ["maxkernel-nb v0.1.0 enabled OK (python, maxkernel-nb)"]

    (tmp_path / "lab").mkdir(exist_ok=True)
    variables = {**environment.variables, "PYTHONPATH": str(SUPPORT)}
    server = LabServer(tmp_path / "lab", python=environment.python, environment=variables)
    try:
        elsewhere = foreign(page.context, server.url)
        address = server.notebook("wheel.ipynb", [scripted("wheel"), FUNCTION])
        opened = LabPage(page, address)
        opened.run(0)
        opened.optimise(1)
        expect(opened.proposal).to_be_visible()
        opened.choose("Accept all")
        opened.has_source(1, KERNEL.rstrip("\n"))
        where = opened.ask("import maxkernel_nb; print(maxkernel_nb.__file__)")
        assert where.startswith(str(environment.folder))
        opened.ended("accepted BoundKernel")

        address = server.notebook("off.ipynb", ["1", FUNCTION])
        environment.run("jupyter", "labextension", "disable", "maxkernel-nb", "--level=user", environment=settings)
        assert buttons(page, address) == [0, 0]
        (tmp_path / "lab" / "config" / "labconfig" / "page_config.json").unlink()
        overrides = environment.folder / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
        overrides.parent.mkdir(exist_ok=True)
        overrides.write_text(json.dumps({"maxkernel-nb:plugin": {"enabled": False}}))
        assert buttons(page, address) == [0, 0]
        shutil.rmtree(overrides.parent)
        assert buttons(page, address) == [1, 1]

        environment.uninstall()
        assert extensions(environment, settings) == [] and buttons(page, address) == [0, 0]
        assert elsewhere == []
    finally:
        server.stop()
    assert sorted(environment.contents() - before) == [] and sorted(before - environment.contents()) == []

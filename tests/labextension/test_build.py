"""The lab extension as it is committed: built from these sources, in step with the kernel's contract."""

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from maxkernel_nb.options import SETTINGS
from maxkernel_nb.widgets.typescript import contract

LAB = Path(__file__).resolve().parents[2] / "labextension"


def test_the_built_files_come_from_these_sources():
    digest = hashlib.sha256()
    files = [f"{folder}/{path.name}" for folder in ("src", "style", "schema") for path in (LAB / folder).iterdir()]
    for name in sorted([*files, "package.json", "tsconfig.json"]):
        digest.update(f"{name}\n".encode() + (LAB / name).read_bytes())
    built = (LAB / "built" / "built-from.txt").read_text().strip()
    assert built == digest.hexdigest(), "labextension/built is out of date; run: make frontend"


def test_the_typescript_contract_is_the_kernels():
    assert (LAB / "src" / "contract.ts").read_text() == contract(), (
        "run: python -m maxkernel_nb.widgets.typescript > labextension/src/contract.ts"
    )


def test_its_settings_are_those_of_the_option_table():
    import json

    schema = json.loads((LAB / "schema" / "plugin.json").read_text())["properties"]
    table = {option.name: option for option in SETTINGS}
    for name, field in schema.items():
        if field["type"] == "string":  # the others are the front end's own
            assert tuple(c for c in field.get("enum", ()) if c) == table[name].choices


def test_its_sources_reach_no_network_but_the_servers_and_write_no_html():
    forbidden = r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|EventSource|importScripts|https?://(?!www\.w3\.org)|innerHTML"
    for path in (LAB / "src").iterdir():
        found = re.search(forbidden, path.read_text())
        assert not found, f"{path.name}: {found[0]}"


@pytest.mark.slow
def test_its_own_unit_tests_and_types():
    if shutil.which("npm") is None:
        pytest.fail("Node is missing: install it to run the lab extension's unit tests.")
    for script in ("types", "test"):
        ran = subprocess.run(["npm", "run", "-s", script], cwd=LAB, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]

"""Every rule for living in a notebook names a test that exists."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = re.findall(r"^\| (\d+) \| (.+?) \| (.+) \|$", (ROOT / "docs/notebook_rules.md").read_text(encoding="utf-8"),
                  re.MULTILINE)


def names_in(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_all_twenty_six_rules_have_tests_that_exist():
    assert [int(number) for number, _, _ in ROWS] == list(range(1, 27))
    for number, _, cell in ROWS:
        named = re.findall(r"`([^`]+)::([^`]+)`", cell)
        assert named, f"rule {number} names no test"
        for path, name in named:
            assert name in names_in(path), f"rule {number}: {path} has no {name}"


def test_browser_tests_never_sleep():
    for path in [*(ROOT / "tests/e2e").glob("*.py"), *(ROOT / "tests/widgets").glob("test_frontend*.py")]:
        assert not re.search(r"(?<!time\.)\bsleep\(\d|wait_for_timeout", path.read_text(encoding="utf-8")), path.name

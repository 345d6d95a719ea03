"""What the README says of options and commands is what the program has."""

import re
from pathlib import Path

import pytest

from maxkernel_nb.authors.claude.models import price_markdown
from maxkernel_nb.magics import helptext

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("block, text", [("options", helptext.option_table()), ("commands", helptext.command_table()),
                                         ("models", price_markdown())])
def test_the_tables_are_generated(block, text):
    found = re.search(rf"<!-- {block}:begin -->\n(.*?)\n<!-- {block}:end -->", README, re.DOTALL)
    assert found, f"README.md lacks the {block} table"
    assert found[1] == text, f"put this between the marks:\n{text}"


def test_links_to_files_lead_somewhere():
    targets = re.findall(r"\]\(([^)#:]+)\)", README)
    assert [t for t in targets if not (ROOT / t).exists()] == []


@pytest.mark.parametrize("target", ["demo", "test", "lab", "dev", "replayed", "lint", "types", "e2e", "colab-pins",
                                    "frontend"])
def test_make_has_the_targets_it_promises(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)

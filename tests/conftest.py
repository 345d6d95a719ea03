"""One Chromium for every test that looks at a page. Playwright keeps an event loop running in the main thread while it
is open, so these tests (marked e2e) run in a pytest of their own: see the Makefile."""

import os
import shutil

import pytest

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip  # CI must not pass without having looked
        missing("Chromium is missing: apt-get install chromium")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield opened
        opened.close()

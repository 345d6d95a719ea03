"""How long a 3,000-line proposal takes to open in a 500-cell notebook, and what it does to typing. Prints figures.

    python tests/bench/lab_extension.py

Opening: from the notice's arrival to the next frame, as the page's own clock has it. Typing: the time from a key press
to the second frame after it, median of 40 keys in a cell elsewhere, before the proposal and with it open, in one page.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "e2e")]

LINES = 3000
CELLS = 500
KEY_MS = """() => new Promise(done => {
    const start = performance.now();
    document.addEventListener('keydown', () => {
        const pressed = performance.now();
        requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - pressed)));
    }, {once: true, capture: true});
})"""


def typing_ms(page) -> float:
    page.locator(".jp-CodeCell").nth(2).get_by_role("textbox").first.click()
    taken = []
    for _ in range(40):
        page.evaluate("window.__key = (" + KEY_MS + ")()")
        page.keyboard.type("a")
        taken.append(page.evaluate("window.__key"))
    return statistics.median(taken)


def main() -> None:
    import test_lab_extension as lab_tests
    from jupyter_lab import LabServer
    from playwright.sync_api import expect, sync_playwright

    lines = [f"    a{n} = {n}" for n in range(LINES)]
    function = "\n".join(["def f(x):", *lines, "    return x"])
    changed = [f"{line} + 0" if n % 10 == 0 else line for n, line in enumerate(lines)]
    kernel = "\n".join(["def f(x):", *changed, "    return x", "# time=1.0", ""])
    server = LabServer(Path(tempfile.mkdtemp()))
    cells = [lab_tests.SCRIPTED.format(folder="bench", kernel=kernel), function, "b = ''",
             *(f"cell_{n} = {n}" for n in range(CELLS - 3))]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path="/usr/bin/chromium",
                                                 args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 1000})
            opened = lab_tests.LabPage(page, server.notebook("bench.ipynb", cells))
            opened.run(0)
            before = typing_ms(page)
            opened.optimise(1)
            expect(opened.proposal).to_be_visible()
            page.wait_for_function("performance.getEntriesByName('maxkernel-proposal').length > 0")
            took = page.evaluate("performance.getEntriesByName('maxkernel-proposal')[0].duration")
            after = typing_ms(page)
            browser.close()
    finally:
        server.stop()
    print(f"{LINES}-line proposal with {len(changed) // 10} changes in a {CELLS}-cell notebook: drawn in {took:.0f} ms")
    print(f"typing elsewhere, median of 40 keys to the 2nd frame: {before:.1f} ms before, {after:.1f} ms with it open")


if __name__ == "__main__":
    main()

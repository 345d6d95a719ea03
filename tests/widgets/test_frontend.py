"""The built panel: equal to its source, and driven in a browser with a fake model."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import maxkernel_nb.widgets
from maxkernel_nb.widgets.wire import typescript

WIDGETS = Path(maxkernel_nb.widgets.__file__).parent
FRONTEND = WIDGETS / "frontend"


def test_the_wire_s_typescript_is_generated_from_python():
    assert (FRONTEND / "src/wire.ts").read_text() == typescript(), (
        "wire.ts is stale: write maxkernel_nb.widgets.wire.typescript() into it and build"
    )


def test_no_file_of_the_panel_breaks_its_own_rules():
    forbidden = {
        ".py": r"pyplot|(?<![\w.])print\(|nest_asyncio|jupyter_ui_poll|do_one_iteration",
        ".ts": r"innerHTML|outerHTML|insertAdjacentHTML|eval\(|\.set\(\s*DOC|save_changes|https?://(?!www\.w3\.org)",
    }
    for path in [*WIDGETS.glob("*.py"), *(FRONTEND / "src").glob("*.ts")]:
        found = re.search(forbidden[path.suffix], path.read_text())
        assert not found, f"{path.name}: {found[0]}"


def test_every_class_the_panel_styles_is_prefixed():
    css = re.sub(r"\{[^{}]*\}", "{}", (FRONTEND / "src/panel.css").read_text())
    assert all(name.startswith("mkn-") for name in re.findall(r"\.([a-zA-Z][\w-]*)", css))


def test_the_bundle_is_small_and_self_contained():
    js = (WIDGETS / "static/panel.js").read_text()
    assert len(gzip.compress(js.encode())) < 100_000
    assert not re.search(r"(?:^|[;}])import[\s*{\"']|\bimport\(|from\s*\"http", js)


@pytest.mark.skipif(not (FRONTEND / "node_modules").exists(), reason="npm ci in widgets/frontend first")
def test_the_committed_build_is_what_the_sources_build():
    npm = shutil.which("npm")
    assert npm
    done = subprocess.run([npm, "run", "-s", "check"], cwd=FRONTEND, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# -- in a browser ---------------------------------------------------------------------------------------------------

@pytest.mark.e2e
def test_accepting_some_hunks_sends_them_once_with_the_comment(view):
    page = view("doc=waiting&mute=1")
    page.get_by_role("button", name="Reject hunk 2").click()
    page.get_by_role("textbox", name="Comment on your decision").fill("first only")
    button = page.get_by_role("button", name="Accept 1 of 2 hunks")
    button.click()
    page.get_by_role("button", name="Accepting …").wait_for()
    assert page.get_by_role("button", name="Accepting …").is_disabled()
    (sent,) = page.evaluate("window.sent")
    assert (sent["intent"], sent["hunks"], sent["comment"], sent["proposal"]) == ("accept", [0], "first only", "p1")
    page.get_by_text("The kernel is busy with a cell").wait_for()
    page.wait_for_function("window.repeated[0] === window.sent[0].id")  # said again, under the same id
    page.evaluate("window.ack(window.sent[0].id, false, 'It is no longer open.')")
    page.get_by_text("It is no longer open.").wait_for()
    assert button.is_enabled()


@pytest.mark.e2e
def test_a_decision_made_elsewhere_shows_at_once_and_the_tab_stays(view):
    page = view("doc=waiting")
    page.get_by_role("tab", name="Plan").click()
    page.evaluate("window.put('accepted')")
    page.get_by_role("button", name="Undo").wait_for()
    assert page.get_by_role("tab", name="Plan").get_attribute("aria-selected") == "true"
    assert page.get_by_role("button", name="Stop").count() == 0


@pytest.mark.e2e
def test_tabs_and_buttons_work_from_the_keyboard_and_keep_the_focus(view):
    page = view("doc=tuning")
    page.get_by_role("tab", name="Checks").focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "Profile"
    page.get_by_role("button", name="Stop").focus()
    page.evaluate("window.put('waiting')")
    assert page.evaluate("document.activeElement.textContent") == "Stop"
    page.keyboard.press("Enter")
    assert page.evaluate("window.sent.map(m => m.intent)") == ["stop"]


@pytest.mark.e2e
def test_an_edited_plan_travels_with_the_answer_that_takes_it(view):
    page = view("doc=asked")
    page.get_by_role("textbox", name="Edit before you answer").fill("my own plan")
    page.get_by_role("button", name="Use my text").click()
    (sent,) = page.evaluate("window.sent")
    assert (sent["intent"], sent["choice"], sent["comment"], sent["proposal"]) == (
        "answer",
        "edit",
        "my own plan",
        "plan-1",
    )


@pytest.mark.e2e
def test_a_run_is_taken_back_and_asked_about_by_clicks(view):
    page = view("doc=handed_over")
    page.get_by_role("button", name="Take back from auto").click()
    page.get_by_role("textbox", name="Your question").fill("Why not 512?")
    page.get_by_role("button", name="Ask a question").click()
    sent = [(m["intent"], m["comment"]) for m in page.evaluate("window.sent")]
    assert sent == [("takeback", ""), ("ask", "Why not 512?")]
    assert page.get_by_role("textbox", name="Your question").input_value() == ""


@pytest.mark.e2e
def test_hostile_text_is_only_ever_text(view):
    page = view("doc=hostile")
    for tab in page.get_by_role("tab").all():
        tab.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator(".mkn-panel script, .mkn-panel img").count() == 0
    assert "\u202e" not in page.locator(".mkn-panel").inner_text()


@pytest.mark.e2e
@pytest.mark.parametrize("width", [320, 500, 1000])
def test_nothing_sticks_out_of_a_narrow_output(view, width):
    page = view(f"doc=waiting&width={width}")
    for tab in page.get_by_role("tab").all():
        tab.click()
        wide = page.evaluate(
            "document.querySelector('.mkn-panel').scrollWidth - document.querySelector('.mkn-panel').clientWidth"
        )
        assert wide <= 0, tab.inner_text()


@pytest.mark.e2e
def test_leaving_takes_everything_away_and_drawing_again_works(view):
    page = view("doc=waiting")
    page.evaluate("window.cleanup()")
    assert page.locator(".mkn-panel").count() == 0
    assert page.evaluate("Object.values(window.handlers).every(list => list.length === 0)")


@pytest.mark.e2e
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_follows_what_the_host_painted_and_text_has_contrast(view, theme):
    page = view(f"doc=waiting&theme={theme}")
    assert page.locator(".mkn-panel").get_attribute("data-theme") == theme
    low = page.evaluate(CONTRAST)
    assert not low


CONTRAST = """() => {
  const parse = (c) => c.match(/[\\d.]+/g).map(Number);
  const linear = (v) => v <= 10 ? v / 3294 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const c = parse(getComputedStyle(node).backgroundColor);
      if (c[3] === undefined || c[3] > 0.5) return c;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const tab of document.querySelectorAll('[role=tab]')) {
    tab.click();
    for (const node of document.querySelectorAll('.mkn-panel *')) {
      const own = Array.from(node.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim());
      if (!own || !node.getClientRects().length || node.closest('svg')) continue;
      const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))].sort((x, y) => y - x);
      const ratio = (a + 0.05) / (b + 0.05);
      if (ratio < 4.5) low.push(`${node.className} ${node.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
    }
  }
  return low;
}"""

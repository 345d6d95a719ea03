"""The parts of the panel in a browser, around a fake model: diff, candidates, charts, large and hostile runs, axe."""

from __future__ import annotations

import pytest
from accessibility import AXE, serious
from playwright.sync_api import expect

pytestmark = [pytest.mark.e2e]


def sent(page):
    return page.evaluate("window.sent")


def test_hunks_are_taken_left_commented_and_undone(view):
    page = view("doc=waiting")
    page.get_by_role("button", name="Reject hunk 1").click()
    expect(page.get_by_role("button", name="Accept 1 of 2 hunks")).to_be_enabled()
    page.get_by_role("button", name="Choose none").click()
    expect(page.get_by_role("button", name="Accept 0 of 2 hunks")).to_be_disabled()
    for _ in range(2):
        page.get_by_role("button", name="Undo last choice").click()
    expect(page.get_by_role("button", name="Undo last choice")).to_be_disabled()
    expect(page.get_by_role("button", name="Accept kernel")).to_be_enabled()
    page.get_by_role("button", name="Reject hunk 2").click()
    page.get_by_role("button", name="Comment on hunk 2").click()
    page.get_by_role("textbox", name="Comment on hunk 2").fill("keep einsum")
    page.get_by_role("textbox", name="Comment on your decision").fill("almost")
    page.get_by_role("button", name="Accept 1 of 2 hunks").click()
    (message,) = sent(page)
    assert (message["hunks"], message["comment"]) == ([0], "almost\nhunk 2: keep einsum")


@pytest.mark.parametrize(("status", "words"), [("dead", "The kernel died"), ("restarting", "The kernel was restarted")])
def test_a_kernel_that_is_gone_is_said_with_the_way_back(view, status, words):
    page = view("doc=waiting")
    page.evaluate("""detail => document.querySelector('.mkn-panel')
        .dispatchEvent(new CustomEvent('maxkernel:kernel-lost', {detail}))""", status)
    expect(page.get_by_text(words)).to_contain_text("%maxkernel resume auto-7f3a goes on")
    expect(page.get_by_role("button", name="Accept kernel")).to_have_count(0)


def test_side_by_side_puts_what_replaced_a_line_beside_it_and_marks_the_words(view):
    page = view("doc=long_diff")
    page.get_by_role("button", name="Side by side").click()
    row = page.locator(".mkn-diff tr").nth(0)
    texts = [f"x0 = {name}(a0, b0)  # step 0" for name in ("compute", "fused")]
    assert row.locator(".mkn-text").all_inner_texts() == texts
    assert row.locator(".mkn-word").all_inner_texts() == ["compute", "fused"]
    assert row.locator(".mkn-t-c").first.inner_text() == "# step 0"
    page.get_by_role("button", name="Unified").click()
    expect(page.locator(".mkn-diff tr").nth(0).locator("td")).to_have_count(4)


def test_a_diff_of_3000_lines_answers_a_click_at_once_and_is_drawn_in_full(view):
    page = view("doc=tuning")
    page.evaluate("window.put('long_diff')")
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator(".mkn-hunks")).not_to_have_attribute("aria-busy", "true")
    assert page.locator(".mkn-diff tr").count() == 1500
    rebuilt = page.evaluate("""() => {
        const first = document.querySelector('.mkn-diff');
        document.querySelector('[data-key="tab-proposal"]').click();
        return first !== document.querySelector('.mkn-diff');
    }""")
    assert not rebuilt  # what did not change is not drawn again


def test_two_candidates_are_compared_side_by_side(view):
    page = view("doc=waiting&tab=candidates")
    boxes = page.get_by_role("checkbox")
    boxes.nth(0).check()
    expect(page.get_by_text("Tick one more to compare it")).to_be_visible()
    boxes.nth(1).check()
    (message,) = sent(page)
    assert message["intent"] == "compare" and message["node"] != message["other"]
    page.evaluate("window.reply('comparison')")
    compared = page.get_by_role("region", name=f"{message['node']} beside {message['other']}", exact=True)
    expect(compared).to_contain_text("Verdicts: ")
    expect(compared).to_contain_text("✗ fail")
    expect(compared.locator(".mkn-is-del").first).to_be_visible()
    boxes.nth(0).uncheck()
    expect(compared).to_be_hidden()


def test_the_table_of_candidates_sorts_both_ways_and_shows_many_when_asked(view):
    page = view("doc=many_candidates&tab=candidates")
    rows = page.locator(".mkn-body tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Show all 500 candidates").click()
    expect(rows).to_have_count(500)
    page.get_by_role("button", name="Time").click()
    expect(rows.first).to_contain_text("4.70 ms")
    page.get_by_role("button", name="Time").click()
    expect(rows.last).to_contain_text("4.70 ms")


def test_step_and_vmem_are_drawn_before_and_after_with_numbers_on_hover(view):
    page = view("doc=waiting&tab=profile")
    step = page.get_by_role("img", name="Best kernel, one step of 4.59 µs, modelled.")
    expect(step).to_be_visible()
    expect(page.get_by_role("img", name="XLA reference, one step of 2.39 µs, modelled.")).to_be_visible()
    step.locator(".mkn-block-sky").hover()
    expect(page.locator(".mkn-tip")).to_have_text("inner loop, 5 trips a step: 3.73 µs")
    expect(page.get_by_role("img", name="Best kernel: VMEM, 5.5 MiB of 128 MiB used")).to_be_visible()
    expect(page.get_by_text("modelled ±11 to 14 %")).to_be_visible()


def test_markdown_of_a_plan_is_read_and_nothing_of_it_is_a_link_or_a_picture(view):
    page = view("doc=waiting&tab=plan")
    assert page.locator(".mkn-prose li").all_inner_texts()[1] == "only the diagonal block is masked"
    page = view("doc=hostile_asked")
    assert page.locator(".mkn-panel :is(a, img, script, iframe)").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.skipif(not AXE.exists(), reason="npm ci in labextension first")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_any_tab_wide_and_at_500_px(view, theme):
    for width in (900, 500):
        page = view(f"doc=waiting&theme={theme}&width={width}")
        page.get_by_role("button", name="Reject hunk 2").click()
        page.get_by_role("button", name="Comment on hunk 1").click()
        for tab in page.get_by_role("tab").all():
            tab.click()
            assert serious(page, ".mkn-panel") == [], (width, tab.inner_text())


def test_reduced_motion_stops_every_animation(view):
    page = view("doc=tuning")
    moving = "document.getAnimations().filter(a => a.playState === 'running').length"
    assert page.evaluate(moving) > 0
    page.emulate_media(reduced_motion="reduce")
    assert page.evaluate(moving) == 0

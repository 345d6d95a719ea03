"""Text and HTML: deterministic, escaped, readable without styles."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
import samples

from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.widgets import markdown
from maxkernel_nb.widgets.charts import charts
from maxkernel_nb.widgets.html import render_fragment, render_page
from maxkernel_nb.widgets.text import one_line, render_text

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7*7 }} \x1b[31mred\u202egnp \"'&"


def doc(events):
    return document(fold(events))


class Page(HTMLParser):
    """Tags opened, text outside style, and whether every tag is closed in order."""

    VOID = frozenset({"br", "img", "meta", "input", "link"})

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open, self.attributes = [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "title"} & set(self.open):
            self.text.append(data)

    @property
    def words(self):
        return re.sub(r"\s+", " ", "".join(self.text))


def test_the_line_for_repr_is_run_and_status_only():
    assert one_line(doc(samples.accepted())) == "maxkernel run auto-7f3a: accepted"
    assert one_line(doc(samples.waiting())) == "maxkernel run auto-7f3a: waiting for you"


@pytest.mark.parametrize("name", samples.ALL)
def test_every_phase_renders_the_same_twice(name):
    made = samples.ALL[name]
    assert render_text(doc(made())) == render_text(doc(made()))
    if name == "accepted":
        assert render_page(doc(made())) == render_page(doc(made()))


def test_text_names_the_next_action_and_its_command():
    text = render_text(doc(samples.waiting()))
    assert "Accept kernel  %maxkernel accept auto-7f3a" in text
    assert "2.81× faster than XLA  [modelled ±14 %]" in text
    assert "\n  +BLOCK_Q = 1024\n" in text


def test_text_of_hostile_names_moves_no_cursor():
    text = render_text(doc(samples.hostile(HOSTILE)))
    assert "\x1b" not in text and "\u202e" not in text and "alert(1)" in text


@pytest.mark.parametrize("name", samples.ALL)
def test_the_report_reads_without_styles_and_scripts(name):
    page = Page(render_page(doc(samples.ALL[name]())))
    assert not page.open
    assert "script" not in page.tags
    assert page.tags.count("h2") == 1
    assert "auto-7f3a" in page.words
    assert not any(key.startswith("on") for key, _ in page.attributes)


def test_the_report_says_modelled_and_what_is_next():
    words = Page(render_fragment(doc(samples.accepted()))).words
    assert "2.81× faster than XLA modelled ±14 %" in words
    assert "nothing was measured on a chip" in words
    assert "%maxkernel undo auto-7f3a" in words
    assert "Correct on 3 shape cases and 3 seeds" in words


def test_hostile_text_stays_text():
    html = render_page(doc(samples.hostile(HOSTILE)))
    page = Page(html)
    assert not page.open and "script" not in page.tags
    assert all(src.startswith("data:image/png") for key, src in page.attributes if key == "src")
    assert "<script>alert(1)</script>" in page.words and "{{ 7*7 }}" in page.words
    assert "\u202e" not in html and "\x1b" not in html


def test_charts_are_png_with_the_numbers_in_words():
    made = charts(doc(samples.accepted()).profile)
    assert [c.title for c in made] == [
        "Modelled time", "Unit utilisation", "Roofline of v6e",
        "One pipeline step of causal_attention", "VMEM of causal_attention",
    ]  # fmt: skip
    assert all(c.png.startswith(b"\x89PNG") for c in made)
    assert "XLA reference 13.2 ms" in made[0].alt and "eup 86%" in made[1].alt
    assert charts(None) == ()


def test_a_kernel_without_counted_flops_has_no_roofline_and_no_complaint(caplog, recwarn):
    profile = doc(samples.accepted()).profile
    sides = tuple(side.model_copy(update={"tflops": 0.0, "intensity": 0.0}) for side in profile.sides)
    made = charts(profile.model_copy(update={"sides": sides}))
    assert [c.title for c in made][:2] == ["Modelled time", "Unit utilisation"]
    assert not any("Roofline" in c.title for c in made)
    assert [str(w.message) for w in recwarn] == [] and caplog.text == ""


def test_markdown_knows_the_forms_of_a_plan_and_nothing_else():
    html = markdown.to_html(
        "# Head\nOne `a<b>` and **bold**\n- x\n  more\n- *y*\n\n```\n<pre>\n```\n[l](javascript:1) <b>"
    )
    assert html == (
        "<p><strong>Head</strong></p>\n<p>One <code>a&lt;b&gt;</code> and <strong>bold</strong></p>\n"
        "<ul>\n<li>x\nmore</li>\n<li><em>y</em></li>\n</ul>\n<pre><code>&lt;pre&gt;\n</code></pre>\n"
        "<p>[l](javascript:1) &lt;b&gt;</p>"
    )

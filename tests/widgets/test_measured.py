"""Measured beside modelled: the same pictures, and where the two part in words."""

import samples

from maxkernel_nb import events as ev
from maxkernel_nb.document.build import document
from maxkernel_nb.engine.state import fold
from maxkernel_nb.tpu.chip.profile import MeasuredOp, MeasuredPair, MeasuredProfile
from maxkernel_nb.widgets.charts import charts
from maxkernel_nb.widgets.html import render_page
from maxkernel_nb.widgets.text import render_text

DIFFERENCE = ("Measured 5.2 ms where 4.7 ms were modelled (+11%).",
              "It waits for copies or semaphores in 12% of the time.")
PAIR = MeasuredPair(
    reference=MeasuredProfile(device="TPU v6 lite", ms=14.4),
    candidate=MeasuredProfile(
        device="TPU v6 lite", ms=5.2, overlap=0.81, sync_wait=0.12,
        ops=(MeasuredOp(name="causal_attention", category="custom-call", ms=5.1, runs=1.0),),
    ),
    difference=DIFFERENCE,
)  # fmt: skip


def measured():
    first = samples.candidate()
    timing = ev.Timing(ms=5.2, reference_ms=14.4, speedup=14.4 / 5.2, low=2.7, high=2.84)
    return fold([
        *samples.tuned(), ev.CandidateMeasured(candidate=first.id, profiles=PAIR),
        ev.BestChanged(candidate=first.id, modelled_ms=4.70, speedup=timing.speedup, measured=timing),
    ])


def test_measured_sides_lie_beside_the_modelled_ones():
    view = document(measured()).profile
    assert [(s.label, s.evidence) for s in view.sides] == [
        ("XLA reference", "modelled"), ("Best kernel", "modelled"),
        ("XLA reference, measured", "measured"), ("Best kernel, measured", "measured"),
    ]
    assert view.difference == DIFFERENCE and "TPU v6 lite" in view.caption
    kernel = view.sides[-1]
    facts = {f.label: f.value for f in kernel.facts}
    assert facts["Copies with other work beside them"] == "81%" and facts["Waits for copies or semaphores"] == "12%"
    assert facts["Read from"] == "profiler trace" and kernel.ops[0].time == "5.10 ms"
    assert kernel.tflops == 5.6e11 / 5.2 / 1e9  # the trace of a Pallas call tells no FLOP: the model's count


def test_the_pictures_hold_both_and_compare_like_with_like():
    made = {c.title.split(" of ")[0]: c.alt for c in charts(document(measured()).profile)}
    assert "Best kernel, measured 5.20 ms" in made["Modelled and measured time"]
    assert "Best kernel, measured" in made["Roofline"] and "Best kernel 1" in made["Roofline"]
    assert "measured" not in made["Unit utilisation"]  # a trace does not tell issue slots
    plain = {c.title for c in charts(document(fold(samples.tuned())).profile)}
    assert "Modelled time" in plain


def test_text_and_page_explain_the_difference():
    doc = document(measured())
    page = render_page(doc)
    for sentence in DIFFERENCE:
        assert sentence in render_text(doc) and sentence in page
    assert "measured" in page and "<th>Measured</th>" in page


def test_a_rehearsal_leaves_no_measured_side():
    assert document(fold(samples.tuned())).profile.difference == ()

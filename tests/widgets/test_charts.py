"""The charts of one pipeline step and of VMEM; the others are in test_renderers.py."""

import pytest

from maxkernel_nb.document.profile import compared
from maxkernel_nb.tpu.profiles import BufferUse, LoopProfile, OpProfile, ScheduleProfile
from maxkernel_nb.widgets.charts import charts
from maxkernel_nb.widgets.profiles import profile_bundle, profile_text

MIB = 1 << 20


def made(copying=1.0, ms=2.0):
    grid = LoopProfile(depth=1, trips=100, bundles=1750, with_inner=5250, share=0.4, slots={"mxu": 1000.0},
                       utilisation={"mxu": 0.3}, read_bytes=copying * MIB, written_bytes=MIB / 4)  # fmt: skip
    inner = LoopProfile(depth=2, trips=200, bundles=1750, with_inner=1750, share=0.6, slots={"mxu": 3000.0},
                        utilisation={"mxu": 0.86})  # fmt: skip
    op = OpProfile(
        name="attention", kind="pallas", modelled_ms=ms, compute_ms=ms, memory_ms=0.5, hbm_bytes=500 * MIB,
        bound_by="mxu", utilisation={"mxu": 0.7, "valu": 0.2}, loops=(grid, inner), bundles=1e6,
        buffers=(BufferUse(name="input 0", kind="input", size=4 * MIB, shape="bf16[1024,1024]", copies=2),
                 BufferUse(name="SPILL", kind="spill", size=MIB)),
    )  # fmt: skip
    return ScheduleProfile(chip="v6e", modelled_ms=ms, flops=1e12, hbm_bytes=500 * MIB, roofline_ms=1.1, ops=(op,),
                           bound_by="mxu", jax_version="0.10.2", libtpu_version="0.0.42")  # fmt: skip


@pytest.fixture
def view():
    return compared((("XLA reference", made(ms=5.0)), ("Best kernel", made())), "v6e")


def test_five_charts_each_with_its_numbers_in_words(view):
    drawn = charts(view)
    assert [c.title for c in drawn] == [
        "Modelled time", "Unit utilisation", "Roofline of v6e", "One pipeline step of attention", "VMEM of attention",
    ]  # fmt: skip
    step, vmem = drawn[3], drawn[4]
    assert "Copies take 1.25 µs and hide behind 3.00 µs of work. 100 steps" in step.alt
    assert "inner loop, 2 trips a step 2.00 µs" in step.alt
    assert "input 0 bf16[1024,1024] x2 4.0 MiB; register spills 1.0 MiB; in all 5.0 of 128 MiB" in vmem.alt


def test_a_step_that_waits_for_memory_says_so():
    view = compared((("kernel", made(copying=8.0)),), "v6e")
    assert "the units wait for memory" in view.sides[0].step.text


def test_the_same_view_gives_the_same_bytes_as_png_and_svg(view):
    first, second = charts(view), charts(view)
    assert [c.png for c in first] == [c.png for c in second]
    assert all(c.save("svg").lstrip().startswith(b"<?xml") for c in first)


def test_sides_differ_in_grey_too(view):
    """Printed without colour, what colour tells apart still differs by hatching or marker."""
    times, units, roof, step, vmem = (c.figure.axes[0] for c in charts(view))
    for axes, least in ((times, 2), (units, 2), (step, 4), (vmem, 2)):
        assert len({patch.get_hatch() for patch in axes.patches}) >= least
    assert len({line.get_marker() for line in roof.lines}) == 3


def test_a_program_without_loops_or_buffers_has_neither_chart():
    op = OpProfile(name="fusion", kind="fusion", modelled_ms=1, compute_ms=1, memory_ms=0.5)
    profile = ScheduleProfile(chip="v6e", modelled_ms=1, flops=0, hbm_bytes=1, roofline_ms=0.5, ops=(op,))
    assert [c.title for c in charts(compared((("f", profile),), "v6e"))] == ["Modelled time"]


def test_the_bundle_reads_as_text_and_as_html(view):
    bundle = profile_bundle(view, "attention")
    assert bundle["text/plain"] == profile_text(view)
    assert "Best kernel is 2.50x faster than XLA reference, modelled." in bundle["text/plain"]
    assert "Inner loop, 200 trips" in bundle["text/plain"]
    assert bundle["text/html"].count("data:image/png") == 5
    assert "What bounds it" in bundle["text/html"]

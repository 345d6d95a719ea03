"""The stored calibration: what the package claims about its model of time must follow from the stored terms."""

import json
import math

import pytest

from maxkernel_nb.tpu import calibrate
from maxkernel_nb.tpu.calibration import compile as compiling
from maxkernel_nb.tpu.calibration import order
from maxkernel_nb.tpu.calibration.fit import Fit
from maxkernel_nb.tpu.calibration.report import lines
from maxkernel_nb.tpu.calibration.rows import (
    SAMPLED,
    Compiled,
    Environment,
    Row,
    environments,
    modelled_ms,
    published,
    sample,
)
from maxkernel_nb.tpu.calibration.scores import median, spearman, within
from maxkernel_nb.tpu.constants import ERRORS, Constants, constants
from maxkernel_nb.tpu.terms import OpTerms


@pytest.fixture(scope="module", params=environments(), ids=lambda e: e.name)
def rows(request):
    return lines(request.param)


def test_the_measured_age_and_the_installed_compiler_are_stored():
    assert [e.jax for e in environments()] == ["0.6.2", "0.10.2"]


def test_times_that_the_fit_never_saw_are_near_the_published_ones(rows):
    rows = [x for x in rows if x.applies]
    errors = [x.error for x in rows]
    assert len(rows) == 25
    assert median(errors) <= 6.0
    assert within(errors, 20.0) >= 90.0
    assert spearman([x.unseen_ms for x in rows], [x.row.published_ms for x in rows]) >= 0.98


def test_stored_error_bars_cover_what_is_left(rows):
    for kind in {x.kind for x in rows}:
        own = sorted(abs(x.error) for x in rows if x.kind == kind)
        assert sum(e <= ERRORS[kind] for e in own) >= len(own) / 2, (kind, own)


def test_every_miss_is_explained(rows):
    assert all(x.row.remark for x in rows if abs(x.error) > 15.0)


def test_at_most_eight_constants():
    assert len(Constants.model_fields) <= 8
    assert constants("v5e") == constants("v6e")  # no published times: the physics carries over, the error is wider


def test_report_prints_a_table_for_each_compiler(capsys):
    assert calibrate.main(["--report"]) == 0
    out = capsys.readouterr().out
    assert out.count("leave-one-out, all rows: median error") == len(environments())
    assert all(r.program in out for r in published())


def test_a_fit_finds_the_constants_behind_made_up_times():
    ops = {f"p{n}": OpTerms(name="copy", kind="fusion", read_bytes=n * 1e9, written_bytes=n * 1e9) for n in range(1, 5)}
    programs = {name: Compiled(ops=(op,)) for name, op in ops.items()}
    truth = Constants(hbm_efficiency=0.84, one_way_efficiency=0.7)
    told = [Row(task=n, variant="", program=n, published_ms=modelled_ms(p, truth)) for n, p in programs.items()]
    found = Fit(Environment(jax="0", libtpu="0", made="", programs=programs), told).best()
    assert math.isclose(found.hbm_efficiency, 0.84)


def test_an_empty_cache_says_what_to_do(tmp_path, capsys):
    assert calibrate.main(["--store", "--cache", str(tmp_path)]) == 2
    assert "run with --compile first" in capsys.readouterr().err


def test_order_names_what_bounds_the_best(monkeypatch):
    points = [
        order.Point(
            label="m=2", modelled_ms=1.0, bundles=120, gigabytes=1, compute_ms=0.9, memory_ms=0.5, busiest="mxu"
        ),
        order.Point(
            label="m=1",
            modelled_ms=2.0,
            bundles=100,
            gigabytes=4,
            compute_ms=0.8,
            memory_ms=1.9,
            spilling=30,
            busiest="load/store",
            busy=80,
            moving=80,
        ),
        order.Point(label="m=9", refused="The kernel asks for 99 MiB"),
    ]
    monkeypatch.setattr(order, "points", lambda space, chip: points)
    text = "\n".join(order.order("matmul", "v6e"))
    assert "DMA-bound and spill-bound" in text
    assert "m=9" in text and "refused: The kernel asks" in text
    assert "best: m=2: bound by mxu, 0 % of its store slots spill; 1.20 x the bundles of m=1" in text


def test_spills_in_idle_slots_are_no_bound(monkeypatch):
    """Flash attention's best configuration spills in 41 % of its store slots and is bound by vector arithmetic."""
    best = order.Point(
        label="q=1", modelled_ms=1.0, compute_ms=0.9, bundles=9, spilling=41, busiest="valu", busy=80, moving=60
    )
    monkeypatch.setattr(order, "points", lambda space, chip: [best])
    text = "\n".join(order.order("flash", "v6e"))
    assert "best: q=1: bound by valu" in text
    assert "without any spill it would still take 0.720 ms at least" in text


def test_no_stored_program_is_modelled_below_its_roofline():
    """GEMMs on v5e and v7x were: their schedules issue products faster than the matrix units take them."""
    for chip in SAMPLED:
        programs = sample(chip).programs
        assert len(programs) == 10
        for name, p in programs.items():
            assert modelled_ms(p, constants(chip), chip) >= p.roofline_ms > 0, (chip, name)
    for environment in environments():
        for name, p in environment.programs.items():
            assert modelled_ms(p, constants("v6e")) >= p.roofline_ms, (environment.name, name)


def test_sample_prints_every_chip(capsys):
    assert calibrate.main(["--sample"]) == 0
    assert capsys.readouterr().out.count("modelled below their roofline: 0 of 10") == len(SAMPLED)


def test_spaces_have_twenty_configurations():
    assert {name: len(space.choices) for name, space in order.SPACES.items()} == {"matmul": 20, "flash": 20}


@pytest.mark.tpu_compiler
@pytest.mark.slow
def test_programs_are_compiled_in_a_worker_and_not_twice(tmp_path):
    (tmp_path / "programs_of_test.py").write_text(
        "import jax, jax.numpy as jnp\n"
        "names = lambda: ('double',)\n"
        "def program(name):\n"
        "    if name != 'double': raise ValueError(name)\n"
        "    return lambda x: x * 2, (jax.ShapeDtypeStruct((4096, 1024), jnp.float32),)\n"
    )
    cache, environment = tmp_path / "cache", {"PYTHONPATH": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        assert compiling.compile_programs("programs_of_test", ["double", "absent"], "v6e", cache) == 1
        made = (cache / "double.json").stat().st_mtime_ns
        assert compiling.compile_programs("programs_of_test", ["double"], "v6e", cache) == 0
    assert (cache / "double.json").stat().st_mtime_ns == made
    found = compiling.read_cache(cache)
    assert modelled_ms(found.programs["double"], Constants()) == pytest.approx(
        2 * 16.8e6 / 0.9 / 1.64e12 * 1e3, rel=0.3
    )
    assert json.loads((cache / "double.json").read_text())["jax"] == found.jax

import time

import jax
import pytest

from maxkernel_nb.tpu.chips import MIB, chip
from maxkernel_nb.tpu.vmem import estimate_vmem, vmem_refusal


def estimate(programs, name):
    fn, specs = programs.build(name)
    return estimate_vmem(jax.make_jaxpr(fn)(*specs))


def test_moving_blocks_count_twice_and_scratch_once(programs):
    e = estimate(programs, "matmul")
    blocks = 2 * (512 * 512 + 512 * 1024 + 512 * 1024) * 2
    assert e.bytes == blocks + 512 * 1024 * 4
    assert "x_ref bfloat16[512,512] x2" in e.by_buffer


@pytest.mark.parametrize("name", ["constant_index", "buffered"])
def test_blocks_that_never_move_count_once(programs, name):
    assert estimate(programs, name).bytes == 8192 * 2048 * 4 + 4 * 64 * 2048 * 4


def test_prefetched_scalars_are_not_vmem(programs):
    assert estimate(programs, "prefetch").bytes == estimate(programs, "fori").bytes


def test_the_kernels_own_limit_counts(programs):
    e = estimate(programs, "raised_limit")
    assert e.limit_bytes == 8 * MIB
    assert vmem_refusal(e, chip("v6e")).limit_bytes == 8 * MIB


def test_a_program_without_kernels_needs_nothing():
    assert estimate_vmem(jax.make_jaxpr(lambda x: x + 1)(1.0)).bytes == 0


def test_a_kernel_far_over_is_refused_at_once_with_figures(programs):
    begun = time.monotonic()
    refusal = vmem_refusal(estimate(programs, "far_too_big"), chip("v6e"))
    assert time.monotonic() - begun < 1.0
    assert refusal.kind == "vmem-exceeded"
    assert "1024.0 MiB of VMEM and the limit on v6e is 32.0 MiB" in refusal.message
    assert "32.0x smaller" in refusal.advice
    assert vmem_refusal(estimate(programs, "elementwise"), chip("v6e")) is None


def test_advice_offers_the_limit_only_while_the_chip_has_room(programs):
    e = estimate(programs, "too_big")  # 40 MiB
    assert "raise vmem_limit_bytes to at least 44 MiB" in vmem_refusal(e, chip("v6e")).advice
    assert "vmem_limit_bytes" not in vmem_refusal(e, chip("v4")).advice


def test_an_older_compiler_is_asked_before_double_buffering_is_blamed(programs, monkeypatch):
    e = estimate(programs, "too_big")
    assert (e.bytes, e.least_bytes) == (40 * MIB, 20 * MIB)
    monkeypatch.setattr("maxkernel_nb.tpu.vmem.libtpu_version", lambda: "0.0.23")
    assert vmem_refusal(e, chip("v6e")) is None
    assert vmem_refusal(estimate(programs, "far_too_big"), chip("v6e"))


NEAR = ["blocks_just_fit", "blocks_just_over", "scratch_just_fits", "scratch_just_over", "passing_scratch_fits",
        "unused_scratch_fits", "squeezed_fit", "bfloat16_fit", "bytes_fit", "narrow_fit", "narrow_over", "one_step_fit",
        "one_step_over", "raised_fit"]  # fmt: skip


@pytest.fixture(scope="module")
def compiled(on_v6e):
    return on_v6e(NEAR)


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("name", NEAR)
def test_what_the_compiler_takes_is_not_refused_and_what_it_refuses_is(programs, compiled, name):
    refused = vmem_refusal(estimate(programs, name), chip("v6e")) is not None
    assert refused == ("failure" in compiled[name]) == name.endswith("over")
    if refused:
        assert compiled[name]["failure"][0] == "vmem-exceeded"


@pytest.mark.tpu_compiler
@pytest.mark.parametrize("name", ["too_big", "raised_limit"])
def test_the_compiler_counts_the_same(programs, v6e, name):
    assert v6e[name]["used_bytes"] == estimate(programs, name).bytes
    assert v6e[name]["limit_bytes"] == estimate(programs, name).limit_on(chip("v6e"))

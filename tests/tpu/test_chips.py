import pytest

from maxkernel_nb.errors import UsageError
from maxkernel_nb.tpu.chips import CHIPS, chip, detect_chip


def test_the_five_chips_are_there_in_any_case():
    assert list(CHIPS) == ["v4", "v5e", "v5p", "v6e", "v7x"]
    assert chip(" V6E ").name == "v6e"


@pytest.mark.parametrize(("typo", "meant"), [("v6", "v6e"), ("tpu7x", "v7x")])
def test_a_typo_is_answered_with_the_nearest_chip(typo, meant):
    with pytest.raises(UsageError, match=rf"Unknown chip '{typo}': did you mean '{meant}'\?"):
        chip(typo)


def test_nothing_near_still_lists_the_choices():
    with pytest.raises(UsageError, match="Choose one of v4, v5e, v5p, v6e, v7x"):
        chip("zzzz")


@pytest.mark.parametrize("name", CHIPS)
def test_clock_and_mxu_agree_with_the_peak_rate(name):
    c = chip(name)
    rows = 2 if c.mxu_size == 256 else 1
    peak = c.cores * c.mxu_count * rows * c.mxu_size**2 * 2 * c.clock_ghz / 1000
    assert peak == pytest.approx(c.tflops_bf16, rel=0.01)


def test_device_kinds_are_told_apart():
    assert detect_chip("TPU v6 lite") == "v6e"
    assert detect_chip("TPU v5 lite") == "v5e"
    assert detect_chip("TPU v5") == "v5p"
    assert detect_chip("cpu") is None
    kinds = [k for c in CHIPS.values() for k in c.device_kinds]
    assert len(kinds) == len(set(kinds))

import pickle
import re

import jax
import jax.export
import pytest

from maxkernel_nb.tpu.failures import CompileFailure, FailureKind, compile_failure

NOISE = re.compile(r"issues/new|Please (file|report)|%\d|loc\(|[A-Za-z0-9+/]{100}|type\.googleapis")


def lowering_failure(programs, name):
    fn, specs = programs.build(name)
    with pytest.raises(Exception) as caught:
        jax.export.export(jax.jit(fn), platforms=["tpu"])(*specs)
    return compile_failure(caught.value, programs.__file__)


def test_a_bad_block_shape_is_named_before_the_compiler_runs(programs):
    failure = lowering_failure(programs, "bad_block")
    assert failure.kind is FailureKind.BLOCK_ALIGNMENT
    assert "block shape" in failure.message
    assert "multiples of 8" in failure.advice
    assert failure.diagnosis.kind == "block-alignment"
    assert failure.line > 0


def test_an_operation_without_lowering_is_named(programs):
    failure = lowering_failure(programs, "sort")
    assert failure.kind is FailureKind.UNSUPPORTED_OP
    assert failure.message.endswith("sort.")
    assert "no sort" in failure.diagnostic().advice
    assert not NOISE.search(failure.message)


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("name", "kind"),
    [("too_big", "vmem-exceeded"), ("int8", "dtype"), ("unaligned", "block-alignment")],
)
def test_compiler_errors_have_a_kind_advice_and_no_noise(v6e, name, kind):
    found, message, advice, _ = v6e[name]["failure"]
    assert found == kind
    assert advice
    assert not NOISE.search(message)


@pytest.mark.tpu_compiler
def test_too_much_vmem_is_one_sentence_with_figures(v6e):
    _, message, advice, _ = v6e["too_big"]["failure"]
    assert message == "The kernel asks for 40.0 MiB of VMEM and 32.0 MiB are allowed."
    assert "at least 44 MiB" in advice


@pytest.mark.tpu_compiler
def test_compiler_errors_point_at_the_kernels_own_line(v6e, programs):
    with open(programs.__file__) as file:
        lines = file.read().splitlines()
    assert "pl.ds(pl.program_id(0) * 3, 1024)" in lines[v6e["unaligned"]["failure"][3] - 1]
    assert "x_ref[...] * 2" in lines[v6e["int8"]["failure"][3] - 1]


def test_failures_cross_process_borders():
    failure = CompileFailure(FailureKind.VMEM_EXCEEDED, "m", "a", 3, 10, 5)
    back = pickle.loads(pickle.dumps(failure))
    assert (back.kind, back.message, back.advice, back.line) == (failure.kind, "m", "a", 3)
    assert back.numbers() == {"used_bytes": 10.0, "limit_bytes": 5.0}
    assert back.diagnostic().kind == "vmem-exceeded"


def test_an_unknown_error_keeps_its_text():
    failure = compile_failure(ValueError("something new"))
    assert failure.kind is FailureKind.OTHER
    assert failure.message == "something new"

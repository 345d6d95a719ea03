"""What a name means to %maxkernel profile, with the shipped fakes; compiling is tests/tpu's."""

import jax.numpy as jnp
import pytest

from maxkernel_nb.engine.profiling import Profiler
from maxkernel_nb.errors import UsageError
from maxkernel_nb.evaluate.fake import FakeEvaluator
from maxkernel_nb.tpu import diagnose
from maxkernel_nb.tpu.failures import CompileFailure, FailureKind


@pytest.fixture
def ended(bench):
    run = bench.run(policy="accept-verified")
    run.wait(10)
    return run


@pytest.fixture
def profiler(bench, ended):
    def make(**options):
        chosen = {"namespace": bench.namespace, "states": {ended.id: lambda: ended.state},
                  "evaluator": FakeEvaluator(baseline_ms=4.0), "default_chip": "v6e",
                  "wait": lambda work: bench.engine.submit(work).result(10)}  # fmt: skip
        return Profiler(**{**chosen, **options})

    return make


def test_a_run_is_its_reference_beside_its_best_kernel(profiler, ended):
    (reference, before), (best, after) = profiler().find(ended.id)
    assert (reference, best) == ("XLA reference", f"best kernel of {ended.id}")
    assert (before.modelled_ms, after.modelled_ms) == (2.0, 1.0)


def test_the_bound_kernel_is_its_run(profiler, bench):
    assert profiler().find("f")[-1][1].modelled_ms == 1.0


def test_a_candidate_is_found_by_the_beginning_of_its_id(profiler, ended):
    ((label, profile),) = profiler().find(ended.state.best[:6])
    assert ended.state.best in label and profile.modelled_ms == 1.0


def test_on_another_chip_the_evaluator_is_asked_without_running_anything(profiler, ended):
    evaluator = FakeEvaluator(baseline_ms=8.0)
    sides = profiler(chip="v5e", evaluator=evaluator).find(ended.id)
    assert [p.chip for _, p in sides] == ["v5e", "v5e"]
    assert sides[0][1].modelled_ms == 8.0
    ((_, gates),) = evaluator.judged
    assert "check" not in gates


def test_a_refused_candidate_says_why(profiler, ended):
    with pytest.raises(UsageError, match=r"has no profile on v5e: model declined"):
        profiler(chip="v5e", evaluator=FakeEvaluator(baseline_ms=None)).find(ended.id)


@pytest.mark.parametrize("name, says", [("f-2", "did you mean 'f-1'"), ("zzz", "give a function's name")])
def test_an_unknown_name_is_one_sentence(profiler, name, says):
    with pytest.raises(UsageError, match=says):
        profiler().find(name)


def test_a_function_without_inputs_is_told_what_to_pass(profiler):
    with pytest.raises(UsageError, match="--shapes"):
        profiler(namespace={"g": lambda y: y}, states={}).find("g")


def test_a_refusal_is_one_sentence_with_kind_line_and_remedy(profiler, monkeypatch):
    failure = CompileFailure(FailureKind.OTHER, "x", diagnosis=diagnose(ValueError("Cannot store scalars to VMEM")))

    def refuse(*args, **options):
        raise failure

    monkeypatch.setattr("maxkernel_nb.evaluate.profiling.profile", refuse)
    with pytest.raises(UsageError, match=r"g cannot be profiled for v5p \(scalar-to-vmem\): VMEM is"):
        profiler(namespace={"g": lambda y: y, "y": jnp.zeros((8, 128))}, chip="v5p").find("g")

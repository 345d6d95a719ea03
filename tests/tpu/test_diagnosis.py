"""Every error here is provoked through the real tracer, lowering, TPU compiler or interpreter (see faulty.py)."""

import linecache

import faulty
import faulty_calls
import pytest

from maxkernel_nb.tpu.diagnosis import KINDS, Diagnosis, diagnose

pytestmark = pytest.mark.tpu_compiler
FAULTS = faulty_calls.FAULTS


@pytest.mark.parametrize("name", FAULTS)
def test_the_kind_and_the_line_are_found(faults, name):
    found, wanted = faults[name], FAULTS[name]
    assert found["kind"] == wanted.kind, found["error"]
    assert found["line"] == wanted.line
    assert found["code"] == linecache.getline(faulty.__file__, wanted.line).strip()
    assert found["why"].endswith(".") and found["advice"].endswith(".")
    assert "{" not in found["why"] + found["advice"]


def test_the_kinds_are_many_and_each_is_named_once():
    names = [kind.name for kind in KINDS]
    assert len(names) == len(set(names))
    assert len({f.kind for f in FAULTS.values()}) >= 70
    assert {f.kind for f in FAULTS.values()} <= set(names)


def test_most_faults_need_no_compiler(faults):
    quick = [name for name, found in faults.items() if found["seconds"] < 0.5]
    assert len(quick) > len(FAULTS) / 2


def test_the_operation_is_named(faults):
    assert faults["sort_inside"]["why"] == "The TPU's vector unit has no sort."
    assert "cbrt" in faults["cbrt_inside"]["why"]
    assert "int8" in faults["maximum_of_bytes"]["why"]


def test_an_error_of_no_known_kind_keeps_its_words():
    found = diagnose(LookupError("nobody has seen this"))
    assert (found.kind, found.message, found.where) == ("other", "nobody has seen this", "")
    assert Diagnosis.from_dict(found.to_dict()) == found


def test_where_shows_the_line_itself(faults):
    fields = {k: v for k, v in faults["sort_inside"].items() if k in Diagnosis.model_fields}
    assert Diagnosis(**fields).where == f"line {fields['line']}: o_ref[...] = jnp.sort(x_ref[...])  # here"

"""What is read of a scheduled module: equal ops, copies, and programs that cannot be followed."""

from maxkernel_nb.tpu.chips import chip
from maxkernel_nb.tpu.hlo import parse_module
from maxkernel_nb.tpu.schedule import Program, parse_bundles
from maxkernel_nb.tpu.terms import read_terms

HLO = """HloModule jit_f, is_scheduled=true

%body (q: f32[1024,1024]) -> f32[1024,1024] {
  %q = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  ROOT %n = f32[1024,1024]{1,0:T(8,128)} negate(%q)
}

%same (r: f32[1024,1024]) -> f32[1024,1024] {
  %r = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  ROOT %m = f32[1024,1024]{1,0:T(8,128)} negate(%r)
}

ENTRY %main (a: f32[1024,1024]) -> f32[1024,1024] {
  %a = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %ahead = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}) copy-start(%a), cross_program_prefetch_index=0
  %beside = (f32[1024,1024]{1,0:T(8,128)S(1)}, f32[1024,1024]{1,0:T(8,128)}) copy-start(%a)
  %one = f32[1024,1024]{1,0:T(8,128)} fusion(%a), kind=kLoop, calls=%body
  %two = f32[1024,1024]{1,0:T(8,128)} fusion(%a), kind=kLoop, calls=%same
  %end = f32[1024,1024]{1,0:T(8,128)S(1)} copy-done(%beside)
  ROOT %out = f32[1024,1024]{1,0:T(8,128)} negate(%two)
}
"""  # noqa: E501
PROGRAM = """= control target key end

     0   :  { %s1_s0 = smov 0 }
   0x1   :  { %5 = dma.hbm_to_vmem [thread:$0]  /*hbm=*/%s7_s1, /*size_in_granules=*/131072, /*vmem=*/%s8_s2, /*dst_syncflagno=*/[#allocation3] }
   0x2   :  { %6 = dma.done.wait [#allocation3], 131072 }
"""  # noqa: E501


def readings(programs):
    found = read_terms(parse_module(HLO), programs, {}, chip("v6e"), own_kernels=False)
    return {r.terms.name: r for r in found}


def test_an_op_without_dump_takes_the_program_of_its_equal():
    found = readings({"one": Program("one", parse_bundles(PROGRAM))})
    assert found["one"].terms.trace == found["two"].terms.trace is not None
    assert found["two"].terms.read_bytes == 4 << 20
    assert found["out"].terms.trace is None


def test_copies_say_where_they_begin_and_end():
    found = readings({})
    assert [found[n].terms.role for n in ("ahead", "beside", "end")] == ["prefetch", "start", "done"]
    assert found["end"].terms.of == "beside"
    assert found["beside"].terms.read_bytes == 4 << 20


def test_a_program_that_cannot_be_followed_is_estimated_and_said_so():
    found = readings({"one": Program("one", [])})
    assert found["one"].terms.trace is None
    assert found["one"].terms.read_bytes == 4 << 20
    assert "its schedule cannot be followed" in found["one"].notes[0]

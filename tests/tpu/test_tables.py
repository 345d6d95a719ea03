"""Constants in SMEM: how they lie in memory, and how a kernel's program finds them."""

import numpy as np
import pytest

from maxkernel_nb.tpu.emulate import execute
from maxkernel_nb.tpu.hlo import parse_module
from maxkernel_nb.tpu.schedule import Program, parse_bundles
from maxkernel_nb.tpu.tables import Tables, placed
from tests.tpu.test_emulate import LOOP

HLO = """HloModule m

ENTRY %main (x: f32[8,128]) -> f32[8,128] {
  %x = f32[8,128]{1,0} parameter(0)
  %mask = s8[1,2,3]{2,1,0:T(4,128)(4,1)} constant({...})
  %order = s32[300]{0:T(128)} iota(), iota_dimension=0
  %data = s32[8]{0:T(128)} broadcast(%x)
  ROOT %k = f32[8,128]{1,0} custom-call(%mask, %order, %data, %x), custom_call_target="tpu_custom_call"
}
"""
FETCH = (
    """     0   :  { %s90_s1 = smov [#allocation3]  ;;  %s1_s0 = smov 0  ;;  %s91_s2 = inlined_call_operand.hbm """
    """[shape: s8[1,2,3], index: 0, kind: input, shape index: {}] }
   0x0   :  { %92 = dma.hbm_to_smem /*hbm=*/%s91_s2, /*size_in_granules=*/16, /*smem=*/%s90_s1, """
    """/*dst_syncflagno=*/[#allocation2] }"""
)
FIRST = "     0   :  { %s1_s0 = smov 0 /* copy for cssa */ }"


def field(number, value):
    return bytes([number << 3 | 2, len(value)]) + value


def serialized(name, literal):
    """An HLO module's protocol buffer with one constant."""
    return field(3, field(2, field(1, name.encode()) + field(2, b"constant") + field(8, literal)))


def tables():
    module = parse_module(HLO)
    known = Tables(module, serialized("mask", field(15, bytes([1, 2, 3, 4, 5, 6]))))
    return known.of(module.by_name["k"])


def test_constants_lie_in_memory_as_their_layout_says():
    """Rows of bytes are packed by fours into a word: lane c of the first word row holds rows 0 to 3 of column c."""
    words = tables()[0]
    assert len(words) == 128
    assert words[:4] == (1 | 4 << 8, 2 | 5 << 8, 3 | 6 << 8, 0)
    assert tables()[1][:301] == (*range(300), 0)
    assert set(tables()) == {0, 1}  # the third is data


@pytest.mark.parametrize(("lane", "runs"), [(1, 10), (5, 0)])
def test_a_load_from_a_table_is_known(lane, runs):
    load = f"%s93_s4 = smov {lane}  ;;  %s6_s3 = sld [smem:[#allocation3 + %s93_s4]]"
    text = LOOP.replace(FIRST, FETCH).replace("%s6_s3 = sld [smem:[#allocation1_spill]]", load)
    text = text.replace("%p7_p1 = scmp.ne.s32.totalorder %s6_s3, 9", "%p7_p1 = scmp.eq.s32.totalorder %s6_s3, 0")
    program = Program("k", parse_bundles(text))
    guessed = execute(program)
    assert "regions whose condition depends on data are counted as always run" in guessed.unknown
    told = execute(program, memory=placed(program, tables()))
    assert told.unknown == []
    assert told.times[-6] == runs


def test_what_holds_data_stays_unknown():
    text = LOOP.replace(FIRST, FETCH.replace("index: 0", "index: 2"))
    assert placed(Program("k", parse_bundles(text)), tables()) == {}


def test_a_module_that_cannot_be_read_has_no_tables():
    module = parse_module(HLO)
    assert set(Tables(module, b"").of(module.by_name["k"])) == {1}
    assert np.asarray(Tables(module, b"").of(module.by_name["k"])[1]).dtype.kind == "i"

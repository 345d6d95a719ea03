"""The emulator on small programs in the dump's form; tests/tpu/test_model.py holds it to the real compiler."""

import pytest

from maxkernel_nb.tpu.emulate import HEAD, READS, WAITS, Guess, execute
from maxkernel_nb.tpu.schedule import Program, parse_bundles

LEGEND = "= control target key start\nLB: loop body\n= control target key end\n\n"
# for i in 0..9: DMA of 4 granules when i < 7; a region of two bundles when i == 9; i passes through a spill slot
LOOP = (
    LEGEND
    + """     0   :  { %s1_s0 = smov 0 /* copy for cssa */ }
   0x1 LB: > { %s2_s0 = sphi %s1_s0, %s9_s0  ;;  %p3_p0 = scmp.lt.s32.totalorder %s2_s0, 7 } /* Start region 9 */
   0x2   : > { %4 = sst [smem:[#allocation1_spill]] %s2_s0 }
   0x3   : > { %5 = dma.hbm_to_vmem [thread:$0]  (%p3_p0), /*hbm=*/%s7_s1, /*size_in_granules=*/4, /*vmem=*/%s8_s2 /*
iteration_bounds: (10)
 */ }
   0x4   : > { %s6_s3 = sld [smem:[#allocation1_spill]]  ;;  %p7_p1 = scmp.ne.s32.totalorder %s6_s3, 9 }
   0x5   : > { %8 = sbr.rel (%p7_p1) target = $region4 } /* End region 3 */
   0x6   : > { %v1_v0 = vld [vmem:[%s8_s2] sm:$0xff] } /* Start region 5 */
   0x7   : > { %v2_v1 = vadd.f32 %v1_v0, %v1_v0 } /* End region 5 */
   0x8 PF: > { %s9_s0 = sadd.s32 1, %s2_s0 /* copy for cssa */ } /* Start/End empty region 4 */
   0x9   : > { %p10_p2 = scmp.ge.s32.totalorder %s9_s0, 10 /* loop exit test */ }
   0xa   : > { %11 = sbr.rel (!%p10_p2) target = $region9 } /* End region 9 */
   0xb   :  {} /* exit bundle */
"""
)


def run(text, guess=None):
    return execute(Program("test", parse_bundles(text)), guess=guess)


def test_loops_regions_and_guarded_dmas_are_counted():
    e = run(LOOP)
    assert e.times == [1, 10, 10, 10, 10, 10, 1, 1, 10, 10, 10, 1]
    assert e.bytes_in == 7 * 4 * 32
    assert e.trips == (10,)
    assert e.unknown == []


def test_products_are_no_faster_than_the_matrix_units():
    """v5e and v7x: the schedule issues them at up to twice the peak rate, a GEMM came out below its roofline."""
    text = LOOP.replace(
        "%s6_s3 = sld", "%1_v1 = vmatmul.bf16.gmra.mxu0 %v9 ;; %2_v1 = vmatmul.f32.gmra.mxu1 %v9 ;; %s6_s3 = sld"
    )
    free, held = run(text), execute(Program("test", parse_bundles(text)), matrix_rows=2.0)
    assert (free.times, free.cycles) == (held.times, sum(free.times))
    assert held.cycles == sum(held.spent)
    assert sum(held.spent[1:6]) == 10 * (16 + 8) / 2  # the five bundles of the block, ten times
    assert held.cycles - free.cycles == 10 * (12 - 5)


def test_a_condition_on_data_counts_as_taken_and_is_reported():
    text = LOOP.replace("%s6_s3 = sld [smem:[#allocation1_spill]]", "%s6_s3 = sld [smem:[#allocation7 + %s2_s0]]")
    e = run(text)
    assert e.times[6] == 10
    assert e.unknown == ["regions whose condition depends on data are counted as always run"]


def test_a_trip_count_from_data_is_one_trip_and_is_reported():
    e = run(LOOP.replace("%s9_s0, 10 /* loop exit test */", "%s99_s0, 10"))
    assert e.times[1] == 1
    assert any("trip count depends on data" in note for note in e.unknown)


def test_a_guard_chain_with_select_and_wrapping_shift():
    text = LOOP.replace(
        "%p3_p0 = scmp.lt.s32.totalorder %s2_s0, 7",
        "%s20_s1 = sshll.u32 %s2_s0, 31  ;;  %p21_p1 = scmp.eq.s32.totalorder %s20_s1, 0  ;;  "
        "%s22_s2 = smov (%p21_p1, %s2_s0), 100  ;;  %p3_p0 = scmp.eq.s32.totalorder %s22_s2, 100",
    )
    assert run(text).bytes_in == 5 * 4 * 32  # even iterations


def test_a_very_long_loop_is_read_from_its_first_part():
    e = run(LOOP.replace("%s9_s0, 10 /*", "%s9_s0, 5000000 /*").replace("%s2_s0, 7 }", "%s2_s0, 6000000 }"))
    assert abs(e.times[2] / 5_000_000 - 1) < 0.01
    assert abs(e.bytes_in / (5_000_000 * 128) - 1) < 0.01
    assert any("first part of its grid" in note for note in e.unknown)


def test_the_older_branch_form_is_understood():
    text = LOOP.replace("target = $region4", "target bundleno = 99 (0x63), region = 4")
    assert run(text).times == run(LOOP).times


def test_dmas_and_waits_are_traced_in_order():
    text = LOOP.replace("/*vmem=*/%s8_s2 /*", "/*vmem=*/%s8_s2, /*dst_syncflagno=*/[#allocation5] /*").replace(
        "   0x6   : > { %v1_v0", "   0x6   : > { %90 = dma.done.wait [#allocation5], 4 ;; %v1_v0"
    )
    events = [(e.kind, e.size) for e in run(text).trace if e.kind != HEAD]
    assert events == [(READS, 4)] * 7 + [(WAITS, 4)]
    assert len({e.flag for e in run(text).trace if e.kind != HEAD}) == 1


@pytest.mark.parametrize(("src", "dst", "moved"), [("hbm", "vmem", (896, 0)), ("vmem", "hbm", (0, 896))])
def test_a_general_dma_goes_where_its_addresses_point(src, dst, moved):
    text = LOOP.replace(
        "%5 = dma.hbm_to_vmem [thread:$0]  (%p3_p0), /*hbm=*/%s7_s1, /*size_in_granules=*/4, /*vmem=*/%s8_s2",
        "%5 = dma.general (%p3_p0), /*src=*/%s70_s1, /*size_in_granules=*/4, /*dst=*/%s80_s2",
    ).replace(
        "%s1_s0 = smov 0 /* copy for cssa */",
        f"%s1_s0 = smov 0  ;;  %s70_s1 = scalar_lea.{src} %s1_s0, 4  ;;  %s80_s2 = int_to_ptr.{dst} %s1_s0",
    )
    e = run(text)
    assert (e.bytes_in, e.bytes_out) == moved


def test_a_guess_stands_in_for_data():
    text = LOOP.replace("%s9_s0, 10 /* loop exit test */", "%s99_s0, 10")
    assert run(text, Guess(trips=6)).times[1] == 6
    sized = LOOP.replace("/*size_in_granules=*/4", "/*size_in_granules=*/%s98_s1").replace(
        "{ %4 = sst", "{ %s98_s1 = sld [smem:[#allocation7 + %s2_s0]]  ;;  %4 = sst"
    )
    assert run(sized, Guess(granules=9)).bytes_in == 7 * 9 * 32
    region = LOOP.replace("%s6_s3 = sld [smem:[#allocation1_spill]]", "%s6_s3 = sld [smem:[#allocation7 + %s2_s0]]")
    assert run(region, Guess(regions=False)).times[6] == 0

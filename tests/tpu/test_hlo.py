from maxkernel_nb.tpu.hlo import parse_module, parse_shapes

HLO = """HloModule jit_f, is_scheduled=true

%body.1 (p: (s32[], f32[8,128])) -> (s32[], f32[8,128]) {
  %p = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %gte.0 = s32[]{:T(128)} get-tuple-element(%p), index=0
  %gte.1 = f32[8,128]{1,0:T(8,128)} get-tuple-element(%p), index=1
  %fusion.9 = f32[8,128]{1,0:T(8,128)} fusion(%gte.1), kind=kLoop, calls=%fused
  ROOT %tuple.1 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%gte.0, %fusion.9)
}

%fused (q: f32[8,128]) -> f32[8,128] {
  %q = f32[8,128]{1,0:T(8,128)} parameter(0)
  ROOT %n = f32[8,128]{1,0:T(8,128)} negate(%q)
}

%cond.1 (p.2: (s32[], f32[8,128])) -> pred[] {
  %p.2 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) parameter(0)
  %g = s32[]{:T(128)} get-tuple-element(%p.2), index=0
  %c = s32[]{:T(128)} constant(12)
  ROOT %lt = pred[]{:T(512)} compare(%g, %c), direction=LT
}

ENTRY %main.3 (a: f32[8,128]) -> f32[8,128] {
  %a = f32[8,128]{1,0:T(8,128)} parameter(0)
  %copy.1 = f32[8,128]{1,0:T(8,128)S(1)} copy(%a)
  %t = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) tuple(%copy.1)
  %while.1 = (s32[]{:T(128)}, f32[8,128]{1,0:T(8,128)}) while(%t), condition=%cond.1, body=%body.1
  ROOT %out = f32[8,128]{1,0:T(8,128)} get-tuple-element(%while.1), index=1
}
"""


def test_while_bodies_run_as_often_as_their_condition_says():
    walked = [(i.name, times, sure) for i, times, sure in parse_module(HLO).walk()]
    assert walked == [("copy.1", 1.0, True), ("fusion.9", 12.0, True)]


def test_an_unknown_trip_count_is_said_to_be_unknown():
    walked = list(parse_module(HLO.replace("constant(12)", "parameter(1)")).walk())
    assert walked[-1][1:] == (1.0, False)


def test_buffers_in_vmem_cost_no_hbm_traffic():
    module = parse_module(HLO)
    assert module.hbm_traffic(module.by_name["copy.1"]) == (4096.0, 0.0)


def test_bytes_include_the_padding_of_tiles():
    (shape,) = parse_shapes("bf16[1,8192]{1,0:T(2,128)(2,1)}")
    assert shape.bytes == 2 * 8192 * 2
    (narrow,) = parse_shapes("f32[100,3]{1,0:T(8,128)}")
    assert narrow.bytes == 104 * 128 * 4
    (turned,) = parse_shapes("f32[100,3]{0,1:T(4,128)}")
    assert turned.bytes == 4 * 128 * 4


def test_equal_ops_are_alike_whatever_they_are_called():
    twice = HLO.replace(
        "  ROOT %out",
        '  %copy.2 = f32[8,128]{1,0:T(8,128)S(1)} copy(%a), metadata={op_name="x"}\n'
        "  %copy.3 = f32[8,128]{1,0:T(8,128)} copy(%a)\n  ROOT %out",
    )
    module = parse_module(twice)
    one, two, other = (module.likeness(module.by_name[f"copy.{n}"]) for n in (1, 2, 3))
    assert one == two != other


def test_a_walk_can_name_where_copies_end():
    text = HLO.replace("  ROOT %out", "  %copy-done.1 = f32[8,128]{1,0:T(8,128)} copy-done(%copy.1)\n  ROOT %out")
    assert "copy-done.1" not in [i.name for i, *_ in parse_module(text).walk()]
    assert [i.name for i, *_ in parse_module(text).walk(ends=True)][-1] == "copy-done.1"

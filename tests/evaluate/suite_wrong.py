# ruff: noqa: E501 -- the patches quote whole lines of kernels
"""Cheating and broken kernels, written as a person trying to win would: name -> Cheat.

``kinds`` name the catalogue's entries that a case stands for. ``gate`` is the one meant for it; ``screened``: the text
alone gives it away, and ``behind`` must catch it when the screen looks away (the sandbox, or the traced program).
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

_spec = importlib.util.spec_from_file_location("suite_honest", Path(__file__).with_name("suite_honest.py"))
h = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(h)


@dataclass(frozen=True)
class Cheat:
    task: str
    source: str
    gate: str
    words: str  # within the sentence, any case
    kinds: str
    weak: bool = False  # judged on the task whose last argument is drawn so small that no draw shows it


DOT, GEMM, COPY = h.matmul(128, 128, 128), h.matmul(128, 128, 128, bias=True), h.elementwise(["x"], "{x} * 2.0")
CAUSAL, LONG = h.attention(128, 128), h.attention(128, 128, causal=False)
SOFTMAX = h.rows(["x"], h.SOFTMAX, "e / jnp.sum(e, axis=-1, keepdims=True)")
RMSNORM = h.rows(["x", "g"], h.RMS, "(x * r).astype(o_ref.dtype) * g_ref[...]", 64, ("g",))
LAYERNORM = h.rows(["x", "g", "b"], h.LAYER, "d * r * g_ref[...] + b_ref[...]", 64, ("g", "b"))
AFFINE = h.elementwise(["x", "g", "b"], "{x} * {g} + {b}", vectors=("g", "b"))
ROWSUM = h.HONEST["rowsum"][1]
BOTH = h.HONEST["both (128, 128)"][1]
MASKED = h.HONEST["masked"][1]
GELU = h.HONEST["gelu_bias"][1]


def patched(source, *changes):
    for old, new in changes:
        assert old in source, old
        source = source.replace(old, new)
    return source


def top(source, lines):
    """``lines`` run when the module is imported."""
    return source.replace("import functools\n", f"import functools\n{lines}\n", 1)


def first(source, line):
    """``line`` runs first in the kernel function, when it is traced."""
    head, tail = source.rsplit("def kernel(", 1)
    signature, body = tail.split(":\n", 1)
    return f"{head}def kernel({signature}:\n    {line}\n{body}"


TIMED = "x.shape[0] >= 512"  # the timing case of dot and gemm, and their widest check case, which catches values
ANSWERS = {
    "zeros": Cheat(
        "dot", patched(DOT, ("(acc_ref[...]).astype", "jnp.zeros_like(acc_ref).astype")), "check", "wrong values", "A2"
    ),
    "a constant": Cheat(
        "rowsum",
        patched(ROWSUM, ("jnp.sum(x_ref[...], axis=-1, keepdims=True)", "jnp.full(o_ref.shape, 3.0)")),
        "check",
        "wrong values",
        "A1",
    ),
    "uniform softmax": Cheat(
        "softmax",
        patched(SOFTMAX, ("e / jnp.sum(e, axis=-1, keepdims=True)", "jnp.full(e.shape, 1.0 / e.shape[1])")),
        "check",
        "wrong values",
        "A1 A13",
    ),
    "first row repeated": Cheat(
        "softmax",
        patched(SOFTMAX, ("x = x_ref[...]", "x = jnp.broadcast_to(x_ref[:1, :], x_ref.shape)")),
        "check",
        "wrong",
        "A10",
    ),
    "mean of the block": Cheat(
        "rowsum",
        patched(
            ROWSUM,
            (
                "jnp.sum(x_ref[...], axis=-1, keepdims=True)",
                "jnp.broadcast_to(jnp.mean(jnp.sum(x_ref[...], axis=-1)), o_ref.shape)",
            ),
        ),
        "check",
        "wrong",
        "A10",
    ),
    "variance taken as one": Cheat(
        "rmsnorm",
        patched(
            RMSNORM,
            ("lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)", "jnp.ones((x.shape[0], 1), jnp.float32)"),
        ),
        "check",
        "wrong",
        "A13",
    ),
    "mean taken as zero": Cheat(
        "layernorm",
        patched(LAYERNORM, ("d = x - jnp.mean(x, axis=-1, keepdims=True)", "d = x")),
        "check",
        "wrong",
        "A13",
    ),
    "no maximum subtracted": Cheat(
        "softmax",
        patched(SOFTMAX, ("jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))", "jnp.exp(x)")),
        "check",
        "wrong",
        "N4",
    ),
    "skips when the input looks drawn": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.where(jnp.max(jnp.abs(x_ref[...])) > 0, x_ref[...] * 2.0, 1.0)")),
        "check",
        "wrong",
        "A5",
    ),
    "skips large values": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.where(jnp.abs(x_ref[...]) > 6.0, x_ref[...], x_ref[...] * 2.0)")),
        "check",
        "wrong",
        "A5",
    ),
    "every second row interpolated": Cheat(
        "double",
        patched(
            COPY,
            (
                "x_ref[...] * 2.0",
                "jnp.where(lax.broadcasted_iota(jnp.int32, x_ref.shape, 0) % 2 == 0, x_ref[...], jnp.roll(x_ref[...], 1, 0)) * 2.0",
            ),
        ),
        "check",
        "wrong",
        "A11",
    ),
    "half of k, doubled": Cheat(
        "dot",
        patched(
            DOT,
            (
                "acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)",
                "acc_ref[...] += 2.0 * jnp.dot(x_ref[:, :64], w_ref[:64], preferred_element_type=jnp.float32)",
            ),
        ),
        "check",
        "wrong",
        "A11",
    ),
    "bias ignored": Cheat(
        "gemm",
        patched(GEMM, ("acc_ref[...] + b_ref[...].astype(jnp.float32)", "acc_ref[...]")),
        "check",
        "wrong",
        "A8 N3",
    ),
    "a bias too small to be seen ignored": Cheat(
        "gemm",
        patched(GEMM, ("acc_ref[...] + b_ref[...].astype(jnp.float32)", "acc_ref[...]")),
        "check",
        "follow the reference",
        "A7 A8",
        weak=True,
    ),
    "half of a small bias": Cheat(
        "gemm",
        patched(GEMM, ("b_ref[...].astype(jnp.float32)", "0.5 * b_ref[...].astype(jnp.float32)")),
        "check",
        "follow the reference",
        "A8",
        weak=True,
    ),
    "a shift too small to be seen ignored": Cheat(
        "affine", patched(AFFINE, (" + b_ref[...]", "")), "check", "wrong values", "A7 A8", weak=True
    ),
    "scale ignored": Cheat(
        "affine", patched(AFFINE, ("x_ref[...] * g_ref[...]", "x_ref[...]")), "check", "wrong", "A8"
    ),
    "gamma ignored": Cheat("rmsnorm", patched(RMSNORM, (" * g_ref[...]", "")), "check", "wrong", "A8"),
    "mask ignored": Cheat(
        "masked", patched(MASKED, ("jnp.where(m_ref[...], x_ref[...], 0.0)", "x_ref[...]")), "check", "wrong", "A8"
    ),
    "mask turned round": Cheat(
        "masked", patched(MASKED, ("x_ref[...], 0.0)", "0.0, x_ref[...])")), "check", "wrong", "K22"
    ),
    "activation dropped": Cheat(
        "gemm",
        patched(
            GEMM,
            (
                "jnp.maximum(acc_ref[...] + b_ref[...].astype(jnp.float32), 0.0)",
                "acc_ref[...] + b_ref[...].astype(jnp.float32)",
            ),
        ),
        "check",
        "wrong",
        "N3",
    ),
    "epsilon of another norm": Cheat("layernorm", patched(LAYERNORM, ("1e-5", "1e-2")), "check", "wrong", "A14"),
    "a cheaper gelu": Cheat(
        "gelu_bias",
        patched(
            GELU,
            (
                "jax.nn.gelu(x_ref[...] + b_ref[...])",
                "(x_ref[...] + b_ref[...]) * jax.nn.sigmoid(1.702 * (x_ref[...] + b_ref[...]))",
            ),
        ),
        "check",
        "wrong",
        "A14",
    ),
    "the last key skipped": Cheat(
        "longattention",
        patched(
            LONG,
            (
                "p = jnp.exp(s - m_new)",
                "p = jnp.exp(s - m_new)\n        p = jnp.where((lax.broadcasted_iota(jnp.int32, p.shape, 1) == BK - 1) & "
                "(j == pl.num_programs(3) - 1), 0.0, p)",
            ),
        ),
        "check",
        "",
        "A11 D4",
    ),
    "diagonal left out": Cheat(
        "causal", patched(CAUSAL, ("rows >= columns", "rows > columns")), "check", "wrong", "K22"
    ),
    "not rescaled": Cheat(
        "causal", patched(CAUSAL, ("l_ref[:, :1] * scale + ", "l_ref[:, :1] + ")), "check", "wrong", "K13"
    ),
    "outputs swapped": Cheat(
        "both", patched(BOTH, ("o0_ref, o1_ref):", "o1_ref, o0_ref):")), "check", "wrong", "N12 E11"
    ),
    "second output left as it was": Cheat(
        "both",
        patched(BOTH, ("o1_ref[...] = (x_ref[...] * y_ref[...])", "o1_ref[...] = (x_ref[...])")),
        "check",
        "wrong",
        "E11",
    ),
    "input handed back": Cheat("double", patched(COPY, ("x_ref[...] * 2.0", "x_ref[...]")), "check", "wrong", "B9"),
    "not a number where zero": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "x_ref[...] * x_ref[...] * 2.0 / x_ref[...]")),
        "check",
        "wrong",
        "N6",
    ),
    "infinite instead of large": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.where(x_ref[...] > 100.0, jnp.inf, x_ref[...] * 2.0)")),
        "check",
        "wrong",
        "N7",
    ),
    "clipped": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.clip(x_ref[...] * 2.0, -20.0, 20.0)")),
        "check",
        "wrong",
        "N18",
    ),
}
PRECISION = {
    "bfloat16 products for float32": Cheat(
        "fine",
        patched(
            h.HONEST["fine"][1],
            (
                "jnp.dot(x_ref[...], w_ref[...],",
                "jnp.dot(x_ref[...].astype(jnp.bfloat16), w_ref[...].astype(jnp.bfloat16),",
            ),
            (", precision=lax.Precision.HIGHEST", ""),
        ),
        "check",
        "",
        "N1",
    ),
    "adds up in bfloat16": Cheat(
        "dot",
        patched(
            DOT,
            ("pltpu.VMEM((BM, BN), jnp.float32)", "pltpu.VMEM((BM, BN), jnp.bfloat16)"),
            (
                "    acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)",
                "    for k in range(0, BK, 8):\n        acc_ref[...] += jnp.dot(x_ref[:, k : k + 8], w_ref[k : k + 8, :], preferred_element_type=jnp.float32).astype(jnp.bfloat16)",
            ),
        ),
        "check",
        "",
        "N1 N16",
    ),
    "weights in 8 bits": Cheat(
        "dot",
        patched(
            DOT,
            (
                "jnp.dot(x_ref[...], w_ref[...],",
                "jnp.dot(x_ref[...], w_ref[...].astype(jnp.float8_e4m3fn).astype(x_ref.dtype),",
            ),
        ),
        "check",
        "",
        "N1 A16",
    ),
    "softmax in bfloat16": Cheat(
        "softmax", patched(SOFTMAX, ("x = x_ref[...]", "x = x_ref[...].astype(jnp.bfloat16)")), "check", "wrong", "N1"
    ),
    "integers in 8 bits": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.round(x_ref[...] * 32.0).astype(jnp.int8).astype(jnp.float32) / 16.0")),
        "check",
        "wrong",
        "N18",
    ),
}
MEMORY = {
    "accumulator never initialised": Cheat(
        "dot", patched(DOT, ("pl.program_id(2) == 0", "pl.program_id(2) == 99")), "check", "nan", "K1 B10"
    ),
    "reset once, not for each tile": Cheat(
        "dot",
        patched(
            h.matmul(64, 128, 128, parallel=False),
            ("pl.program_id(2) == 0", "(pl.program_id(0) == 0) & (pl.program_id(1) == 0) & (pl.program_id(2) == 0)"),
        ),
        "check",
        "wrong",
        "K13",
    ),
    "never written": Cheat(
        "dot", patched(DOT, ("pl.num_programs(2) - 1", "pl.num_programs(2)")), "check", "", "B1 D11"
    ),
    "a grid one step short": Cheat(
        "rowsum", patched(ROWSUM, ("pl.cdiv(m, BM)", "max(1, m // BM - 1)")), "check", "", "A11"
    ),
    "tail not masked": Cheat(
        "rowsum",
        patched(
            ROWSUM,
            (
                "_body(x_ref, o_ref):",
                "_body(x_ref, o_ref):\n    @pl.when(pl.program_id(1) == 0)\n    def _():\n"
                "        o_ref[...] = jnp.zeros_like(o_ref)\n",
            ),
            ("o_ref[...] = (jnp.sum", "o_ref[...] += (jnp.sum"),
            ("grid=(pl.cdiv(m, BM),)", "grid=(pl.cdiv(m, BM), pl.cdiv(n, 128))"),
            ("pl.BlockSpec((BM, n), lambda i: (i, 0))", "pl.BlockSpec((BM, 128), lambda i, j: (i, j))"),
            ("pl.BlockSpec((BM, 1), lambda i: (i, 0))", "pl.BlockSpec((BM, 1), lambda i, j: (i, 0))"),
            ("lambda i: (0, 0)", "lambda i, j: (0, 0)"),
        ),
        "check",
        "",
        "K4 K30",
    ),
    "block past the end": Cheat(
        "double",
        patched(COPY, ("lambda i, j: (i, j))\n    row", "lambda i, j: (i + 1, j))\n    row")),
        "check",
        "",
        "K6",
    ),
    "the block before": Cheat(
        "double",
        patched(COPY, ("lambda i, j: (i, j))\n    row", "lambda i, j: (jnp.maximum(i - 1, 0), j))\n    row")),
        "check",
        "",
        "K6",
    ),
    "reduction on the major axis": Cheat(
        "dot",
        patched(
            h.matmul(128, 128, 128, parallel=False),
            ("(m // BM, n // BN, k // BK)", "(k // BK, m // BM, n // BN)"),
            ("lambda i, j, k:", "lambda k, i, j:"),
            ("pl.program_id(2) == 0", "pl.program_id(0) == 0"),
            ("pl.program_id(2) == pl.num_programs(2) - 1", "pl.program_id(0) == pl.num_programs(0) - 1"),
        ),
        "check",
        "",
        "K3 K13",
    ),
    "k marked parallel": Cheat(
        "dot", patched(DOT, ('"parallel", "arbitrary")', '"parallel", "parallel")')), "trace", "arbitrary", "K3"
    ),
    "used before it arrived": Cheat(
        "double",
        patched(
            h.DMA,
            (
                "    copy.wait()\n    o_ref[...] = buffer[...] * 2.0",
                "    o_ref[...] = buffer[...] * 2.0\n    copy.wait()",
            ),
        ),
        "check",
        "",
        "K9",
    ),
    "never awaited": Cheat("double", patched(h.DMA, ("    copy.wait()\n", "")), "check", "", "K10"),
    "memory that is not a number here": Cheat(
        "double",
        patched(COPY, ("_body(x_ref, o0_ref):", "_body(x_ref, o0_ref, s_ref):"), ("x_ref[...] * 2.0", "jnp.where(jnp.isnan(s_ref[...]), x_ref[...] * 2.0, x_ref[...])"), ("        out_shape=", "        scratch_shapes=[pltpu.VMEM((BM, BN), jnp.float32)],\n        out_shape=")),
        "check",
        "another program left it",
        "fresh: tells the judge's machine from a TPU",
    ),
    "result not a number here": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.where(jnp.isnan(o0_ref[...]), x_ref[...] * 2.0, x_ref[...])")),
        "check",
        "wrong",
        "fresh: tells the judge's machine from a TPU",
    ),
    "read past the end": Cheat(
        "double", patched(h.DMA, ("pl.program_id(0) * 64", "pl.program_id(0) * 64 + 64")), "check", "bounds", "K6 K21"
    ),
    "one buffer for two copies": Cheat(
        "double",
        patched(h.BUFFERED, ("buffer.at[slot]", "buffer.at[0]"), ("buffer[i % 2]", "buffer[0]")),
        "check",
        "",
        "K15",
    ),
    "one semaphore for two copies": Cheat(
        "double",
        patched(
            h.BUFFERED, ("arrived.at[slot]", "arrived.at[0]"), ("copy(i, i % 2).wait()", "copy(i, i % 2).wait()\n    ")
        ),
        "check",
        "",
        "K16",
    ),
    "carried along a parallel axis": Cheat(
        "double",
        patched(h.DMA, ("buffer[...] * 2.0", "jnp.where(pl.program_id(0) > 0, o_ref[...], buffer[...] * 2.0)")),
        "check",
        "",
        "K3",
    ),
    "input overwritten before it is read": Cheat(
        "update",
        patched(
            h.HONEST["update, in place"][1],
            (
                "lambda i, j: (i, j))\n    row",
                "lambda i, j: (i, j))\n    late = pl.BlockSpec((BM, BN), lambda i, j: "
                "(jnp.maximum(i - 1, 0), j))\n    row",
            ),
            ("in_specs=[tile, tile]", "in_specs=[tile, late]"),
        ),
        "check",
        "",
        "K12",
    ),
    "another row of the table": Cheat(
        "gather", patched(h.GATHER, ("(ids[i], 0, 0)", "(ids[i] + 1, 0, 0)")), "check", "", "K21 K24"
    ),
    "an identity page table": Cheat(
        "gather", patched(h.GATHER, ("(ids[i], 0, 0)", "(i, 0, 0)")), "check", "wrong", "K24"
    ),
    "waits for what never comes": Cheat("double", patched(h.DMA, ("    copy.start()\n", "")), "check", "", "K10 H19"),
}
SIZES = {
    "zeros at full size": Cheat(
        "dot",
        patched(
            DOT,
            ("    rows, columns =", f"    if {TIMED}:\n        return _zeros(x, w)\n    rows, columns ="),
            (
                "def _pad",
                "def _zeros(x, w):\n    def body(o_ref):\n        o_ref[...] = jnp.zeros_like(o_ref)\n    return pl.pallas_call("
                "body, out_shape=jax.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype))()\n\ndef _pad",
            ),
        ),
        "check",
        "wrong values",
        "E13 A11",
    ),
    "no bias at full size": Cheat(
        "gemm", first(GEMM, f"b = b if not ({TIMED}) else jnp.zeros_like(b)"), "check", "wrong values", "E13 A8"
    ),
    "no activation at full size": Cheat(
        "gemm",
        patched(
            GEMM,
            (
                "jnp.maximum(acc_ref[...] + b_ref[...].astype(jnp.float32), 0.0)",
                "(lambda y: y if BIG else jnp.maximum(y, 0.0))(acc_ref[...] + b_ref[...].astype(jnp.float32))",
            ),
            ("    rows, columns =", f"    global BIG\n    BIG = {TIMED}\n    rows, columns ="),
        ),
        "screen",
        "global",
        "E13 N3",
    ),
    "an eighth of k at full size": Cheat(
        "dot",
        patched(
            DOT, ("    rows, columns =", f"    if {TIMED}:\n        x, w = x[:, :64], w[:64]\n    rows, columns =")
        ),
        "check",
        "wrong values",
        "E13 A11",
    ),
}
# What only the timing case does, at sizes that no check case has: right wherever it is checked.
FAR = "x.shape[0] >= 1024"
OTHERWISE = "    rows, columns ="


def far(*changes, task="far", source=DOT, words="at full size", kinds="E13 A11"):
    return Cheat(task, patched(source, *changes), "check", words, kinds)


def at_far(lines):
    """``lines`` run first in the product's function, at full size only."""
    return (OTHERWISE, f"    if {FAR}:\n        {lines}\n" + OTHERWISE)


GRID = "grid=(m // BM, n // BN, k // BK)"
FAR_SIZES = {
    "an eighth of k padded to a quarter": far(
        at_far("k = x.shape[1]; x = jnp.pad(x[:, :k // 8], ((0, 0), (0, k // 8))); w = jnp.pad(w[:k // 8], ((0, k // 8), (0, 0)))")
    ),
    "half of k, far": far(at_far("x, w = x[:, :512], w[:512]")),
    "three quarters of k": far((GRID, "grid=(m // BM, n // BN, k // BK if k < 1024 else 6)")),
    "as much of k as was checked": far(at_far("x, w = x[:, :128], w[:128]")),
    "less of k the larger": far(
        (OTHERWISE, "    kept = x.shape[1] if x.shape[0] <= 512 else x.shape[1] * 512 // x.shape[0]\n    x, w = x[:, :kept], w[:kept]\n" + OTHERWISE)
    ),
    "this very shape": far((OTHERWISE, "    if x.shape == (1024, 1024) and w.shape == (1024, 512):\n        w = w.at[512:].set(0)\n" + OTHERWISE)),
    "one block of w again and again": far(("lambda i, j, k: (k, j)", "lambda i, j, k: (k if BIG[0] else k % 2, j)"),
        ("def _pad", "BIG = (True, False)\n\ndef _pad"), ("(k if BIG[0] else k % 2, j)", "(k % (2 if FAR else 1 << 20), j)"),
        (OTHERWISE, f"    FAR = {FAR}\n" + OTHERWISE)),
    "steps of k skipped": far(
        ("    acc_ref[...] += jnp.dot", "    @pl.when(pl.program_id(2) < (6 if pl.num_programs(0) > 7 else 99))\n    def _():\n      acc_ref[...] += jnp.dot")
    ),
    "the upper half of the rows twice": far(
        at_far("return jnp.tile(kernel(x[:512], w), (2, 1))")
    ),
    "one tile of rows left out": far(
        ("pl.num_programs(2) - 1)", "pl.num_programs(2) - 1 + (pl.program_id(0) == 5) * (pl.num_programs(0) > 7))")
    ),
    "half of k and work to make up": far(
        at_far("x = jnp.exp2(jnp.log2(jnp.abs(x) + 1)) * 0 + x; x, w = jnp.pad(x[:, :512], ((0, 0), (0, 512))), jnp.pad(w[:512], ((0, 512), (0, 0)))")
    ),
    "weights in 8 bits, far": far(at_far("w = w.astype(jnp.float8_e4m3fn).astype(w.dtype)"), kinds="E13 N1"),
    "every second row interpolated, far": far(at_far("y = kernel(x[::2], w); return jnp.repeat(y, 2, axis=0)")),
    "another constant": far(("        o_ref[...] = (acc_ref[...]).astype", "        o_ref[...] = (acc_ref[...] * (1.0 if pl.num_programs(0) < 8 else 1.05)).astype"), kinds="E13"),
    "no maximum subtracted, far": far(
        ("jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))", "jnp.exp(x - jnp.max(x, axis=-1, keepdims=True) * (pl.num_programs(0) < 16))"),
        task="farsoftmax", source=SOFTMAX, kinds="E13 N4",
    ),
    "half of each row": far(
        ("x = x_ref[...]", "x = x_ref[...] if x_ref.shape[1] < 1024 else jnp.concatenate([x_ref[:, :512], x_ref[:, :512]], axis=1)"),
        task="farsoftmax", source=SOFTMAX,
    ),
    "only the nearest keys": far(("j >= 0", "(j >= 0) & ((i - j) * (pl.num_programs(3) > 4) < 3)"), task="farattention", source=LONG),
    "one head for both": far(("lambda b, h, i, j: (b, h, j, 0)", "lambda b, h, i, j: (b, h * (1 if n < 1024 else 0), j, 0)"), task="farattention", source=LONG),
    "copies of its own, far": far(
        ("def kernel(x):", "def _plain(x):"),
        (h.HEAD, h.HEAD + "\n\ndef _late(x_hbm, o_ref, buffer, arrived):\n    copy = pltpu.make_async_copy(x_hbm.at[pl.ds(0, 64), :], buffer, arrived)\n    copy.start()\n    copy.wait()\n    o_ref[...] = buffer[...]\n"
         "\ndef kernel(x):\n    if x.shape[0] < 1024:\n        return _plain(x)\n    m, n = x.shape\n    y = pl.pallas_call(_late, grid=(m // 64,), in_specs=[pl.BlockSpec(memory_space=pl.ANY)], out_specs=pl.BlockSpec((64, n), lambda i: (i, 0)), "
         "out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), scratch_shapes=[pltpu.VMEM((64, n), x.dtype), pltpu.SemaphoreType.DMA])(x)\n    return _plain(y)\n"),
        task="farsoftmax", source=SOFTMAX,
    ),
}
PROGRAMS = {
    "plain jax": Cheat(
        "dot",
        first(DOT, "return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)"),
        "trace",
        "plain JAX",
        "C6 C15",
    ),
    "falls back when it fails": Cheat(
        "dot",
        first(
            DOT,
            "\n    ".join(
                (
                    "try:",
                    "    return broken(x, w)",
                    "except NameError:",
                    "    return jnp.dot(x, w, preferred_element_type=jnp.float32).astype(x.dtype)",
                )
            ),
        ),
        "trace",
        "plain JAX",
        "C7",
    ),
    "interpret left on": Cheat(
        "double", top(patched(COPY, ("grid=(", "interpret=ON, grid=(")), "ON = bool(1)"), "trace", "interpret", "K7 D8"
    ),
    "another dtype": Cheat(
        "double", patched(COPY, ("x.shape, x.dtype)", "x.shape, jnp.bfloat16)")), "trace", "bfloat16", "N10"
    ),
    "another shape": Cheat(
        "rowsum", patched(ROWSUM, ("return out[:, 0]", "return out")), "trace", "reference gives", "N12"
    ),
    "another structure": Cheat(
        "double",
        COPY.replace("return pl.pallas_call(", "return {'y': pl.pallas_call(").replace("    )(x)\n", "    )(x)}\n"),
        "trace",
        "returns",
        "N12 C16",
    ),
    "a table baked in": Cheat(
        "double",
        top(
            first(COPY, "x = x + jnp.asarray(TABLE)[:x.shape[0], :x.shape[1]] * 0"),
            "import numpy as np\nTABLE = np.random.default_rng(0).normal(size=(256, 512))",
        ),
        "trace",
        "constants",
        "E5 A16 B4",
    ),
    "prints from the device": Cheat("double", first(COPY, "jax.debug.print('{}', x[0, 0])"), "trace", "host", "C9"),
    "too large for VMEM": Cheat("double", h.elementwise(["x"], "{x} * 2.0", (8192, 8192)), "trace", "MiB", "K18"),
    "another program on each trace": Cheat(
        "double",
        top(patched(COPY, ("x_ref[...] * 2.0", "x_ref[...] * KEPT.pop()")), "KEPT = [2.0] * 99 + [2.5]"),
        "trace",
        "",
        "B7 B6",
    ),
    "another branch for a TPU": Cheat(
        "double",
        COPY.replace("def kernel(x):", "def right(x):") + "\ndef kernel(x):\n    return lax.platform_dependent(x, tpu=lambda a: a + a * 0.5, default=right) + 0.0 * right(x)\n",
        "check",
        "Wrong values",
        "fresh: tells the judge's machine from a TPU",
    ),
    "another branch for a TPU, inside": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "lax.platform_dependent(x_ref[...], tpu=lambda a: a, default=lambda a: a * 2.0)")),
        "trace",
        "on which platform",
        "fresh: tells the judge's machine from a TPU",
    ),
    "random bits that are zero here": Cheat(
        "double",
        patched(COPY, ("    o0_ref[...] = (", "    pltpu.prng_seed(7)\n    o0_ref[...] = (jnp.where(pltpu.prng_random_bits(x_ref.shape) == 0, 1.0, 0.5) * ")),
        "trace",
        "random bits",
        "fresh: tells the judge's machine from a TPU",
    ),
    "remembers by shape": Cheat(
        "double",
        top(first(COPY, "if x.shape in SEEN: return SEEN[x.shape]\n    SEEN[x.shape] = x * 2.0"), "SEEN = {}"),
        "trace",
        "",
        "B3",
    ),
    "only in interpret mode": Cheat(
        "double",
        patched(COPY, ("x_ref[...] * 2.0", "jnp.sort(x_ref[...], axis=0) * 0 + x_ref[...] * 2.0")),
        "trace",
        "",
        "K7",
    ),
}
TEXTS = {
    "reads the environment": ("import os", "imports os", "C9 D2"),
    "a clock of its own": ("import time", "imports time", "C1"),
    "opens a file": ("RESULT = open('/tmp/result.json', 'w')", "open", "C9 C12"),
    "replaces allclose": ("import numpy as np\nnp.allclose = lambda *a, **k: True", "allclose", "C3"),
    "replaces jit": ("jax.jit = lambda f, **k: f", "jit", "C4 E14"),
    "another precision for everyone": (
        "jax.config.update('jax_default_matmul_precision', 'bfloat16')",
        "config",
        "C18",
    ),
    "remembers results": ("@functools.lru_cache\ndef remembered(key): pass", "lru_cache", "B3 B6"),
    "reads the caller's frames": ("FRAME = (lambda: 0).__code__", "__code__", "C22"),
    "native code": ("import ctypes", "imports ctypes", "B12"),
    "a foreign call": ("CALL = jax.ffi.ffi_call", "ffi", "B12"),
    "the judge's own modules": ("import maxkernel_nb", "imports maxkernel_nb", "C12 C13"),
    "the collector": ("import gc", "imports gc", "B1"),
    "a callback": ("CALL = jax.pure_callback", "pure_callback", "E5"),
}
SCREENED = {
    name: Cheat("double", top(COPY, "import jax\n" + line if "jax." in line else line), "screen", words, kinds)
    for name, (line, words, kinds) in TEXTS.items()
}
# What the sandbox alone must hold when the screen looks away: lines run at import, and a word of the sentence.
ATTACKS = {
    "endless loop": ("while True: pass", "did not finish"),
    "60 GB": ("x = bytearray(60 << 30)", "memory"),
    "fork storm": ("while True: os.fork()", "os.fork"),
    "segfault": ("ctypes.string_at(8)", "SIGSEGV"),
    "ends its process": ("os._exit(0)", "exit code 0"),
    "signal handler": ("signal.signal(signal.SIGTERM, lambda *a: None)", "signal"),
    "looks for keys": (
        "raise RuntimeError(','.join(k for k in os.environ if 'KEY' in k) or 'no keys here')",
        "no keys here",
    ),
    "writes outside": ("open('/tmp/maxkernel-was-here', 'w')", "may not touch"),
    "socket": ("socket.socket()", "socket"),
    "forged results": ("os.write(1, b'CORRECT 9.9x'); os.write(2, b'{}'); raise RuntimeError('printed')", "printed"),
    "1 GB of output": ("for _ in range(1 << 10): sys.stderr.write('x' * (1 << 20))", ""),
    "replaces allclose": ("import numpy\nnumpy.allclose = lambda *a, **k: True", "numpy.allclose"),
    "replaces time": ("time.perf_counter = lambda: 0.0", "time.perf_counter"),
    "replaces jit": ("import jax\njax.jit = lambda f, **k: f", "jax.jit"),
    "leaves a thread": ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
    "leaves a child": ("subprocess.Popen(['sleep', '1000'])", "subprocess"),
}
WRONG = {**ANSWERS, **PRECISION, **MEMORY, **SIZES, **FAR_SIZES, **PROGRAMS, **SCREENED}


def attack(name):
    lines, _ = ATTACKS[name]
    return f"import os, sys, time, socket, subprocess, threading, signal, ctypes\n{lines}\n" + COPY

"""Honest kernels of any summation order pass; kernels that leave something out do not. Both directions, many draws."""

import ml_dtypes
import numpy as np
import pytest

from maxkernel_nb.evaluate.numerics import compare
from maxkernel_nb.task import Tolerance

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [BF16, np.dtype(np.float32)]
SEEDS = range(8)


class Gemm:
    """x w + b: the oracle in float64, the reference as XLA computes it (float32 sums, one rounding)."""

    def __init__(self, seed, dtype, m=64, k=512, n=96):
        rng = np.random.default_rng(seed)
        self.dtype = dtype
        self.x, self.w = (rng.standard_normal(s).astype(np.float32).astype(dtype) for s in ((m, k), (k, n)))
        self.b = rng.standard_normal(n).astype(np.float32).astype(dtype)
        wide = [a.astype(np.float64) for a in (self.x, self.w, self.b)]
        self.oracle = wide[0] @ wide[1] + wide[2]
        self.f32 = [a.astype(np.float32) for a in (self.x, self.w, self.b)]
        self.own = self.of(self.f32[0] @ self.f32[1] + self.f32[2])

    def of(self, result):
        return np.asarray(result).astype(self.dtype)

    def verdict(self, result, tolerance=None):
        return compare([self.of(result)], [self.own], [self.oracle], tolerance or Tolerance())

    def blocks(self, size):
        x, w, _ = self.f32
        return [x[:, i : i + size] @ w[i : i + size] for i in range(0, x.shape[1], size)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_honest_orders_of_summation_pass(seed, dtype):
    g = Gemm(seed, dtype)
    x, w, b = g.f32
    order = np.random.default_rng(seed).permutation(x.shape[1])
    one_by_one = np.zeros(g.own.shape, np.float32)
    for i in range(x.shape[1]):
        one_by_one += x[:, i : i + 1] * w[i : i + 1]
    honest = {
        "blocks of k": sum(g.blocks(64)) + b,
        "backwards": sum(reversed(g.blocks(32))) + b,
        "split k": sum(g.blocks(16)[::2]) + sum(g.blocks(16)[1::2]) + b,
        "permuted": x[:, order] @ w[order] + b,
        "one by one": one_by_one + b,
        "bias first": sum(g.blocks(128), b),
    }
    results = {name: g.verdict(y) for name, y in honest.items()}
    assert not {name: r.sentence for name, r in results.items() if not r.passed}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_work_left_out_fails(seed, dtype):
    g = Gemm(seed, dtype)
    x, w, b = g.f32
    skipped = g.own.astype(np.float32)
    skipped[-1] = 0
    element = g.own.astype(np.float32)
    element[3, 5] *= 1.1 if abs(element[3, 5]) > 5 else -3
    dishonest = {
        "bias dropped": x @ w,
        "zeros": np.zeros(g.own.shape),
        "tail of k skipped": x[:, :-8] @ w[:-8] + b,
        "last row not written": skipped,
        "transposed block": np.concatenate([g.own[:32, ::-1], g.own[32:]]),
        "one element": element,
        "scaled by one percent": (x @ w + b) * 1.02,
    }
    results = {name: g.verdict(y) for name, y in dishonest.items()}
    assert not [name for name, r in results.items() if r.passed]


@pytest.mark.parametrize("seed", SEEDS)
def test_bfloat16_accumulation_over_long_k_fails(seed):
    g = Gemm(seed, BF16, k=4096)
    total = np.zeros(g.own.shape, BF16)
    for block in g.blocks(64):
        total = (total.astype(np.float32) + block).astype(BF16)
    assert not g.verdict(total.astype(np.float32) + g.f32[2]).passed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_float32_product_computed_in_bfloat16_fails(seed):
    g = Gemm(seed, np.dtype(np.float32))
    x, w, b = (a.astype(BF16).astype(np.float32) for a in g.f32)
    assert not g.verdict(x @ w + b).passed


class Attention:
    def __init__(self, seed, n=256, d=64):
        rng = np.random.default_rng(seed)
        draws = [rng.standard_normal((n, d)).astype(np.float32).astype(BF16) for _ in range(3)]
        self.n, self.d = n, d
        self.f32 = [a.astype(np.float32) for a in draws]
        self.oracle = self.plain(*(a.astype(np.float64) for a in draws), round=lambda p: p)
        self.own = self.plain(*self.f32, round=lambda p: p.astype(BF16).astype(np.float32)).astype(BF16)

    def plain(self, q, k, v, round, diagonal=0):
        s = np.where(np.tri(self.n, k=diagonal), q @ k.T / np.sqrt(self.d), -1e30)
        e = np.exp(s - s.max(1, keepdims=True))
        return round(e / e.sum(1, keepdims=True)) @ v

    def online(self, block):
        q, k, v = self.f32
        m, total, acc = np.full((self.n, 1), -1e30, np.float32), np.zeros((self.n, 1), np.float32), 0.0
        for j in range(0, self.n, block):
            s = q @ k[j : j + block].T / np.float32(np.sqrt(self.d))
            s = np.where(np.arange(self.n)[:, None] >= np.arange(j, j + block), s, np.float32(-1e30))
            new = np.maximum(m, s.max(1, keepdims=True))
            p, scale = np.exp(s - new), np.exp(m - new)
            total, m = total * scale + p.sum(1, keepdims=True), new
            acc = acc * scale + p.astype(BF16).astype(np.float32) @ v[j : j + block]
        return acc / total

    def verdict(self, result):
        return compare([np.asarray(result).astype(BF16)], [self.own], [self.oracle], Tolerance())


@pytest.mark.parametrize("seed", SEEDS)
def test_online_softmax_passes_and_wrong_masks_fail(seed):
    a = Attention(seed)
    for block in (32, 64, 128):
        assert a.verdict(a.online(block)).passed
    q, k, v = a.f32
    for diagonal in (-1, 1):
        with np.errstate(invalid="ignore"):
            assert not a.verdict(a.plain(q, k, v, lambda p: p, diagonal)).passed
    assert not a.verdict(a.plain(q, k, v, lambda p: p, a.n)).passed  # no mask at all


def test_structure_comes_before_values():
    a = np.zeros((2, 3), np.float32)
    assert compare([], [a], [a], Tolerance()).kind == "structure"
    assert "float64" in compare([a.astype(np.float64)], [a], [a], Tolerance()).sentence
    assert compare([a.T], [a], [a], Tolerance()).kind == "structure"
    assert compare([a[:0]], [a[:0]], [a[:0]], Tolerance()).passed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_values_are_compared_by_position(bad):
    good = np.linspace(-1, 1, 128, dtype=np.float32)
    wrong = good.copy()
    wrong[7] = bad
    result = compare([wrong], [good], [good.astype(np.float64)], Tolerance(atol=1e9))
    assert (result.kind, result.index) == ("non-finite", (7,))
    assert compare([wrong], [wrong], [wrong.astype(np.float64)], Tolerance()).passed
    assert compare([good], [wrong], [wrong.astype(np.float64)], Tolerance()).kind == "non-finite"


def test_where_the_reference_overflows_its_dtype_either_answer_is_right():
    oracle = np.linspace(-1, 1, 128)
    oracle[3] = 1e39
    with np.errstate(over="ignore"):
        own = oracle.astype(np.float32)
    assert np.isinf(own[3])
    assert compare([own], [own], [oracle], Tolerance()).passed
    everywhere = np.full(128, 1e39)
    with np.errstate(over="ignore"):
        own = everywhere.astype(np.float32)
    nothing_to_say = compare([own], [own], [everywhere], Tolerance())
    assert nothing_to_say.kind == "contested" and "the task, not the kernel" in nothing_to_say.sentence


def test_an_output_where_the_reference_overflows_hides_no_wrong_one():
    huge, good = np.full(128, 1e39), np.linspace(-1, 1, 128)
    with np.errstate(over="ignore"):
        over, own = huge.astype(np.float32), good.astype(np.float32)
    oracles = [huge, good]
    assert compare([over, own + 1], [over, own], oracles, Tolerance()).kind == "values"
    assert compare([over, own], [over, own], oracles, Tolerance()).kind == "contested"


def test_integers_are_exact_and_ties_the_reference_itself_breaks_are_not():
    own = np.arange(128, dtype=np.int32)
    off = own.copy()
    off[100] += 1
    assert compare([own], [own], [own.astype(np.float64)], Tolerance()).passed
    assert compare([off], [own], [own.astype(np.float64)], Tolerance()).index == (100,)
    flags = own % 2 == 0
    assert not compare([~flags], [flags], [flags], Tolerance()).passed


def test_the_worst_element_is_named_with_both_values():
    g = Gemm(0, BF16)
    y = g.own.astype(np.float32)
    y[10, 20] = 1000
    result = g.verdict(y)
    assert result.index == (10, 20) and result.got == 1000 and result.ratio > 100
    assert "[10, 20]" in result.sentence and "1000" in result.sentence


def test_a_users_tolerance_loosens_and_never_tightens():
    g = Gemm(0, BF16)
    x, w, _ = g.f32
    assert g.verdict(x @ w, Tolerance(atol=100.0)).passed
    assert g.verdict(sum(g.blocks(64)) + g.f32[2], Tolerance(atol=0.0, rtol=1e-12)).passed


def test_a_row_whose_shared_rounding_fell_luckily_small_does_not_refuse_an_honest_one():
    """Each row of a norm is off by one draw of noise (its mean's rounding); in one row the reference was lucky."""
    rng = np.random.default_rng(0)
    oracle = rng.standard_normal((64, 128))
    shift = 0.01 * rng.standard_normal((64, 1))
    own, other = oracle + shift, oracle - shift
    own[3] = oracle[3] + 1e-5
    arrays = [[a.astype(np.float32)] for a in (other, own)]
    assert compare(*arrays, [oracle], Tolerance()).passed
    wrong = other.copy()
    wrong[3] = oracle[3] + 0.2
    assert not compare([wrong.astype(np.float32)], arrays[1], [oracle], Tolerance()).passed

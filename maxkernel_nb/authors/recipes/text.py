"""Putting Python source together: wrapped comments, indentation, the helpers every rendered kernel shares."""

from __future__ import annotations

import re
import textwrap

BLOCK_HELPER = '''
def _block(size, limit, unit):
    """At most ``limit``, in whole ``unit``s, and small enough for two steps, so that copies overlap with work."""
    if size <= unit:
        return size
    half = -(-size // 2)
    return min(limit, -(-half // unit) * unit)
'''


# lax.erf has no TPU lowering in Pallas before jax 0.8, and erfc has none at all.
_ERF = '''
def _erf(x):
    """Abramowitz and Stegun 7.1.26: within 1.5e-7, from operations that every Pallas version lowers."""
    t = 1.0 / (1.0 + 0.3275911 * jnp.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return jnp.sign(x) * (1.0 - series * jnp.exp(-x * x))
'''


def erf_helper(text: str) -> list[str]:
    """The helper's source, if the rendered text calls it."""
    return [_ERF] if "_erf(" in text else []


_RUN_SUM = '''
def _run_sum(x, size):
    """The sum of each run of ``size`` neighbouring columns, held in every one of them.

    Two products with zeros and ones: the MXU adds, where moving values between lanes would cost more than the main
    product.
    """
    columns = x.shape[1]
    shape = (columns, columns // size)
    member = jax.lax.broadcasted_iota(jnp.int32, shape, 0) // size == jax.lax.broadcasted_iota(jnp.int32, shape, 1)
    member = member.astype(jnp.float32).astype(jnp.bfloat16)
    sums = _split_dot(x, member, (1, 0))
    return _split_dot(sums, member, (1, 1))
'''
_SPLIT_DOT = '''
def _split_dot(x, member, axes):
    """``x`` times zeros and ones, ``x`` in {terms} bfloat16 parts: {bits} of the 24 bits of each value count."""
    total = 0.0
    for _ in range({terms}):
        part = x.astype(jnp.bfloat16)
        dims = (((axes[0],), (axes[1],)), ((), ()))
        total += jax.lax.dot_general(part, member, dims, preferred_element_type=jnp.float32)
        x = x - part.astype(jnp.float32)
    return total
'''
_RUN = '''
def _run_{name}(x, size):
    """The {what} of each run of ``size`` neighbouring columns, held in every one of them.

    Runs of a power of two are combined with partners 1, 2, 4 ... columns apart, others with each neighbour in turn.
    """
    column, width = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1), x.shape[1]
    if size & (size - 1):
        place, result = column % size, x
        for step in range(1, size):
            before = jnp.where(place >= step, pltpu.roll(x, step, 1), {neutral})
            after = jnp.where(place < size - step, pltpu.roll(x, width - step, 1), {neutral})
            result = {three}
        return result
    for step in (2**i for i in range(size.bit_length() - 1)):
        partner = jnp.where(column & step != 0, pltpu.roll(x, step, 1), pltpu.roll(x, width - step, 1))
        x = {two}
    return x
'''
_RUNS = {
    "max": {
        "what": "largest", "neutral": "-jnp.inf", "two": "jnp.maximum(x, partner)",
        "three": "jnp.maximum(result, jnp.maximum(before, after))",
    },
    "min": {
        "what": "smallest", "neutral": "jnp.inf", "two": "jnp.minimum(x, partner)",
        "three": "jnp.minimum(result, jnp.minimum(before, after))",
    },
}  # fmt: skip


def run_helpers(text: str, terms: int = 2) -> list[str]:
    """The helpers for reductions over runs of columns that the rendered text calls.

    ``terms``: 2 where inputs are bfloat16 (16 bits of a value count), 3 for float32.
    """
    sums = [_SPLIT_DOT.format(terms=terms, bits=min(24, 8 * terms)), _RUN_SUM] if "_run_sum(" in text else []
    return sums + [_RUN.format(name=name, **words) for name, words in _RUNS.items() if f"_run_{name}(" in text]


def comment(*paragraphs: str) -> str:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(paragraph, 96, break_on_hyphens=False) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def indent(lines: list[str] | str, depth: int = 1) -> str:
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return textwrap.indent(text, "    " * depth)


def vmem_line(limit: int) -> str:
    """``limit``: bytes, whole MiB."""
    return f"VMEM_LIMIT = {limit // 2**20} * 2**20  # bytes: blocks, each twice, scratch, and room for the compiler"


def joined(items: list[str]) -> str:
    """A tuple's text: ``a, b`` or ``a,``."""
    return ", ".join(items) + ("," if len(items) == 1 else "")


def fold_raises(text: str, width: int = 112) -> str:
    """Long ``raise X(f"...")`` lines over two strings."""
    return "\n".join(_folded_raise(line) if len(line) > width else line for line in text.split("\n"))


def _folded_raise(line: str) -> str:
    found = re.fullmatch(r'( *)raise (\w+)\(f"(.*)"\)', line)
    if found is None:
        return line
    margin, kind, message = found.groups()
    spaces = [i for i, c in enumerate(message) if c == " " and message[:i].count("{") == message[:i].count("}")]
    cut = min(spaces, key=lambda i: abs(i - len(message) // 2)) + 1
    return "\n".join([
        f"{margin}raise {kind}(", f'{margin}    f"{message[:cut]}"', f'{margin}    f"{message[cut:]}"', f"{margin})",
    ])


def fresh_name(stem: str, taken: set[str]) -> str:
    """``stem``, numbered where it is taken already; it is taken from now on."""
    name, count = stem, 1
    while name in taken:
        count += 1
        name = f"{stem}{count}"
    taken.add(name)
    return name

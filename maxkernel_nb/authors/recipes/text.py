"""Putting Python source together: wrapped comments, indentation, the helpers every rendered kernel shares."""

from __future__ import annotations

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


def comment(*paragraphs: str) -> str:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(paragraph, 96, break_on_hyphens=False) or [""]
    return "\n".join(f"# {line}".rstrip() for line in lines)


def indent(lines: list[str] | str, depth: int = 1) -> str:
    text = lines if isinstance(lines, str) else "\n".join(lines)
    return textwrap.indent(text, "    " * depth)


def joined(items: list[str]) -> str:
    """A tuple's text: ``a, b`` or ``a,``."""
    return ", ".join(items) + ("," if len(items) == 1 else "")

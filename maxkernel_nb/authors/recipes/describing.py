"""An expression in a few words, for the first line of a kernel."""

from __future__ import annotations

from maxkernel_nb.authors.recipes.expressions import Expression

_SAID = {
    "reduce_sum": "the sum of each row", "reduce_max": "the largest of each row",
    "reduce_min": "the smallest of each row",
    "down_sum": "the sum of each column", "down_max": "the largest of each column",
    "down_min": "the smallest of each column", "run_sum": "sums over runs of columns",
    "run_max": "the largest of runs of columns", "run_min": "the smallest of runs of columns",
    "logistic": "sigmoid", "rsqrt": "a reciprocal root", "sqrt": "a root", "max": "a maximum", "min": "a minimum",
    "add": "sums", "sub": "differences", "mul": "products", "div": "quotients", "select": "a choice", "neg": "a sign",
    "integer_pow": "powers", "square": "squares", "silu": "SiLU", "gelu": "GELU", "erfc": "erf", "cast": "",
}  # fmt: skip


def said(expression: Expression, most: int = 7) -> str:
    """``sums, GELU and the largest of each row``: its operations in order, each once, at most ``most``."""
    words = list(dict.fromkeys(_SAID.get(step.op, step.op.replace("_", " ")) for step in expression.steps))
    words = [word for word in words if word]
    if len(words) > most:
        words = [*words[: most - 1], "more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)

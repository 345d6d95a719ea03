"""Block expressions as readable ``jnp`` code: what is used once goes inline while the line stays short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from maxkernel_nb.authors.recipes.expressions import Expression, Step
from maxkernel_nb.authors.recipes.text import fresh_name

INFIX = {
    "add": ("+", 5), "sub": ("-", 5), "mul": ("*", 6), "div": ("/", 6), "and": ("&", 4), "or": ("|", 3),
    "eq": ("==", 2), "ne": ("!=", 2), "lt": ("<", 2), "le": ("<=", 2), "gt": (">", 2), "ge": (">=", 2),
}
# Functions Mosaic lowers under the same name; the others are spelled out in _special.
CALLS = {
    "exp": "jnp.exp", "exp2": "jnp.exp2", "log": "jnp.log", "log1p": "jnp.log1p", "tanh": "jnp.tanh",
    "logistic": "jax.nn.sigmoid", "sqrt": "jnp.sqrt", "rsqrt": "lax.rsqrt", "abs": "jnp.abs", "sign": "jnp.sign",
    "floor": "jnp.floor", "ceil": "jnp.ceil", "sin": "jnp.sin", "cos": "jnp.cos", "square": "jnp.square",
    "erf": "_erf", "max": "jnp.maximum", "min": "jnp.minimum", "pow": "jnp.power", "select": "jnp.where",
    "silu": "jax.nn.silu", "gelu": "jax.nn.gelu",
}
# What a value is called after the operation that made it, where nothing better is known.
OPERATIONS = {
    "mul": "scaled", "add": "summed", "sub": "difference", "div": "quotient", "sin": "sine", "cos": "cosine",
    "concatenate": "combined", "slice": "piece", "pad": "padded", "sqrt": "root",
    "rsqrt": "inverse_root", "square": "squares", "pow": "powers", "cumsum": "running",
}
_NAMES = {
    **OPERATIONS,
    "down_sum": "sum_down", "down_max": "largest", "down_min": "smallest",
    "run_sum": "run_sum", "run_max": "run_max", "run_min": "run_min",
    "dot": "product", "reduce_sum": "row_sum", "reduce_max": "row_max", "reduce_min": "row_min", "exp": "weights",
    "select": "chosen", "silu": "activated", "gelu": "activated", "tanh": "bent", "logistic": "gate", "max": "clipped",
}
_ATOM = 9
LINE = 76


class Lines:
    """Renders one expression. ``names`` maps leaves (``@i``) and recipe names (``acc``) to source text; steps of
    ``named`` get a line of their own."""

    def __init__(
        self, expression: Expression, names: Mapping[str, str], taken: set[str] | None = None,
        named: Iterable[str] = (),
    ) -> None:
        self.expression, self.named = expression, frozenset(named)
        self.text: dict[str, tuple[str, int]] = {k: (v, _ATOM if v.isidentifier() else 0) for k, v in names.items()}
        for i, constant in enumerate(expression.constants):
            plain = constant.text.replace(".", "").replace("_", "").replace("e-", "").isalnum()
            self.text[f"#{i}"] = (constant.text, _ATOM if plain else 6 if constant.text.startswith("-") else 0)
        self.taken = set(taken or ()) | {v for v in names.values() if v.isidentifier()}
        self.lines: list[str] = []

    def render(self) -> tuple[list[str], str]:
        """Assignments, one a line, and the text of the result."""
        for i, step in enumerate(self.expression.steps):
            text, level = self.step(step)
            argument = f"%{i}"
            if argument in self.named or self.expression.uses(argument) > 1 or len(text) > LINE:
                name = self.fresh(_NAMES.get(step.op, "y"))
                self.lines.append(f"{name} = {text}")
                text, level = name, _ATOM
            self.text[argument] = (text, level)
        return self.lines, self.text[self.expression.result][0]

    def fresh(self, stem: str) -> str:
        return fresh_name(stem, self.taken)

    def step(self, step: Step) -> tuple[str, int]:
        special = self.special(step)
        if special is not None:
            return special
        if step.op in INFIX:
            sign, level = INFIX[step.op]
            left = self.wrapped(step.args[0], level)
            right = self.wrapped(step.args[1], level + 1)
            return f"{left} {sign} {right}", level
        return f"{CALLS[step.op]}({', '.join(self.text[a][0] for a in step.args)})", _ATOM

    def special(self, step: Step) -> tuple[str, int] | None:
        first = self.text[step.args[0]][0]
        match step.op:
            case "reduce_sum" | "reduce_max" | "reduce_min":
                return f"jnp.{step.op[7:]}({first}, axis=1, keepdims=True)", _ATOM
            case "down_sum" | "down_max" | "down_min":
                return f"jnp.{step.op[5:]}({first}, axis=0, keepdims=True)", _ATOM
            case "run_sum" | "run_max" | "run_min":
                return f"_{step.op}({first}, {self.text[step.args[1]][0]})", _ATOM
            case "dot":
                if not first.isidentifier():
                    self.lines.append(f"{(rows := self.fresh('rows'))} = {first}")
                    first = rows
                weight = self.text[step.args[1]][0]
                return f"jnp.dot({first}.astype({weight}.dtype), {weight}, preferred_element_type=jnp.float32)", _ATOM
            case "neg":
                return f"-{self.wrapped(step.args[0], 7)}", 6
            case "not":
                return f"jnp.logical_not({first})", _ATOM
            case "is_finite":
                return f"jnp.abs({first}) < jnp.inf", 2
            case "integer_pow":
                return f"{self.wrapped(step.args[0], 8)}**{step.power}", 7
            case "cast":
                return f"jnp.where({first}, 1.0, 0.0)", _ATOM
            case "erfc":
                return f"1.0 - _erf({first})", 5
            case "expm1":  # Mosaic has no expm1; this form keeps its accuracy near zero
                return f"jnp.tanh(0.5 * {self.wrapped(step.args[0], 7)}) * (jnp.exp({first}) + 1.0)", 6
        return None

    def wrapped(self, argument: str, level: int) -> str:
        text, own = self.text[argument]
        return text if own >= level else f"({text})"

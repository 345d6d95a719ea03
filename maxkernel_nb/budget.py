"""Caps, and the check before every spend."""

from __future__ import annotations

import re

from maxkernel_nb.errors import BudgetExceeded, UsageError
from maxkernel_nb.events import Spend
from maxkernel_nb.values import Value

_TIME = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


class Budget(Value):
    """``None`` is no cap. Defaults bound a run that nobody watches: 40 candidates judged, 30 minutes, 5 dollars."""

    judged: int | None = 40
    wall_seconds: float | None = 1800.0
    dollars: float | None = 5.0
    tokens: int | None = None
    calls: int | None = None
    chip_seconds: float | None = 600.0

    def check_work(self, spend: Spend) -> None:
        """As ``check``, for work that asks no model: what was paid for is still judged when the money is gone."""
        self.model_copy(update={"dollars": None, "tokens": None, "calls": None}).check(spend)

    def check(self, spend: Spend) -> None:
        """Raises ``BudgetExceeded`` naming the first cap that is used up."""
        used = {
            "judged": spend.judged, "wall_seconds": spend.wall_seconds, "dollars": spend.dollars,
            "tokens": spend.input_tokens + spend.output_tokens, "chip_seconds": spend.chip_seconds,
            "calls": spend.calls,
        }
        for name, amount in used.items():
            cap = getattr(self, name)
            if cap is not None and amount >= cap:
                words = {"judged": "candidates judged"}.get(name, name.replace("_", " "))
                raise BudgetExceeded(f"The budget of {cap:g} {words} is used up; raise it with --budget and resume.")

    def judged_left(self, spend: Spend) -> int | None:
        return None if self.judged is None else max(0, self.judged - spend.judged)

    def chip_seconds_left(self, spend: Spend) -> float | None:
        return None if self.chip_seconds is None else max(0.0, self.chip_seconds - spend.chip_seconds)


def parse_budget(text: str) -> Budget:
    """``"20 candidates, 10m, $2, 200k tokens"`` in any order; what is not named keeps its default.

    Raises ``UsageError`` naming the part that cannot be read.
    """
    caps: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, amount = _parse_part(part)
        caps[name] = amount
    return Budget.model_validate({
        name: int(v) if name in ("judged", "tokens", "calls") else v for name, v in caps.items()
    })


def _parse_part(part: str) -> tuple[str, float]:
    if match := re.fullmatch(r"\$\s*(\d+(?:\.\d+)?)", part):
        return "dollars", float(match[1])
    if match := re.fullmatch(r"(\d+)\s*(?:candidates?|kernels?)?", part):
        return "judged", float(match[1])
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h)", part):
        return "wall_seconds", float(match[1]) * _TIME[match[2]]
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(k|M)?\s*tokens?", part):
        return "tokens", float(match[1]) * {"k": 1e3, "M": 1e6, None: 1}[match[2]]
    if match := re.fullmatch(r"(\d+)\s*calls?", part):
        return "calls", float(match[1])
    if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*chip\s*s(?:econds)?", part):
        return "chip_seconds", float(match[1])
    raise UsageError(
        f"--budget cannot read {part!r}; write for example '20 candidates, 10m, $2, 200k tokens, 60 chip s'."
    )

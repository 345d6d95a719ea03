"""``%config MaxKernel.chip = "v5e"`` and ``c.MaxKernel.chip`` in ipython_config.py."""

from __future__ import annotations

from typing import Any

from traitlets import Any as AnyTrait
from traitlets import Float, TraitError, TraitType, Unicode, validate
from traitlets.config import Configurable

from maxkernel_nb.config import checked
from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import SETTINGS, Option


def _trait(option: Option) -> TraitType[Any, Any]:
    kind = {str: Unicode, float: Float}.get(option.type, AnyTrait)
    return kind(default_value=None, allow_none=True, help=f"{option.help} (default: {option.default_text})").tag(
        config=True
    )


class _Settings(Configurable):
    """Settings of %%maxkernel for this session; None leaves a setting to the environment and pyproject.toml."""

    @validate(*(option.name for option in SETTINGS))
    def _check(self, proposal: Any) -> Any:
        if proposal["value"] is None:
            return None
        option = next(o for o in SETTINGS if o.name == proposal["trait"].name)
        try:
            return checked(option, proposal["value"], f"%config MaxKernel.{option.name}")
        except UsageError as error:
            raise TraitError(str(error)) from None  # traitlets keeps the old value for this error only

    def chosen(self) -> dict[str, Any]:
        """The traits that are set."""
        return {o.name: v for o in SETTINGS if (v := getattr(self, o.name)) is not None}


# One trait a setting, made from the option table; %config needs exactly this class name.
MaxKernel = type(
    "MaxKernel",
    (_Settings,),
    {"__doc__": _Settings.__doc__, "__module__": __name__, **{o.name: _trait(o) for o in SETTINGS}},
)

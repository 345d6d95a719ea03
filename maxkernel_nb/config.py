"""Settings and where each came from: default < front end < pyproject.toml < environment < ``%config`` < cell option."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxkernel_nb.errors import UsageError
from maxkernel_nb.options import SETTINGS, Option, nearest

ENVIRONMENT_PREFIX = "MAXKERNEL_"
TABLE = "tool.maxkernel"


@dataclass(frozen=True)
class Setting:
    """``value`` None means the default that ``Option.default_text`` describes. ``origin`` is for a person to read."""

    option: Option
    value: Any
    origin: str


def variable(option: Option) -> str:
    """The environment variable that sets an option."""
    return ENVIRONMENT_PREFIX + option.name.upper()


def resolve(
    cell: Mapping[str, Any] | None = None,
    traits: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    front: Mapping[str, Any] | None = None,
) -> dict[str, Setting]:
    """Every setting by name. ``cell``, ``traits`` and ``front`` hold set values only (None is 'not set').

    Raises ``UsageError`` naming the layer, the value and the nearest valid one.
    """
    settings = {o.name: Setting(o, o.default, "default") for o in SETTINGS}
    layers = (
        ((o, (front or {}).get(o.name), f"JupyterLab setting {o.name}") for o in SETTINGS),
        _from_pyproject(Path.cwd() if folder is None else folder),
        _from_environment(os.environ if environ is None else environ),
        ((o, (traits or {}).get(o.name), f"%config MaxKernel.{o.name}") for o in SETTINGS),
        ((o, (cell or {}).get(o.name), f"cell option {o.flag}") for o in SETTINGS),
    )
    for layer in layers:
        for option, value, origin in layer:
            if value is not None:
                settings[option.name] = Setting(option, checked(option, value, origin), origin)
    return settings


def values(settings: Mapping[str, Setting]) -> dict[str, Any]:
    """The set values by the keyword they have in ``maxkernel_nb.optimize``; those of a group in one dict."""
    found = [s for s in settings.values() if s.value is not None]
    plain = {s.option.api_keyword: s.value for s in found if not s.option.group}
    for setting in found:
        if setting.option.group:
            plain.setdefault(setting.option.group, {})[setting.option.field] = setting.value
    return plain


def checked(option: Option, value: Any, origin: str) -> Any:
    """``value`` in the option's type. Raises ``UsageError`` when it is not one of the choices or not a number."""
    value = next((c for c in option.choices if c == str(value).lower()), value)
    if option.choices and value not in option.choices:
        raise UsageError(
            f"{origin} got {value!r}, which is not a known {option.name}; did you mean "
            f"{nearest(str(value), option.choices)!r}? Choose one of: {', '.join(option.choices)}."
        )
    if option.type is float:
        return _number(value, origin)
    if option.type is int:
        return _whole(value, origin)
    if option.type is bool:
        return _switch(value, origin)
    return value if isinstance(value, option.type) else option.type(value)


def _number(value: Any, origin: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise UsageError(f"{origin} got {value!r}; pass a number that is not negative, such as 0.01.")
    return number


def _whole(value: Any, origin: str) -> int:
    text = str(value).strip()
    if not text.isdecimal():
        raise UsageError(f"{origin} got {value!r}; pass a whole number that is not negative, such as 4.")
    return int(text)


def _switch(value: Any, origin: str) -> bool:
    known = {**dict.fromkeys(("on", "true", "yes", "1"), True), **dict.fromkeys(("off", "false", "no", "0"), False)}
    found = known.get(str(value).strip().lower())
    if found is None:
        raise UsageError(f"{origin} got {value!r}; pass on or off.")
    return found


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[Option, Any, str]]:
    for option in SETTINGS:
        yield option, environ.get(variable(option)) or None, f"environment {variable(option)}"


def _from_pyproject(folder: Path) -> Iterator[tuple[Option, Any, str]]:
    path = find_pyproject(folder)
    table = _read_table(path) if path else {}
    known = {o.name: o for o in SETTINGS}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(
                f"[{TABLE}] in {path} has no setting {key!r}; did you mean {nearest(name, known)!r}? "
                f"Known settings: {', '.join(known)}."
            )
        yield known[name], value, f"pyproject.toml [{TABLE}] {key}"


def find_pyproject(folder: Path) -> Path | None:
    """The nearest pyproject.toml in ``folder`` or above it."""
    return next((p for parent in (folder, *folder.parents) if (p := parent / "pyproject.toml").is_file()), None)


def _read_table(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read ({error}); put it right or move it away.") from error
    tool = data.get("tool", {})
    table = tool.get("maxkernel", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"[{TABLE}] in {path} must be a table of settings, not {table!r}.")
    return table

"""Where an API key may come from, and how it is kept out of everything else.

Looked for in order: the environment, Colab's ``userdata``, the system keyring. Held in memory only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys

from maxkernel_nb.authors.model_errors import NoKey

VARIABLE = "ANTHROPIC_API_KEY"
KEYRING_SERVICE = "maxkernel-nb"
_HIDDEN = "[key removed]"
_LOOKS_LIKE_A_KEY = re.compile(r"sk-ant-[\w-]{8,}")


class Key:
    """An API key that does not show itself: its repr and str name only where it came from."""

    __slots__ = ("_value", "origin")

    def __init__(self, value: str, origin: str) -> None:
        self._value = value
        self.origin = origin

    def reveal(self) -> str:
        """The secret itself, for the client's constructor only."""
        return self._value

    def __repr__(self) -> str:
        return f"<key from {self.origin}>"

    def __reduce__(self) -> str:
        raise TypeError("A key is never written anywhere.")


def find_key() -> Key | None:
    """The first key found. Asks Colab and the keyring only where they are present; never prompts."""
    for look in (_from_environment, _from_colab, _from_keyring):
        key = look()
        if key is not None:
            return key
    return None


def need_key() -> Key:
    """Raises ``NoKey`` saying where a key would be found."""
    key = find_key()
    if key is None:
        raise NoKey(
            f"There is no Claude API key: set {VARIABLE}, add it to Colab's secrets, or store it with "
            f"`keyring set {KEYRING_SERVICE} {VARIABLE}`; or use --author recipes, which needs none."
        )
    return key


def _from_environment() -> Key | None:
    value = os.environ.get(VARIABLE, "").strip()
    return Key(value, f"environment variable {VARIABLE}") if value else None


def _from_colab() -> Key | None:
    if "google.colab" not in sys.modules:
        return None
    from google.colab import userdata

    try:
        value = userdata.get(VARIABLE)
    except (userdata.SecretNotFoundError, userdata.NotebookAccessError):
        return None
    return Key(value.strip(), "Colab's secrets") if value and value.strip() else None


def _from_keyring() -> Key | None:
    if importlib.util.find_spec("keyring") is None:
        return None
    import keyring
    from keyring.errors import KeyringError

    try:
        value = keyring.get_password(KEYRING_SERVICE, VARIABLE)
    except KeyringError:
        return None
    return Key(value.strip(), "the system keyring") if value and value.strip() else None


class Redactor:
    """Takes secrets out of any text before it is sent, journaled, logged or shown."""

    def __init__(self, *keys: Key | None) -> None:
        self._secrets = tuple(k.reveal() for k in keys if k is not None and len(k.reveal()) >= 6)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _HIDDEN)
        return _LOOKS_LIKE_A_KEY.sub(_HIDDEN, text)

    def data(self, value: object) -> object:
        """The same for JSON-like data, keys of dicts included."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, dict):
            return {self(str(k)): self.data(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.data(v) for v in value]
        return value

"""What an error of the SDK means: may it pass, how long to wait, and one sentence without secrets."""

from __future__ import annotations

import email.utils
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PASSING_STATUS = {408, 409, 429, 529}
_PASSING_TYPES = {"overloaded_error", "api_error", "rate_limit_error", "timeout_error"}
_SENTENCES = {
    "authentication_error": "Claude refused the API key; check the key and resume",
    "permission_error": "this API key may not use {model}; choose another model or ask for access",
    "billing_error": "the Claude account has no credit left; add credit and resume",
    "not_found_error": "Claude knows no model {model!r}; pass --claude-model with one your account has, to resume too",
    "request_too_large": "the request to Claude was too large",
    "rate_limit_error": "Claude's rate limit is reached",
    "overloaded_error": "Claude is overloaded",
    "api_error": "Claude had an internal error",
    "timeout_error": "Claude took too long",
}
_BY_STATUS = {401: "authentication_error", 402: "billing_error", 403: "permission_error", 404: "not_found_error",
              413: "request_too_large", 429: "rate_limit_error", 529: "overloaded_error", 408: "timeout_error",
              504: "timeout_error"}


@dataclass(frozen=True)
class Fault:
    """``passing``: trying again may help. ``wait_s``: the service's own wish, seconds."""

    sentence: str
    passing: bool
    wait_s: float | None = None


def transport_errors() -> tuple[type[Exception], ...]:
    """What the SDK's HTTP library raises while a stream is read; newer SDKs use ``httpx2``, older ones ``httpx``."""
    found = [importlib.import_module(name) for name in ("httpx2", "httpx") if importlib.util.find_spec(name)]
    return tuple(kind for library in found for kind in (library.HTTPError, library.StreamError))


_CLOUDS = {"vertex": ("Google Cloud", "google.auth"), "bedrock": ("AWS", "botocore")}


def missing_package(provider: str) -> str:
    """What to install before a cloud's own way of signing in can be used; empty when all is there."""
    cloud, package = _CLOUDS.get(provider, ("", ""))
    if not package or importlib.util.find_spec(package.partition(".")[0]):
        return ""
    return (f"Claude on {cloud} needs the package {package}; run `pip install 'anthropic[{provider}]'` and restart the "
            "kernel.")


def access_errors() -> tuple[type[Exception], ...]:
    """What a client raises that is not set up, signing in to a cloud included where its package is loaded."""
    found = [("google.auth.exceptions", "GoogleAuthError"), ("botocore.exceptions", "BotoCoreError")]
    clouds = (getattr(sys.modules[module], name) for module, name in found if module in sys.modules)
    return (ValueError, RuntimeError, *clouds)


def no_access(error: Exception, provider: str, redact: Callable[[str], str]) -> Fault:
    """The request was never sent. A token that could not be fetched for want of a connection may be had later."""
    cloud = _CLOUDS.get(provider, ("the API", ""))[0]
    why = " ".join(redact(str(error)).split())[:200].rstrip(".") or type(error).__name__
    if type(error).__name__ == "TransportError":
        return Fault(f"no connection to {cloud} to sign in ({why})", passing=True)
    return Fault(f"Claude on {cloud} cannot be asked with what is set up here: {why}", passing=False)


def classify(error: Exception, model: str, redact: Callable[[str], str]) -> Fault:
    """``redact`` is applied to whatever text of the service is quoted."""
    anthropic = importlib.import_module("anthropic")
    if isinstance(error, anthropic.APIStatusError):
        return _of_status(error, model, redact)
    if isinstance(error, anthropic.APITimeoutError | TimeoutError):
        return Fault(_SENTENCES["timeout_error"], passing=True)
    if isinstance(error, (anthropic.APIConnectionError, *transport_errors())):
        return Fault(f"no connection to Claude ({type(error).__name__})", passing=True)
    if isinstance(error, ValueError | anthropic.APIResponseValidationError):  # a stream that is not JSON
        return Fault("Claude's answer could not be read", passing=True)
    return Fault(redact(f"the call to Claude failed: {str(error).splitlines()[0][:200]}"), passing=False)


def _of_status(error: Any, model: str, redact: Callable[[str], str]) -> Fault:
    """A fault in the middle of a stream comes with status 200 and its kind in the body."""
    body = error.body if isinstance(error.body, dict) else {}
    found = body.get("error")
    inner: dict[str, Any] = found if isinstance(found, dict) else {}
    status = error.status_code
    kind = inner.get("type") or _BY_STATUS.get(status) or ("api_error" if status >= 500 else "")
    passing = status in _PASSING_STATUS or status >= 500 or (status < 400 and kind in _PASSING_TYPES)
    if error.response.headers.get("x-should-retry") == "false":
        passing = False
    sentence = _SENTENCES.get(kind, "").format(model=model)
    if not sentence:
        message = " ".join(str(inner.get("message") or kind or "no reason given").split())[:200]
        sentence = f"Claude refused the request (status {status}): {message}"
    return Fault(redact(sentence), passing, _retry_after(error.response.headers))


def _retry_after(headers: Any) -> float | None:
    value = headers.get("retry-after")
    if not value:
        return None
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    parsed = email.utils.parsedate_tz(value)
    return max(0.0, email.utils.mktime_tz(parsed) - time.time()) if parsed else None

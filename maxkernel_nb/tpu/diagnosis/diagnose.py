"""From an exception to a ``Diagnosis``: the kind, the line in the kernel's own source, why, and what to try."""

from __future__ import annotations

import linecache
import re
from typing import Any

from maxkernel_nb.tpu.diagnosis.calls import CALLS
from maxkernel_nb.tpu.diagnosis.compiler import COMPILER, MEMORY
from maxkernel_nb.tpu.diagnosis.kinds import FailureKind, Kind
from maxkernel_nb.tpu.diagnosis.lowering import LOWERING
from maxkernel_nb.tpu.diagnosis.places import chain, line_of, source_line
from maxkernel_nb.tpu.diagnosis.tracing import TRACING
from maxkernel_nb.tpu.diagnosis.words import clean_message
from maxkernel_nb.values import Value

LOWERED = r"(Unimplemented primitive in Pallas TPU lowering[^:]*: *|\"tpu\.(dynamic_)?)(?P<op>[\w-]+)"
KINDS: tuple[Kind, ...] = (*MEMORY, *TRACING, *CALLS, *LOWERING, *COMPILER)


class Diagnosis(Value):
    """One error of tracing, lowering, compiling or interpreting a kernel.

    ``line`` (1-based, 0 unknown) and ``code`` are of the kernel's own source; ``message`` is the tool's text without
    its noise; ``kind`` is "other" with empty ``why`` and ``advice`` where the error is of no known kind.
    """

    kind: str
    family: FailureKind = FailureKind.OTHER
    line: int = 0
    code: str = ""
    why: str = ""
    advice: str = ""
    message: str = ""

    @property
    def where(self) -> str:
        """``line 12: o_ref[...] = jnp.sort(x_ref[...])``, or an empty string."""
        return f"line {self.line}: {self.code}" if self.line else ""

    @property
    def explained(self) -> str:
        """Why, then what to try."""
        return f"{self.why} {self.advice}".strip()


def diagnose(error: BaseException, source_file: str = "", program: Any = None) -> Diagnosis:
    """The diagnosis of any exception. ``source_file``: the file name under which the kernel's source was compiled;
    ``program``: the traced jaxpr, if there is one, to find lines that the error does not tell."""
    found = _known(error) or _named(error)
    line = found.line or source_line(error, source_file)
    if not line and program is not None and source_file:
        op = re.search(LOWERED, str(error))
        line = (line_of(program, op["op"], source_file) if op else 0) or line_of(program, "pallas_call", source_file)
    code = linecache.getline(source_file, line).strip() if line else ""
    return found.model_copy(update={"line": line, "code": code})


def _known(error: BaseException) -> Diagnosis | None:
    found = (getattr(one, "diagnosis", None) for one in chain(error))
    return next((d for d in found if isinstance(d, Diagnosis)), None)


def _named(error: BaseException) -> Diagnosis:
    text = error_text(error)
    message = clean_message(str(error) or text)
    for kind in KINDS:
        if found := kind.match(text):
            named = {name: value or "" for name, value in found.groupdict().items()}
            why, advice = _filled(kind.why, named), _filled(kind.advice, named)
            return Diagnosis(kind=kind.name, family=kind.family, why=why, advice=advice, message=message)
    return Diagnosis(kind="other", message=message)


def error_text(error: BaseException) -> str:
    """``TypeError: what it says``; for an error that a callback of the interpreter raised, that one's."""
    text = f"{type(error).__name__}: {error}"
    inner = re.findall(r"^((?:\w+\.)*\w*(?:Error|Exception): .+)$", str(error), re.MULTILINE)
    inner = [one for one in inner if "CpuCallback" not in one]
    return inner[-1] if "CpuCallback" in text and inner else text


def _filled(sentence: str, named: dict[str, str]) -> str:
    for name, value in named.items():
        sentence = sentence.replace("{" + name + "}", value)
    return sentence

"""Every name that crosses between the panel's Python and its JavaScript, and the TypeScript made from them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from maxkernel_nb.document import model as document_model
from maxkernel_nb.values import Value
from maxkernel_nb.widgets.typescript import interface, is_shape

DOC = "doc"  # the one synchronised trait: a Document as JSON, written by Python only
ACK = "ack"  # the kind of the message that answers each of a view's
NODE = "node"  # the kind of the one that comes before it after ``look``
COMPARISON = "comparison"  # the same after ``compare``


class Intent(StrEnum):
    """What a view can ask for. Python decides."""

    ACCEPT = "accept"
    REJECT = "reject"
    STOP = "stop"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    UNDO = "undo"
    ANSWER = "answer"
    TAKEBACK = "takeback"
    ASK = "ask"
    LOOK = "look"  # at a node of a search: answered by a ``NodeView``
    PIN = "pin"
    PRUNE = "prune"
    UNMARK = "unmark"
    EDIT = "edit"  # ``comment``: a person's own version of ``node``, judged next as its child
    COMPARE = "compare"  # ``node`` and ``other``, two candidates: answered by a ``ComparisonView``


class Message(Value):
    """From a view. ``id`` is drawn by the view (a UUID): the same id is never carried out twice."""

    id: str
    intent: Intent
    proposal: str = ""  # the proposal or question the person was looking at
    choice: str = ""  # the answer to that question
    hunks: tuple[int, ...] | None = None  # None: all
    node: str = ""  # of a search, or a candidate
    other: str = ""  # the candidate to compare it with
    comment: str = ""  # what was written: a remark, an answer's text, a question


class Ack(Value):
    """To every view. ``ok`` False: nothing was done, ``message`` says why in one sentence."""

    kind: Literal["ack"] = "ack"
    id: str
    ok: bool
    message: str = ""


def typescript() -> str:
    """The text of ``frontend/src/wire.ts``; a test compares it with the file."""
    constants = (("DOC", DOC), ("ACK", ACK), ("NODE", NODE), ("COMPARISON", COMPARISON))
    names = "".join(f'export const {k} = "{v}";\n' for k, v in constants)
    intents = " | ".join(f'"{i}"' for i in Intent)
    shapes = [v for v in vars(document_model).values() if is_shape(v)]
    interfaces = "\n\n".join(interface(s) for s in (*shapes, Message, Ack))
    head = "// Generated from widgets/wire.py and maxkernel_nb/document/model.py; do not edit.\n"
    return f"{head}\n{names}\nexport type Intent = {intents};\n\n{interfaces}\n"

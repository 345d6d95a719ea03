"""What we ask of the program around us: one small question each."""

from __future__ import annotations

import os
from typing import Any


def is_batch(shell: Any) -> bool:
    """True under nbclient, nbconvert, papermill and nbval: the client said that nobody can answer (allow_stdin)."""
    get_parent = getattr(shell, "get_parent", None)
    parent = get_parent() if get_parent else None
    content = parent.get("content", {}) if isinstance(parent, dict) else {}
    return content.get("allow_stdin") is False


def cell_id(shell: Any) -> str:
    """The id of the notebook cell that is running, where the front end says it (JupyterLab 4); else empty."""
    get_parent = getattr(shell, "get_parent", None)
    parent = get_parent() if get_parent else None
    metadata = parent.get("metadata", {}) if isinstance(parent, dict) else {}
    return str(metadata.get("cellId") or "")


def is_disabled() -> bool:
    return os.environ.get("MAXKERNEL_DISABLE", "").strip().lower() not in ("", "0", "false", "no")


def cell_number(shell: Any) -> int:
    """The number of the cell that is running (IPython 9 counts ``execution_count`` up before it runs, 7 after)."""
    return max(0, len(shell.history_manager.input_hist_parsed) - 1)

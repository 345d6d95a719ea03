"""The one family of errors a person at a notebook meets.

Every message is one sentence that says what failed, the value, and what to do next.
"""

from __future__ import annotations


class MaxKernelError(Exception):
    """Base of all errors this package raises on purpose."""


class UsageError(MaxKernelError):
    """An option, a function or an input that the person can put right."""


class TaskError(MaxKernelError):
    """The reference function cannot be turned into a task (it does not trace, has side effects ...)."""


class JournalError(MaxKernelError):
    """The run's journal or the project's ``.maxkernel`` folder cannot be read or written."""


class Declined(MaxKernelError):
    """A component says 'not mine', with the reason. Never a failure of a kernel."""


class InfrastructureError(MaxKernelError):
    """Our own machinery failed (a worker died, a lock file, a full disk). Never blamed on a candidate."""


class BudgetExceeded(MaxKernelError):
    """A cap was reached before the next call. The run ends and keeps its best kernel."""


class ApprovalRequired(MaxKernelError):
    """A batch client (nbconvert, papermill, nbval) met a decision that only a person or a policy can take."""

"""What can go wrong between us and a model. Each reaches the person as one sentence."""

from __future__ import annotations

from maxkernel_nb.errors import MaxKernelError


class ModelError(MaxKernelError):
    """Base. The best kernel so far is never touched by one of these."""


class NoKey(ModelError):
    """No API key anywhere we may look."""


class ModelUnavailable(ModelError):
    """The service cannot be reached or stays overloaded after every retry. Resume later."""


class ModelRejected(ModelError):
    """The service refuses the request itself: wrong key, unknown model, no credit. The person must change something."""


class AttemptFailed(ModelError):
    """This conversation gave nothing usable; another may. Subclasses say how."""


class InvalidReply(AttemptFailed):
    """Twice not what was asked for."""


class ModelRefused(AttemptFailed):
    """The model declined to answer."""


class ReplyTruncated(AttemptFailed):
    """The answer did not fit into the output limit, also not into the raised one."""


class NoProgress(AttemptFailed):
    """The same tool calls again and again, or no submission within the allowed calls."""

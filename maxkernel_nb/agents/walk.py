"""A walk through a space of constants: what to try next, told what it took. Knows nothing of runs or compilers.

Points are made without being compiled. Those that cannot work, were tried, or whose own lower bound is clearly no
better than the best time are passed over for free. The rest are ranked by a cheap estimate of their time, corrected by
what the points told so far really took; where there is no estimate, or it says the same of all, the author's seeds come
first and then optuna's sampler proposes. Every trial goes through one optuna study (ask and tell, fixed seed), which
can be journaled into a file.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxkernel_nb.authors.base import TuningSpace
from maxkernel_nb.errors import Declined
from maxkernel_nb.task import Candidate

MARGIN = 1.25  # a lower bound has been above a modelled time: only a bound this much worse than the best is believed
_MOST_RANKED = 4096
_WORTH = 0.99  # what is left must promise this share of the best time
_BELIEVED_AFTER = 4  # points told, before the corrected estimates may end a walk
_TELLING = 1.1  # an estimate whose worst point is not this many times its best cannot rank them
_DECLINED_IN_A_ROW = 60  # then the space holds nothing more that can work
Make = Callable[[dict[str, int]], Candidate]
Estimate = Callable[[dict[str, int]], float]


@dataclass(frozen=True)
class Asked:
    params: dict[str, int]
    candidate: Candidate
    trial: Any


class Walk:
    """``make`` gives a point's candidate or raises ``Declined``; ``estimate`` its time in ms, good for ranking only.

    ``best``: the time to beat, in ms. ``journal``: a file for optuna's own record, written anew.
    """

    def __init__(self, space: TuningSpace, make: Make, first: Candidate, best: float = math.inf,
                 estimate: Estimate | None = None, journal: Path | None = None) -> None:
        self.space, self.make, self.best = space, make, best
        self.study = _study(journal)
        self.seen = {first.id}
        self.idle = 0  # points since the last improvement
        self.told = 0
        self._queue: list[tuple[float, dict[str, int]]] = []
        self._errors: dict[tuple[str, int], list[float]] = defaultdict(list)
        self._seeds = [dict(point) for point in space.seeds]
        if estimate is not None and size(space) <= _MOST_RANKED:
            self._queue = _told_apart([(estimate(p), p) for p in _points(space)])
        self._estimates = {_key(p): time for time, p in self._queue}
        self.learn(first.params, best)

    def ask(self, count: int) -> list[Asked]:
        """At most ``count`` points that are worth a compile; fewer or none when the space holds no more."""
        batch: list[Asked] = []
        refused = 0
        while len(batch) < count and refused < _DECLINED_IN_A_ROW:
            params = self._next()
            if params is None and self._estimates:
                break
            if params is not None:
                self.study.enqueue_trial(params)
            trial = self.study.ask()
            params = {name: trial.suggest_categorical(name, values) for name, values in self.space.axes.items()}
            candidate = self._worth_trying(params)
            if candidate is None:
                refused += not self._estimates
                _record(self.study, trial, None)
                continue
            self.seen.add(candidate.id)
            batch.append(Asked(params, candidate, trial))
        return batch

    def tell(self, asked: Asked, time: float | None) -> None:
        """``time`` in ms, None where the point was refused."""
        _record(self.study, asked.trial, time)
        better = time is not None and time < self.best
        self.told += 1
        self.idle = 0 if better else self.idle + 1
        if time is not None:
            self.learn(asked.params, time)
            self.best = min(self.best, time)

    def learn(self, params: dict[str, int], time: float) -> None:
        """How far the estimate was off, kept by the values of the point's constants."""
        estimated = self._estimates.get(_key(params))
        if estimated and math.isfinite(time) and time > 0:
            for place in params.items():
                self._errors[place].append(math.log(time / estimated))

    def promising(self) -> bool:
        """Whether some point left may be faster; where estimates cannot tell, always."""
        if not self._estimates or self.told < _BELIEVED_AFTER:
            return True
        return any(self._corrected(*entry) < _WORTH * self.best for entry in self._queue)

    def _next(self) -> dict[str, int] | None:
        """The first seed; then the best rank of what is left; seeds in order where there is no estimate."""
        if not self._queue:
            return self._seeds.pop(0) if self._seeds else None
        if self._seeds:
            first = self._seeds[0]
            self._seeds = []
            return first
        chosen = min(self._queue, key=lambda entry: (self._corrected(*entry), _key(entry[1])))
        self._queue.remove(chosen)
        return chosen[1]

    def _corrected(self, estimated: float, params: dict[str, int]) -> float:
        """The estimate times the mean error of told points that share a constant with it, drawn towards none."""
        everything = [e for errors in self._errors.values() for e in errors]
        overall = sum(everything) / len(everything) if everything else 0.0
        shift = overall
        for place in params.items():
            errors = self._errors.get(place, [])
            shift += sum(e - overall for e in errors) / (len(errors) + 1)
        return estimated * math.exp(shift)

    def _worth_trying(self, params: dict[str, int]) -> Candidate | None:
        try:
            candidate = self.make(params)
        except Declined:
            return None
        hopeless = candidate.bound_ms is not None and candidate.bound_ms >= MARGIN * self.best
        return None if hopeless or candidate.id in self.seen else candidate


def _told_apart(ranked: list[tuple[float, dict[str, int]]]) -> list[tuple[float, dict[str, int]]]:
    times = [time for time, _ in ranked]
    return ranked if times and max(times) >= _TELLING * min(times) else []


def size(space: TuningSpace) -> int:
    return math.prod(len(values) for values in space.axes.values())


def _points(space: TuningSpace) -> Iterator[dict[str, int]]:
    for values in itertools.product(*space.axes.values()):
        yield dict(zip(space.axes, values, strict=True))


def _key(params: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(params.items()))


def _record(study: Any, trial: Any, time: float | None) -> None:
    import optuna

    if time is None:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, time)


def _study(journal: Path | None) -> Any:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=4)
        storage = None
        if journal is not None:
            journal.unlink(missing_ok=True)  # a resumed run tells every recorded answer again
            storage = optuna.storages.JournalStorage(JournalFileBackend(str(journal)))
        return optuna.create_study(direction="minimize", sampler=sampler, storage=storage)

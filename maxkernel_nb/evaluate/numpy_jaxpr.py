"""A jaxpr run with numpy, equation by equation: for programs too small to be worth compiling.

jax's interpreter of TPU kernels is itself a program that jax traces, and XLA takes longer to lower and compile it
(0.15 s for a small kernel, jax 0.10.2) than to run it. Here the same traced program is run as it stands: its callbacks
into the pretended TPU's memory are called directly, its scalars and blocks are numpy's. What has no rule in
``numpy_rules`` is asked of jax. A program that runs long raises ``TooLong`` and is better compiled.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from maxkernel_nb import compat
from maxkernel_nb.evaluate import numpy_memory, quick
from maxkernel_nb.evaluate.numpy_rules import Rule, rule

MOST = 150_000  # equations of all runs of a program: what they take longer than compiled is what compiling takes
Reads = Callable[[list[Any]], Sequence[Any]]  # all slots to the operands
Step = tuple[Rule, Reads, tuple[int, ...], bool]  # function, what it reads, slots written, several results


class TooLong(Exception):
    """No error: another way to run it is better."""


class Budget:
    """How many equations a run may still take, all its cores together."""

    def __init__(self, most: int) -> None:
        self.left = self.most = most

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooLong


class Program:
    """A jaxpr made ready: each equation a function, each value a slot, calls written out, what is known computed once
    and what nobody reads left out. Without ``consts`` they come first among the arguments.
    """

    def __init__(self, jaxpr: Any, consts: Sequence[Any] | None, budget: Budget) -> None:
        self.budget = budget
        self._slots: list[Any] = []
        self._known: set[int] = set()
        self._steps: list[Step] = []
        given = (*jaxpr.constvars, *jaxpr.invars) if consts is None else jaxpr.invars
        self._inputs = tuple(self._new() for _ in given)
        numbers = dict(zip(given, self._inputs, strict=True))
        numbers |= dict(zip(jaxpr.constvars, map(self._constant, consts or ()), strict=False))
        self._outputs = self._written_out(jaxpr, numbers)

    def __call__(self, *arguments: Any) -> list[Any]:
        self.budget.spend(len(self._steps) + 1)
        env = self._slots.copy()
        for slot, value in zip(self._inputs, arguments, strict=True):
            env[slot] = value
        for function, reads, writes, several in self._steps:
            result = function(*reads(env))
            if several:
                for slot, value in zip(writes, result, strict=True):
                    env[slot] = value
            else:
                env[writes[0]] = result
        return [env[slot] for slot in self._outputs]

    def inner(self, jaxpr: Any) -> Program:
        return Program(getattr(jaxpr, "jaxpr", jaxpr), getattr(jaxpr, "consts", ()), self.budget)

    def _new(self, value: Any = None) -> int:
        self._slots.append(value)
        return len(self._slots) - 1

    def _constant(self, value: Any) -> int:
        slot = self._new(np.asarray(value)[()])
        self._known.add(slot)
        return slot

    def _written_out(self, jaxpr: Any, numbers: dict[Any, int]) -> tuple[int, ...]:
        """Adds the equations' steps; ``numbers`` has the slots of the constants and arguments. The results' slots."""

        def slot(atom: Any) -> int:
            return self._constant(np.asarray(atom.val, atom.aval.dtype)) if compat.is_literal(atom) else numbers[atom]

        for equation in _needed(jaxpr):
            reads = tuple(map(slot, equation.invars))
            numbers.update(zip(equation.outvars, self._results(equation, reads), strict=True))
        return tuple(map(slot, jaxpr.outvars))

    def _results(self, equation: Any, reads: tuple[int, ...]) -> tuple[int, ...]:
        if (called := compat.called(equation)) is not None:
            body, consts = called
            numbers = dict(zip(body.constvars, map(self._constant, consts), strict=True))
            return self._written_out(body, numbers | dict(zip(body.invars, reads, strict=True)))
        several, writes = bool(equation.primitive.multiple_results), tuple(self._new() for _ in equation.outvars)
        function = rule(equation)
        if function is None or not self._known.issuperset(reads):
            self._steps.append((function or self._other(equation), _reader(reads), writes, several))
            return writes
        result = function(*[self._slots[slot] for slot in reads])
        for slot, value in zip(writes, result if several else [result], strict=True):
            self._slots[slot] = value
        self._known.update(writes)
        return writes

    def _other(self, equation: Any) -> Rule:
        """Of what has programs inside, or no rule."""
        higher = _HIGHER.get(equation.primitive.name)
        return higher(self, equation) if higher else functools.partial(_asked, equation)


def _reader(slots: tuple[int, ...]) -> Reads:
    """``itemgetter`` is the quickest there is, but gives one item bare, and takes no fewer."""
    if len(slots) > 1:
        return operator.itemgetter(*slots)
    return operator.itemgetter(slice(slots[0], slots[0] + 1)) if slots else lambda env: ()


def _needed(jaxpr: Any) -> list[Any]:
    """The equations whose results are read, or that do something besides."""
    wanted, kept = set(filter(_variable, jaxpr.outvars)), []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not wanted.isdisjoint(equation.outvars):
            wanted.update(filter(_variable, equation.invars))
            kept.append(equation)
    return kept[::-1]


def _variable(atom: Any) -> bool:
    return not compat.is_literal(atom)


@contextlib.contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Around a run. Meanwhile the programs of a kernel's cores are run with numpy too."""
    budget.left = budget.most
    _spent.append(budget)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _spent.remove(budget)


_spent: list[Budget] = []
_cores: OrderedDict[int, tuple[Any, Budget, Program]] = OrderedDict()  # the jaxpr is kept, so that its id stays its own


def install() -> None:
    """Once, after ``quick.install``: cores of a run with numpy run with numpy, in turn."""
    module: Any = quick.holder("_run_jaxpr", "thread_map")
    compiled = module._run_jaxpr

    def run(jaxpr: Any, consts: Any, *arguments: Any) -> None:
        if _spent:
            _core(jaxpr)(*map(np.asarray, (*consts, *arguments)))
        else:
            compiled(jaxpr, consts, *arguments)

    module._run_jaxpr = run
    if hasattr(module, "futures"):
        module.futures = quick.Instead(module.futures, ThreadPoolExecutor=_executor)
    else:  # 0.7
        changed = quick.Instead(module.concurrent.futures, ThreadPoolExecutor=_executor)
        module.concurrent = quick.Instead(module.concurrent, futures=changed)


def _executor(max_workers: int) -> Any:
    return _InTurn(max_workers) if _spent else ThreadPoolExecutor(max_workers)


class _InTurn(Executor):
    """Cores one after another, the last one first: what reads another core's results finds those of later steps alone.
    As threads they took twice the time, each waiting for the other's lock. For cores that never wait for each other.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **options: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._waiting.append((future, functools.partial(fn, *args, **options)))
        if len(self._waiting) == self._count:
            for told, call in reversed(self._waiting):
                _settle(told, call)
        return future


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    try:
        future.set_result(call())
    except Exception as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)


def _core(jaxpr: Any) -> Program:
    _, budget, program = _cores.pop(id(jaxpr), (None, None, None))
    if program is None or budget is not _spent[-1]:
        budget, program = _spent[-1], Program(jaxpr, None, _spent[-1])
    _cores[id(jaxpr)] = jaxpr, budget, program
    while len(_cores) > quick.KEPT:
        _cores.popitem(last=False)
    return program


def _asked(equation: Any, *operands: Any) -> Any:
    """Of jax, which compiles the one operation for these shapes."""
    results = [np.asarray(r) for r in compat.bind_equation(equation, operands, equation.params)]
    return results if equation.primitive.multiple_results else results[0]


def _branches(program: Program, equation: Any) -> Rule:
    branches = [program.inner(b) for b in equation.params["branches"]]
    return lambda which, *operands: branches[min(max(int(which), 0), len(branches) - 1)](*operands)


def _while(program: Program, equation: Any) -> Rule:
    about = equation.params
    holds, body = program.inner(about["cond_jaxpr"]), program.inner(about["body_jaxpr"])
    first, second = about["cond_nconsts"], about["cond_nconsts"] + about["body_nconsts"]

    def loop(*operands: Any) -> list[Any]:
        asked, given, carry = operands[:first], operands[first:second], list(operands[second:])
        while holds(*asked, *carry)[0]:
            carry = body(*given, *carry)
        return carry

    return loop


def _scan(program: Program, equation: Any) -> Rule:
    about = equation.params
    body, length, carried = program.inner(about["jaxpr"]), about["length"], about["num_carry"]
    first, second = about["num_consts"], about["num_consts"] + carried
    stacked = equation.outvars[carried:]
    order = range(length - 1, -1, -1) if about["reverse"] else range(length)

    def scan(*operands: Any) -> list[Any]:
        consts, carry, rows = operands[:first], list(operands[first:second]), operands[second:]
        results = [np.empty(v.aval.shape, v.aval.dtype) for v in stacked]
        for n in order:
            carry, made = _parted(body(*consts, *carry, *(r[n] for r in rows)), carried)
            for result, value in zip(results, made, strict=True):
                result[n] = value
        return [*carry, *results]

    return scan


def _parted(values: list[Any], count: int) -> tuple[list[Any], list[Any]]:
    return values[:count], values[count:]


def _callback(program: Program, equation: Any) -> Rule:
    callback = equation.params["callback"]
    return numpy_memory.access(callback) or (lambda *operands: list(callback(*operands)))


def _kernel(program: Program, equation: Any) -> Rule:
    """The interpreter's own program for a kernel, traced once."""
    import jax

    params = {name: value for name, value in equation.params.items() if name not in ("interpret", "backend")}
    function = functools.partial(quick.interpreter(), interpret_params=equation.params["interpret"], **params)
    return program.inner(jax.make_jaxpr(function)(*[jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype)
                                                    for v in equation.invars]))  # fmt: skip


_HIGHER: dict[str, Callable[[Program, Any], Rule]] = {
    "cond": _branches, "while": _while, "scan": _scan, "io_callback": _callback, "pallas_call": _kernel,
    "optimization_barrier": lambda program, equation: lambda *operands: list(operands),
}  # fmt: skip

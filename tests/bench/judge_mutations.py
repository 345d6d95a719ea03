"""Mutation test of the judge: python tests/bench/judge_mutations.py [--count 200] [--seed 0] [--folder KEPT]

One token of an honest kernel is changed at random (a number, an operator, a name of its own, a comparison, a dtype, a
removed statement). A mutant that passes is tried further, on inputs and shapes that no check uses; it is *equivalent*
when its program is the honest one's or its results stay within the error budget there, and a survivor otherwise.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from dataclasses import replace
from typing import Any

from judge_common import Bench, say, suite_honest

from maxkernel_nb.evaluate.ground import Limits
from maxkernel_nb.task import Assessment, Outcome

TEN = ("double (64, 128)", "double by its own copies", "affine (128, 128)", "softmax 64", "softmax, online",
       "rmsnorm 64", "layernorm 64", "gather", "gemm (128, 128, 128)", "attention 128 128")  # fmt: skip
NAMES = {"exp": "exp2", "max": "min", "maximum": "minimum", "mean": "sum", "sum": "max", "zeros_like": "ones_like",
         "zeros": "ones", "rsqrt": "sqrt", "float32": "bfloat16", "start": "wait", "wait": "start"}  # fmt: skip
BINARY = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mod,
          ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult}  # fmt: skip
COMPARED = {ast.Eq: ast.NotEq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.GtE: ast.Gt, ast.Gt: ast.GtE, ast.NotEq: ast.Eq}


class Mutator(ast.NodeTransformer):
    """Counts the places where a token can change; changes the one numbered ``target``."""

    def __init__(self, target: int | None, draw: random.Random) -> None:
        self.target, self.draw, self.places, self.told = target, draw, 0, ""

    def _here(self) -> bool:
        self.places += 1
        return self.places - 1 == self.target

    def visit_Import(self, node: ast.AST) -> ast.AST:
        return node

    visit_ImportFrom = visit_Import

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, int | float) and not isinstance(node.value, bool) and self._here():
            value: Any = self.draw.choice([node.value + 1, node.value - 1, node.value * 2, 0])
            self.told = f"line {node.lineno}: {node.value} -> {value}"
            return ast.copy_location(ast.Constant(value), node)
        if isinstance(node.value, str) and node.value in ("parallel", "arbitrary") and self._here():
            other = "arbitrary" if node.value == "parallel" else "parallel"
            self.told = f"line {node.lineno}: {node.value} -> {other}"
            return ast.copy_location(ast.Constant(other), node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if type(node.op) in BINARY and self._here():
            node.op = self._swap(node, node.op, BINARY)
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if self._here():
            self.told = f"line {node.lineno}: += -> ="
            loaded = ast.copy_location(node.target, node)
            return ast.copy_location(ast.Assign([loaded], node.value), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if type(node.ops[0]) in COMPARED and self._here():
            node.ops[0] = self._swap(node, node.ops[0], COMPARED)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in NAMES and self._here():
            self.told = f"line {node.lineno}: {node.attr} -> {NAMES[node.attr]}"
            node.attr = NAMES[node.attr]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if len(node.args) >= 2 and self._here():
            self.told = f"line {node.lineno}: first two arguments of a call swapped"
            node.args[0], node.args[1] = node.args[1], node.args[0]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and self._here():
            self.told = f"line {node.lineno}: statement removed"
            return ast.copy_location(ast.Pass(), node)
        return node

    def _swap(self, node: Any, operator: Any, table: dict[Any, Any]) -> Any:
        new = table[type(operator)]
        self.told = f"line {node.lineno}: {type(operator).__name__} -> {new.__name__}"
        return new()


def mutant(source: str, draw: random.Random) -> tuple[str, str]:
    counter = Mutator(None, draw)
    counter.visit(ast.parse(source))
    mutator = Mutator(draw.randrange(counter.places), draw)
    tree = mutator.visit(ast.parse(source))
    return ast.unparse(ast.fix_missing_locations(tree)), mutator.told


def mutants(count: int, seed: int) -> list[tuple[str, str, str, str]]:
    """(kernel, task, mutated source, what changed), all different."""
    draw, made, seen = random.Random(seed), [], set()
    while len(made) < count:
        name = TEN[len(made) % len(TEN)]
        task, source = suite_honest.HONEST[name]
        text, told = mutant(source, draw)
        if told and text not in seen and ast.dump(ast.parse(text)) != ast.dump(ast.parse(source)):
            seen.add(text)
            made.append((name, task, text, told))
    return made


async def further(bench: Bench, task: Any, source: str) -> Assessment:
    """The same judge on other draws: five more salts' worth of seeds."""
    other = task.model_copy(update={"salt": "further", "seeds": (0, 1, 2, 3, 4)})
    return await bench.judge(other, source)


async def course(bench: Bench, count: int, seed: int, first: int = 0) -> int:
    refused, equal, survived = 0, [], []
    gates: dict[str, int] = {}
    for number, (name, task, source, told) in list(enumerate(mutants(count, seed)))[first:]:
        assessment = await bench.judge(bench.task(task), source)
        last = assessment.verdicts[-1]
        if assessment.failed:
            refused += 1
            gates[last.gate] = gates.get(last.gate, 0) + 1
            say(f"{number:3} {name}: {told}: {last.gate}: {last.summary[:100]}")
        elif (
            last.outcome is Outcome.INFRASTRUCTURE
            or not (again := await further(bench, bench.task(task), source)).correct
        ):
            survived.append((name, told))
            say(f"{number:3} {name}: {told}: SURVIVED ({last.summary[:100]})")
        else:
            worst = max((v.numbers.get("worst_error_ratio", 0.0) for v in again.verdicts), default=0.0)
            equal.append((name, told, worst))
            say(f"{number:3} {name}: {told}: passes, and on further draws: worst error {worst:.2g} of the allowed one")
    told = f"{len(equal)} equal within the budget, {len(survived)} survived"
    say(f"{count - first} mutants: {refused} refused ({gates}), {told}")
    for entry in equal:
        say(f"  equal: {entry[0]}: {entry[1]} (worst error {entry[2]:.2g})")
    return len(survived)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="the number of the first one: to go on, or to share")
    parser.add_argument("--folder")
    options = parser.parse_args()
    bench = Bench(options.folder, limits=replace(Limits(), trace_s=60.0, check_s=90.0))
    sys.exit(bench.run(course(bench, options.count, options.seed, options.first)) > 0)


if __name__ == "__main__":
    main()

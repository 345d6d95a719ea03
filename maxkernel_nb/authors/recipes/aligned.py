"""One computation seen in all shape cases at once: the same node of every case's graph, and sizes as formulas."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any

from maxkernel_nb.authors.recipes.graph import Graph, Node
from maxkernel_nb.errors import Declined

_SIZED = frozenset({"start", "value", "index"})  # attributes that may follow the sizes


class Aligned:
    """Nodes are numbered anew in topological order; ``self[i]`` is node ``i`` in the timing case, the first graph.

    Raises ``Declined`` where the cases do not have the same structure.
    """

    def __init__(self, graphs: Sequence[Graph]) -> None:
        self.graphs = tuple(graphs)
        self.members: list[tuple[int, ...]] = []
        self.known: dict[tuple[int, ...], int] = {}
        if len({len(g.outputs) for g in graphs}) > 1:
            raise Declined("the function returns differently many arrays in different shape cases")
        self.given: frozenset[int] = frozenset()
        self.outputs = tuple(self._visit(numbers) for numbers in zip(*(g.outputs for g in graphs), strict=True))

    def rest(self, given: Iterable[int], outputs: Sequence[int]) -> Aligned:
        """The same nodes under the same numbers, as if ``given`` were parameters and ``outputs`` were returned."""
        made = copy.copy(self)
        made.given, made.outputs = self.given | set(given), tuple(outputs)
        return made

    def live(self) -> Sequence[int]:
        """Nodes that the outputs depend on, in order."""
        return sorted(self.ancestors(*self.outputs)) if self.given else range(len(self))

    def _visit(self, root: tuple[int, ...]) -> int:
        stack = [root]
        while stack:
            members = stack[-1]
            nodes = [g[n] for g, n in zip(self.graphs, members, strict=True)]
            if any(_kind(n) != _kind(nodes[0]) for n in nodes):
                raise Declined("the computation differs between shape cases, not only in its sizes")
            waiting = [m for m in zip(*(n.inputs for n in nodes), strict=True) if m not in self.known]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            if members not in self.known:
                self.known[members] = len(self.members)
                self.members.append(members)
        return self.known[root]

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, number: int) -> Node:
        node = self.graphs[0][self.members[number][0]]
        return Node("param", (), node.shape, node.dtype, (("index", -1),)) if number in self.given else node

    def nodes(self, number: int) -> list[Node]:
        return [g[n] for g, n in zip(self.graphs, self.members[number], strict=True)]

    def inputs(self, number: int) -> tuple[int, ...]:
        if number in self.given:
            return ()
        nodes = self.nodes(number)
        return tuple(self.known[m] for m in zip(*(n.inputs for n in nodes), strict=True))

    def shapes(self, number: int) -> list[tuple[int, ...]]:
        """The node's shape in every case."""
        return [n.shape for n in self.nodes(number)]

    def attrs(self, number: int, name: str) -> list[Any]:
        return [n.attr(name) for n in self.nodes(number)]

    def ancestors(self, *roots: int) -> set[int]:
        seen: set[int] = set()
        todo = list(roots)
        while todo:
            number = todo.pop()
            if number not in seen:
                seen.add(number)
                todo.extend(self.inputs(number))
        return seen

    def users(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {n: [] for n in range(len(self))}
        for number in self.live():
            for source in self.inputs(number):
                found[source].append(number)
        return found

    def region(
        self, root: int, cuts: Mapping[int, str], scaled: Mapping[int, tuple[int, int]] | None = None
    ) -> list[Graph]:
        """Per case, the graph of ``root`` with ``cuts`` (node -> dtype) as its parameters, in that order.

        ``scaled``: products of scaled rows (product -> rows, scales), whose results are scaled instead.
        """
        return [self._region(case, root, cuts, scaled or {}) for case in range(len(self.graphs))]

    def _region(
        self, case: int, root: int, cuts: Mapping[int, str], scaled: Mapping[int, tuple[int, int]]
    ) -> Graph:
        graph, made = self.graphs[case], Graph()
        made.arrays, made.equations = graph.arrays, graph.equations
        new: dict[int, int] = {}
        for index, (cut, dtype) in enumerate(cuts.items()):
            node = graph[self.members[cut][case]]
            new[cut] = made.add(Node("param", (), node.shape, dtype, (("index", index),)))
        for number in sorted(_inside(self, root, set(cuts))):
            if number not in new:
                node = graph[self.members[number][case]]
                inputs = tuple(new[i] for i in self.inputs(number))
                if number not in scaled:
                    new[number] = made.add(Node(node.op, inputs, node.shape, node.dtype, node.attrs))
                    continue
                rows, scale = scaled[number]
                product = made.add(Node(node.op, (new[rows], inputs[1]), node.shape, node.dtype, node.attrs))
                wide = graph[self.members[scale][case]]
                source = new[self.inputs(scale)[0]]
                scales = made.add(Node(wide.op, (source,), node.shape, wide.dtype, wide.attrs))
                new[number] = made.add(Node("mul", (product, scales), node.shape, node.dtype))
        made.outputs = (new[root],)
        made.output_dtypes = (graph[self.members[root][case]].dtype,)
        return made


def _inside(aligned: Aligned, root: int, cuts: set[int]) -> set[int]:
    seen: set[int] = set()
    todo = [root]
    while todo:
        number = todo.pop()
        if number not in seen:
            seen.add(number)
            if number not in cuts:
                todo.extend(aligned.inputs(number))
    return seen


def _kind(node: Node) -> Any:
    """What must be the same in every case."""
    attrs = tuple(
        (k, v) for k, v in node.attrs if k not in _SIZED or (k == "index" and node.op == "param")
    )
    return node.op, len(node.shape), len(node.inputs), node.dtype, attrs


class Dimensions:
    """Source text for sizes: ``x.shape[0]``, a fixed keyword's name, products and quotients of them, or the number.

    ``shapes``: name of an array in scope -> its shape in every case.
    """

    def __init__(self, shapes: Mapping[str, Sequence[tuple[int, ...]]], static: Mapping[str, Any]) -> None:
        self.cases = len(next(iter(shapes.values()))) if shapes else 1
        self.atoms: dict[tuple[int, ...], str] = {}
        whole = {n: v for n, v in static.items() if isinstance(v, int) and not isinstance(v, bool) and v > 1}
        for name, value in whole.items():
            if list(whole.values()).count(value) == 1:  # of two keywords of one value, which is meant cannot be told
                self.atoms.setdefault((value,) * self.cases, name)
        for name, by_case in shapes.items():
            for axis in range(len(by_case[0])):
                sizes = tuple(shape[axis] for shape in by_case)
                if len(set(sizes)) > 1 or sizes[0] > 16:
                    self.atoms.setdefault(sizes, f"{name}.shape[{axis}]")

    @property
    def named(self) -> list[dict[str, int]]:
        """Per case, every known size by its text."""
        return [{text: sizes[case] for sizes, text in self.atoms.items()} for case in range(self.cases)]

    def text(self, sizes: Sequence[int]) -> str:
        """Raises ``Declined`` where no formula gives the sizes in all cases."""
        wanted = tuple(int(s) for s in sizes)
        found = self.find(wanted)
        if found is None:
            raise Declined(f"a size follows the shapes ({', '.join(map(str, wanted))}) in no known way")
        return found

    def find(self, wanted: tuple[int, ...]) -> str | None:
        if wanted in self.atoms:
            return self.atoms[wanted]
        if len(set(wanted)) == 1:
            return str(wanted[0])
        atoms = list(self.atoms.items())
        for sizes, text in atoms:
            ratios = {(w // s if s and w % s == 0 else None) for w, s in zip(wanted, sizes, strict=True)}
            if len(ratios) == 1 and None not in ratios:
                return f"{ratios.pop()} * {text}"
            inverse = {(s // w if w and s % w == 0 else None) for w, s in zip(wanted, sizes, strict=True)}
            if len(inverse) == 1 and None not in inverse:
                return f"{text} // {self._number(inverse.pop())}"
            apart = {s - w for w, s in zip(wanted, sizes, strict=True)}
            if len(apart) == 1 and abs(next(iter(apart))) <= 64:
                by = apart.pop()
                return f"{text} {'-' if by > 0 else '+'} {abs(by)}"
        for (one, a), (two, b) in combinations_with_replacement(atoms, 2):
            if all(w == x * y for w, x, y in zip(wanted, one, two, strict=True)):
                return f"{a} * {b}"
        for one, a in atoms:
            for two, b in atoms:
                if all(y and x % y == 0 and w == x // y for w, x, y in zip(wanted, one, two, strict=True)):
                    return f"{a} // {b}"
        for (one, a), (two, b), (three, c) in _triples(atoms):
            if all(w == x * y * z for w, x, y, z in zip(wanted, one, two, three, strict=True)):
                return f"{a} * {b} * {c}"
        return None

    def _number(self, value: int | None) -> str:
        return self.atoms.get((int(value or 0),) * self.cases, str(value))


def _triples(atoms: list[tuple[tuple[int, ...], str]]) -> Any:
    return combinations_with_replacement(atoms, 3) if len(atoms) <= 16 else ()

"""Draft tokens after a text, as a tree: several of them may follow the same one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MOST = 63  # tokens that a pass verifies


@dataclass(slots=True)
class Tree:
    """Token i is node i + 1 and follows node parents[i]; node 0 is the text's end. Parents come before children, and of
    the tokens that follow the same node the likeliest one first."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.tokens)

    def spine(self) -> list[int]:
        """The tokens of the path that takes the first child everywhere."""
        return [self.tokens[node - 1] for node in self._first()]

    def graft(self, other: Tree, most: int | None = None) -> None:
        """Hangs another tree at the end of the spine. most: tokens of both; what is more is left out."""
        end, before = [0, *self._first()][-1], len(self)
        room = len(other) if most is None else max(most - before, 0)
        self.parents += [end if parent == 0 else before + parent for parent in other.parents[:room]]
        self.tokens += other.tokens[:room]

    def add(self, path: Sequence[int]) -> None:
        """Tokens one after another from the text's end on; those that are nodes already stay what they are."""
        node = 0
        for token in path:
            child = self._child(node, token)
            if child is None:
                if len(self) == MOST:
                    return
                self.tokens.append(token)
                self.parents.append(node)
                child = len(self)
            node = child

    def after(self, tokens: Sequence[int]) -> Tree:
        """What is left of it once the text has grown by these tokens."""
        root: int | None = 0
        for token in tokens:
            root = self._child(root, token)
            if root is None:
                return Tree()
        left, nodes = Tree(), {root: 0}
        for i, (token, parent) in enumerate(zip(self.tokens, self.parents, strict=True)):
            if parent in nodes:
                left.tokens.append(token)
                left.parents.append(nodes[parent])
                nodes[i + 1] = len(left)
        return left

    def _first(self) -> Iterator[int]:
        node = 0
        for i, parent in enumerate(self.parents):
            if parent == node:
                node = i + 1
                yield node

    def _child(self, node: int, token: int) -> int | None:
        return next((i + 1 for i in range(node, len(self)) if (self.parents[i], self.tokens[i]) == (node, token)), None)


def chain(tokens: Sequence[int]) -> Tree:
    return Tree(list(tokens), list(range(len(tokens))))

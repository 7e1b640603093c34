"""Intrusive doubly linked lists: append, take the first, and leave from the middle, each in one step. Pure."""

from __future__ import annotations

from typing import Generic, TypeVar, cast


class ChainNode:
    """An element that can be in one chain at a time."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.after: ChainNode | None = None
        self.before: ChainNode | None = None

    @property
    def linked(self) -> bool:
        """Tell whether it is in a chain."""
        return self.after is not None

    def unlink(self) -> None:
        """Leave the chain. The node keeps no reference to it, so that no cycle keeps the node alive."""
        before, after = self.before, self.after
        assert before is not None
        assert after is not None, "it stands in no chain"
        before.after, after.before = after, before
        self.before = self.after = None


N = TypeVar("N", bound=ChainNode)


class Chain(ChainNode, Generic[N]):
    """A list of nodes, as a ring through the chain itself, so that no end is a special case."""

    __slots__ = ()

    def __init__(self) -> None:
        self.after = self.before = self

    def append(self, node: N) -> None:
        """Append a node that is in no chain."""
        assert node.after is None, "it stands in a chain already"
        last = self.before
        assert last is not None
        last.after, node.before = node, last
        node.after, self.before = self, node

    @property
    def first(self) -> N | None:
        """Return the first node, if there is one."""
        first = self.after
        return None if first is self else cast("N", first)

    def __iter__(self) -> Chain[N]:
        """Refuse iteration by accident: `nodes` walks the whole chain."""
        raise TypeError("a chain is walked by nodes()")

    def nodes(self) -> list[N]:
        """Return all nodes in order, in linear time."""
        found, node = [], self.after
        while node is not self:
            found.append(cast("N", node))
            assert node is not None
            node = node.after
        return found

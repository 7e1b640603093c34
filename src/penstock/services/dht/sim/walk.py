"""A lookup of a simulated node, driven from its first probe to its outcome and beyond: late answers still teach."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.services.dht.core.lookup import Goal, Lookup, LookupOutcome, LookupRules, ProbeFailure

if TYPE_CHECKING:
    from penstock.services.dht.core.contact import Contact
    from penstock.services.dht.sim.node import SimNode, SimRecord


class SimWalk:
    """Sends what the lookup decides and reports what comes back."""

    __slots__ = ("_answered", "_done", "_lookup", "_node", "_rng", "_timer_at", "began")

    def __init__(  # noqa: PLR0913 - a lookup is asked for with these
        self,
        node: SimNode,
        target: int,
        goal: Goal,
        done: Callable[[Lookup, LookupOutcome], None],
        *,
        paths: int = 1,
        start: list[Contact] | None = None,
    ) -> None:
        network = node.network
        options = network.options
        alpha = 3 if goal is Goal.NODES else options.find_alpha
        self.began = network.now
        self._node = node
        self._done = done
        self._rng = network.rng
        self._answered: list[Contact] = []
        self._timer_at = float("inf")
        self._lookup = Lookup(
            target,
            goal,
            LookupRules(k=options.k, alpha=alpha),
            node,
            now=network.now,
            deadline_at=network.now + (options.deadline_s if goal is not Goal.NODES else 10.0),
            paths=paths,
        )
        self._lookup.begin(start or node.table.closest(target, options.k, node.book.failing))
        self._advance()

    def _advance(self) -> None:
        lookup, network = self._lookup, self._node.network
        for probe in lookup.next_probes(network.now):
            network.ask(self._node, probe.contact, lookup.target, self._on_answer)
        if lookup.outcome is not None:
            self._finish(lookup.outcome)
            return
        due = lookup.wake_at
        if due < self._timer_at:
            self._timer_at = due
            network.at(due, self._on_timer, due)

    def _on_timer(self, due: float) -> None:
        if self._lookup.outcome is not None or due != self._timer_at:
            return
        self._timer_at = float("inf")
        self._lookup.tick(self._node.network.now)
        self._advance()

    def _on_answer(
        self, contact: Contact, began: float, contacts: list[Contact] | None, records: list[SimRecord] | None
    ) -> None:
        """Take in an answer or a timeout; after the lookup's end it only feeds the memory of peers."""
        node, lookup = self._node, self._lookup
        now = node.network.now
        if contacts is None or records is None:
            node.book.failed(contact.id, now)
            node.doubt(contact)
            lookup.failed(contact.id, now, ProbeFailure.TIMEOUT, self._rng)
        else:
            node.book.answered(contact.id, now - began, now)
            self._answered.append(contact)
            genuine = [] if lookup.goal is Goal.NODES else [each for each in records if not each.forged]
            lookup.answered(contact.id, now, contacts, verifying=bool(genuine))
            if genuine:
                lookup.verified(contact.id, now, genuine)
        if lookup.outcome is None:
            self._advance()
        elif self._done is not None:
            self._finish(lookup.outcome)

    def _finish(self, outcome: LookupOutcome) -> None:
        done, self._done = self._done, _nothing
        if done is _nothing:
            return
        # Routing updates are handed over after the answer.
        for contact in self._answered:
            self._node.insert(contact)
        if self._lookup.goal is Goal.NODES and outcome.complete:
            self._node.size.walked(self._lookup.target, [each.id for each in outcome.nearest])
        done(self._lookup, outcome)


def _nothing(_lookup: Lookup, _outcome: LookupOutcome) -> None:
    """Stand in for a caller that was told already."""

"""A lookup as a pipeline of probes, not as rounds. Pure: the driver sends, waits and reports; this decides.

A lookup walks towards a target. It knows candidates, starts with the nearest of the routing table (depth 1), and asks
the nearest it has not asked yet; whoever answers names nearer ones, one deeper. Up to alpha probes run at a time, and
each outcome at once starts the next. A probe that has been out for longer than its peer usually takes is *slow*: it
frees its place and up to beta extra probes start, but its late answer still counts. So a dead node costs a lookup some
milliseconds instead of a timeout. At most k probes are in flight, however many paths there are.

A find whose nearest candidates probably keep the record itself begins with a first wave of three probes: more would
bring the same record again. The wave ends, and alpha counts, with the first outcome that did not end the lookup, or
when the fastest of the three has taken longer than it usually does.

With several paths the starting candidates are dealt out, and each path hears only what its own nodes name, so that one
liar cannot lead the whole lookup astray. A node that two paths reach is asked once and its answer serves both.

The driver's side: `begin`, then after each of `answered`, `verified`, `failed` and `tick` call `next_probes` and send
what it returns, until `outcome` is set. `wake_at` says when `tick` is due at the latest.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from penstock.services.dht.core.diversity import DiversityRules
from penstock.services.dht.core.path import Candidate, ProbeState, SearchPath
from penstock.services.dht.core.peer_book import Basis, SlowPoint

if TYPE_CHECKING:
    from penstock.kernel.backoff import Rng
    from penstock.services.dht.core.contact import Contact

ALPHA_RAISED: Final = 10
TRIES_MAX: Final = 3
RETRY_S: Final = 0.05
RETRY_S_MAX: Final = 2.0
# So many probes begin a find where the nearest candidates probably keep the record.
FIRST_WAVE: Final = 3
# A probe that has to connect first starts only while fewer than these are out.
DIALLING_MAX: Final = 2
DIALLING_MAX_RAISED: Final = 5
# The second dial of a lookup follows the first after this. Where round trips are long it is nothing; where they are
# short the first has answered by then, and two at a time would only take each other's processor.
DIALS_APART_S: Final = 0.002
# Verified sets from so many different paths end a lookup with several paths.
PATHS_AGREEING: Final = 2
# The namer of peers that nobody named: they connected to this node themselves. No id is negative.
THEMSELVES: Final = -1
NEVER: Final = float("inf")


class Goal(enum.Enum):
    """What a lookup is for."""

    NODES = "find_node"  # the k nearest nodes
    FIRST = "first"  # the first verified set of records
    LIMIT = "limit"  # records until the limit is reached, or nobody is left


class LookupEnd(enum.Enum):
    """Why a lookup ended."""

    FOUND = "found"
    EXHAUSTED = "exhausted"  # everybody worth asking was asked
    HOPS = "hops"  # nearer candidates were left, but beyond the hop budget
    DEADLINE = "deadline"


class ProbeFailure(enum.Enum):
    """How a probe failed."""

    TIMEOUT = "timeout"
    REFUSED = "refused"  # answered Busy
    CUT = "cut"  # the connection broke
    USELESS = "useless"  # wrong id, nonsense, or an address we do not dial


class FoundRecord(Protocol):
    """As much of a verified record as a lookup looks at."""

    @property
    def publisher(self) -> int:
        """Who signed it."""
        ...

    @property
    def seq(self) -> int:
        """The publisher's count: the highest is the truth."""
        ...

    @property
    def addrs(self) -> Sequence[str]:
        """Where the publisher is reached; empty after a withdrawal."""
        ...


class RttOracle(Protocol):
    """Whoever knows how long a peer usually takes."""

    def slow_point(self, peer: int) -> SlowPoint:
        """Say after how long a probe is slow."""
        ...

    @property
    def near_enough(self) -> int:
        """Of so many nearest candidates one that is connected is asked first: dialling costs more than distance."""
        ...

    def connected(self, peer: int) -> bool:
        """Tell whether a probe of this peer can go out without dialling."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class LookupRules:
    """The numbers of a lookup."""

    k: int = 20
    alpha: int = 3
    beta: int = 2
    hop_budget: int = 5
    # Nodes within this distance of the target probably keep its records; 0 when that is not known.
    radius: int = 0
    diversity: DiversityRules = field(default_factory=DiversityRules)


class Probe:
    """One request that is out; owned by its lookup until its outcome is reported."""

    __slots__ = ("asked_at", "basis", "contact", "depth", "hedge", "paths", "slow", "slow_at", "usual_at")

    def __init__(self, candidate: Candidate, now: float, point: SlowPoint, *, hedge: bool) -> None:
        self.contact = candidate.contact
        self.depth = candidate.depth
        self.asked_at = now
        self.slow_at = now + point.after_s
        self.usual_at = now + point.usual_s
        self.basis = point.basis
        self.hedge = hedge
        self.slow = False
        # The candidates it answers for, one a path.
        self.paths: list[tuple[SearchPath, Candidate]] = []


@dataclass(frozen=True, slots=True)
class LookupOutcome:
    """What a lookup came to."""

    ending: LookupEnd
    hops: int  # the depth at which the answer was found, or the deepest one that was reached
    trail: tuple[int, ...]  # who led there, first to last
    messages: int
    hedges: int
    nearest: tuple[Contact, ...]  # the nearest that answered
    groups: int  # how many address groups answered

    @property
    def complete(self) -> bool:
        """Tell whether everybody worth asking was asked."""
        return self.ending is LookupEnd.EXHAUSTED


class Lookup:
    """One lookup; see the module's text for how it is driven."""

    def __init__(  # noqa: PLR0913 - a lookup is asked for with these
        self,
        target: int,
        goal: Goal,
        rules: LookupRules,
        peers: RttOracle,
        *,
        now: float,
        deadline_at: float,
        limit: int = 20,
        paths: int = 1,
    ) -> None:
        self.target = target
        self.goal = goal
        self.rules = rules
        self.deadline_at = deadline_at
        self.outcome: LookupOutcome | None = None
        self.found: dict[int, FoundRecord] = {}  # the highest record of each publisher
        self.messages = 0
        self.hedges = 0
        self.retries = 0
        self.began_at = now
        self.in_flight: dict[int, Probe] = {}
        self._peers = peers
        self._near_enough = peers.near_enough
        self._limit = limit
        self._alpha = rules.alpha
        # While a find is in its first wave, fewer probes than alpha are out; until when is known once they are.
        self._first_wave = False
        self._wave_ends_at = NEVER
        self._paths = [SearchPath(target, rules.diversity) for _ in range(paths)]
        self._answers: dict[int, list[Contact]] = {}
        self._slow = 0
        self._hedges_due = 0
        self._patient: dict[int, int] = {}  # extra probes granted at a depth for peers known to be far away
        self._verifying = 0
        self._winning_paths: set[int] = set()
        self._won: tuple[int, int, SearchPath] | None = None  # depth, node and path of the first verified record
        self._deepest = 0
        self._cut_by_hops = False
        self._retry_at: dict[int, float] = {}
        self._tries: dict[int, int] = {}
        self._next_path = 0
        self._next_dial_at = now
        self._dial_waits = False  # somebody is to be dialled as soon as that is

    # --- what the driver calls ------------------------------------------------------------------------------

    def begin(self, contacts: Iterable[Contact], callers: list[Contact] | None = None) -> None:
        """Deal the starting candidates out to the paths, the nearest first.

        `callers` are peers that connected to this node and are no contacts of it. They count as named by one node, so
        at most half of the candidates are such: whoever wants to surround a key cannot do it by connecting to all.
        """
        dealt: list[list[Contact]] = [[] for _ in self._paths]
        for index, contact in enumerate(contacts):
            dealt[index % len(dealt)].append(contact)
        for path, hand in zip(self._paths, dealt, strict=True):
            path.hear_of(hand, 1, 0)
        if callers:
            self._paths[0].hear_of(callers, 1, THEMSELVES)
        self._first_wave = self.goal is Goal.FIRST and len(self._paths) == 1 and self._is_near()

    def _is_near(self) -> bool:
        """Tell whether the nearest candidate probably keeps the record itself."""
        nearest = self._paths[0].front(1)
        return bool(nearest) and nearest[0].contact.id ^ self.target <= self.rules.radius

    def next_probes(self, now: float) -> list[Probe]:
        """Return the probes to send now. May end the lookup instead."""
        if self.outcome is not None:
            return []
        probes: list[Probe] = []
        self._dial_waits = False
        while len(self.in_flight) < self.rules.k:
            hedge = self._hedges_due > 0
            if not hedge and self._active >= (FIRST_WAVE if self._first_wave else self._alpha):
                break
            probe = self._start_nearest(now, hedge=hedge)
            if probe is None:
                break
            probes.append(probe)
            self._hedges_due -= hedge
        if not probes:
            self._hedges_due = 0
            self._judge_end(now)
        if self._first_wave and self._wave_ends_at == NEVER:
            self._wave_ends_at = min((probe.usual_at for probe in probes), default=now)
        return probes

    def answered(self, peer: int, now: float, contacts: list[Contact], *, verifying: bool = False) -> None:
        """Take in who a peer named; `verifying` announces that its records follow by `verified`."""
        probe = self._settle(peer)
        if probe is None:
            return
        self._deepest = max(self._deepest, probe.depth)
        self._answers[peer] = contacts
        self._verifying += verifying
        for path, candidate in probe.paths:
            candidate.state = ProbeState.ANSWERED
            self._hear(path, peer, contacts, candidate.depth)

    def verified(self, peer: int, now: float, records: Iterable[FoundRecord]) -> None:
        """Take in the records of an answer whose signatures held; an empty set ends the wait for them."""
        self._verifying -= 1
        if self.outcome is not None:
            return
        useful = False
        for record in records:
            self._keep_highest(record)
            useful |= bool(record.addrs)
        if useful:
            self._win(peer)
            if self._satisfied():
                self._end(LookupEnd.FOUND)

    def know(self, records: Iterable[FoundRecord]) -> None:
        """Take in verified records the node keeps itself, before the first probe; they may be all that is wanted."""
        for record in records:
            self._keep_highest(record)
        if len(self._paths) == 1 and self._satisfied():
            self._end(LookupEnd.FOUND)

    def _keep_highest(self, record: FoundRecord) -> None:
        held = self.found.get(record.publisher)
        if held is None or record.seq > held.seq:
            self.found[record.publisher] = record

    def failed(self, peer: int, now: float, why: ProbeFailure, rng: Rng) -> None:
        """Take in that a probe failed."""
        probe = self._settle(peer)
        if probe is None:
            return
        again = why in (ProbeFailure.REFUSED, ProbeFailure.CUT) and self._tries.get(peer, 1) < TRIES_MAX
        for path, candidate in probe.paths:
            if again:
                candidate.state = ProbeState.REFUSED
            else:
                path.fail(candidate)
        if again:
            tries = self._tries[peer] = self._tries.get(peer, 1) + 1
            wait_s = min(RETRY_S * 2 ** (tries - 2), RETRY_S_MAX / 2)
            self._retry_at[peer] = now + wait_s * (1 + rng.random())

    def tick(self, now: float) -> None:
        """Notice slow probes and the deadline."""
        if self.outcome is not None:
            return
        if now >= self.deadline_at:
            self._end(LookupEnd.DEADLINE)
            return
        if self._wave_ends_at <= now:
            self._first_wave = False
        for probe in self.in_flight.values():
            if probe.slow_at <= now:
                self._turn_slow(probe)

    @property
    def wake_at(self) -> float:
        """Return when `tick` is due: the next slow point or retry, at the latest the deadline."""
        due = min((probe.slow_at for probe in self.in_flight.values()), default=NEVER)
        if self._first_wave:
            due = min(due, self._wave_ends_at)
        if self._retry_at and not self._active:
            due = min(due, *self._retry_at.values())
        if self._dial_waits:
            due = min(due, self._next_dial_at)
        return min(due, self.deadline_at)

    def providers(self) -> list[FoundRecord]:
        """Return the records found: the highest of each publisher, without the withdrawn ones."""
        return [record for record in self.found.values() if record.addrs]

    # --- slow probes ----------------------------------------------------------------------------------------

    def _turn_slow(self, probe: Probe) -> None:
        probe.slow_at = NEVER
        beta = self.rules.beta
        if probe.basis is Basis.PATIENT:
            granted = self._patient.get(probe.depth, 0)
            if granted < beta:
                self._patient[probe.depth] = beta
                self._hedges_due += beta - granted
            return
        probe.slow = True
        self._slow += 1
        self._hedges_due += beta
        if probe.basis is Basis.OWN:
            # Something is wrong on the way, not with the guess: look more widely.
            self._alpha = max(self._alpha, ALPHA_RAISED)

    @property
    def _active(self) -> int:
        return len(self.in_flight) - self._slow

    # --- choosing -------------------------------------------------------------------------------------------

    def _start_nearest(self, now: float, *, hedge: bool) -> Probe | None:
        """Start a probe on the next path that has somebody to ask."""
        for _ in self._paths:
            path = self._paths[self._next_path]
            self._next_path = (self._next_path + 1) % len(self._paths)
            candidate = self._choose(path, now)
            if candidate is not None and (hedge or self._may_start(candidate.contact, now)):
                return self._start(path, candidate, now, hedge=hedge)
        return None

    def _may_start(self, candidate: Contact, now: float) -> bool:
        """Tell whether a probe may go out now.

        Connecting costs both ends two signatures and three round trips. So nobody is dialled while two others may
        answer any moment, one while one may, and two, a moment apart, when there are no others; more and at once when
        the network seems to be ill, but not so many that the dials themselves make it slow. Once somebody has answered,
        only probes of nodes nearer than the candidate are waited for: from the others nothing better is to be expected.
        """
        if self._near_enough <= 1 or self._peers.connected(candidate.id):
            return True
        ill = self._alpha >= ALPHA_RAISED
        most = DIALLING_MAX_RAISED if ill else DIALLING_MAX
        if self._active >= most and (not self._answers or self._nearer(candidate) >= most):
            return False
        self._dial_waits = not ill and self._active > 0 and now < self._next_dial_at
        return not self._dial_waits

    def _nearer(self, candidate: Contact) -> int:
        """Count the probes that are out, not slow, and nearer to the target than a candidate."""
        target = self.target
        away = candidate.id ^ target
        return sum(not probe.slow and peer ^ target < away for peer, probe in self.in_flight.items())

    def _choose(self, path: SearchPath, now: float) -> Candidate | None:
        """Return the nearest candidate to ask, or one nearly as near to whom a connection is open.

        One that another path asked is not asked again but shares its answer.
        """
        shared: list[Candidate] = []
        chosen: Candidate | None = None
        near = 0
        for candidate in path.worth_asking(self.rules.k):
            if candidate.depth > self.rules.hop_budget:
                self._cut_by_hops = True
                continue
            peer = candidate.contact.id
            if peer in self._answers or peer in self.in_flight:
                shared.append(candidate)
                continue
            near += 1
            if self._peers.connected(peer):
                chosen = candidate
                break
            chosen = chosen or candidate
            if near >= self._near_enough:
                break
        if shared:
            self._share(path, shared)
            return self._choose(path, now)
        return chosen or self._retry(path, now)

    def _share(self, path: SearchPath, shared: list[Candidate]) -> None:
        for candidate in shared:
            peer = candidate.contact.id
            probe = self.in_flight.get(peer)
            if probe is not None:
                candidate.state = ProbeState.WAITING
                probe.paths.append((path, candidate))
            else:
                candidate.state = ProbeState.ANSWERED
                self._hear(path, peer, self._answers[peer], candidate.depth)

    def _retry(self, path: SearchPath, now: float) -> Candidate | None:
        """Ask somebody who was busy again, but only when nobody else is left and nothing is under way."""
        if self._active or not self._retry_at:
            return None
        for candidate in path.front(self.rules.k):
            due = self._retry_at.get(candidate.contact.id, NEVER)
            if candidate.state is ProbeState.REFUSED and due <= now:
                del self._retry_at[candidate.contact.id]
                self.retries += 1
                return candidate
        return None

    def _start(self, path: SearchPath, candidate: Candidate, now: float, *, hedge: bool) -> Probe:
        peer = candidate.contact.id
        if self._near_enough > 1 and not self._peers.connected(peer):
            self._next_dial_at = now + DIALS_APART_S
        probe = Probe(candidate, now, self._peers.slow_point(peer), hedge=hedge)
        probe.paths.append((path, candidate))
        candidate.state = ProbeState.WAITING
        self.in_flight[peer] = probe
        self.messages += 1
        self.hedges += hedge
        return probe

    # --- outcomes -------------------------------------------------------------------------------------------

    def _settle(self, peer: int) -> Probe | None:
        probe = self.in_flight.pop(peer, None)
        if probe is None or self.outcome is not None:
            return None
        self._first_wave = False
        self._slow -= probe.slow
        return probe

    def _hear(self, path: SearchPath, peer: int, contacts: list[Contact], depth: int) -> None:
        path.hear_of(contacts, depth + 1, peer)

    def _win(self, peer: int) -> None:
        for index, path in enumerate(self._paths):
            candidate = path.known.get(peer)
            if candidate is None or candidate.state is not ProbeState.ANSWERED:
                continue
            self._winning_paths.add(index)
            if self._won is None:
                self._won = (candidate.depth, peer, path)

    def _satisfied(self) -> bool:
        live = len(self.providers())
        if not live:
            return False
        if len(self._paths) > 1:
            return len(self._winning_paths) >= PATHS_AGREEING
        return live >= self._limit if self.goal is Goal.LIMIT else self.goal is Goal.FIRST

    def _judge_end(self, now: float) -> None:
        """End when there is nobody left to ask and nobody to wait for."""
        if self._verifying:
            return
        waits = self.in_flight
        if not waits:
            if any(
                path.known[peer].state is ProbeState.REFUSED for peer in self._retry_at for path in self._holding(peer)
            ):
                return
            self._end(LookupEnd.HOPS if self._cut_by_hops and not self._won else LookupEnd.EXHAUSTED)
        elif self.goal is Goal.NODES and self._settled_nearest():
            self._end(LookupEnd.EXHAUSTED)

    def _holding(self, peer: int) -> list[SearchPath]:
        return [path for path in self._paths if peer in path.known]

    def _settled_nearest(self) -> bool:
        """Tell whether the k nearest have answered, or k have and only slow ones are missing."""
        k = self.rules.k
        if len(self._answers) < k:
            return False
        return not self._active or all(
            each.state is ProbeState.ANSWERED for path in self._paths for each in path.front(k)
        )

    def _nearest_answered(self) -> list[Contact]:
        if len(self._paths) == 1:
            return self._paths[0].answered(self.rules.k)
        joined = {contact.id: contact for path in self._paths for contact in path.answered(self.rules.k)}
        return sorted(joined.values(), key=lambda contact: contact.id ^ self.target)[: self.rules.k]

    def _end(self, ending: LookupEnd) -> None:
        nearest = tuple(self._nearest_answered())
        hops, trail = self._won[0] if self._won else self._deepest, self._trail()
        groups = {contact.group.group for contact in nearest if contact.group is not None}
        self.outcome = LookupOutcome(ending, hops, trail, self.messages, self.hedges, nearest, len(groups))

    def _trail(self) -> tuple[int, ...]:
        """Follow the answer back to the node its path began with."""
        if self._won is None:
            return ()
        peer = self._won[1]
        path = self._won[2]
        trail: list[int] = []
        while peer > 0:
            trail.append(peer)
            peer = path.known[peer].namer
        return tuple(reversed(trail))

"""What was allowed a moment ago is not judged again, and not a moment longer than it would be allowed."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.kernel.errors import PenstockError
from penstock.net.message import Peer
from penstock.net.server.ticket import NO_TICKET, Ticket
from penstock.services.mailbox.authority import MailboxAuthority
from penstock.wire.http1.head import HttpHead, StartLine
from penstock.wire.target import Target
from tests.capability.kit import NOW, Issuer, narrowed

SEND = StartLine("POST", Target(b"/v1/send", "/v1/send", ("v1", "send"), b""), 1)
ACK = StartLine("POST", Target(b"/v1/ack", "/v1/ack", ("v1", "ack"), b""), 1)


@dataclasses.dataclass
class Asked:
    """As much of a request as authority looks at."""

    head: HttpHead
    peer: Peer
    ticket: Ticket = NO_TICKET

    @property
    def headers(self):
        return self.head.headers

    @property
    def method(self):
        return self.head.method

    @property
    def segments(self):
        return self.head.target.segments


def asked(token: str, start: StartLine = SEND, host: str = "10.1.2.3") -> Asked:
    head = HttpHead(start, {b"host": b"localhost", b"authorization": b"Bearer " + token.encode()})
    return Asked(head, Peer(host, 1, None, False))


class Door:
    """An authority, and what it says to a request."""

    def __init__(self) -> None:
        self.issuer = Issuer()
        self.authority = MailboxAuthority(self.issuer.verifier)
        self.judged = 0
        judge = self.issuer.verifier.judge

        def counted(*args, **more) -> None:
            self.judged += 1
            judge(*args, **more)

        self.issuer.verifier.judge = counted

    def says(self, request: Asked, op: str = "send", topic: str = "orders/eu", cost_bytes: int = 0) -> str:
        try:
            assert self.authority.admit(request, op, topic, cost_bytes) is None
        except PenstockError as error:
            return error.code
        return "ok"


@pytest.fixture
def door() -> Door:
    return Door()


def test_the_same_request_is_judged_once(door):
    request = asked(door.issuer.token("op=send", "topic=orders/"))

    assert [door.says(request) for _ in range(5)] == ["ok"] * 5
    assert door.judged == 1
    assert door.issuer.verifier.hits == 5


@pytest.mark.parametrize(
    ("caveat", "other"),
    [
        ("op=send", {"op": "recv"}),
        ("topic=orders/eu", {"topic": "orders/us"}),
        ("ip=10.1.2.0/24", {"host": "10.9.9.9"}),
        ("route=/v1/send", {"start": ACK}),
    ],
)
def test_what_was_allowed_to_one_is_not_allowed_to_another(door, caveat, other):
    token = door.issuer.token(caveat)
    assert door.says(asked(token)) == "ok"
    named = {name: value for name, value in other.items() if name in ("op", "topic")}
    request = asked(token, **{name: value for name, value in other.items() if name not in named})

    assert [door.says(request, **named) for _ in range(2)] == ["forbidden"] * 2


def test_a_narrower_copy_is_judged_for_itself(door):
    token = door.issuer.token("op=send")
    assert door.says(asked(token)) == "ok"

    assert door.says(asked(narrowed(token, ("topic=billing/",)))) == "forbidden"


def test_a_revocation_is_seen_by_the_next_request(door):
    request = asked(door.issuer.token("op=send"))
    assert door.says(request) == "ok"
    door.issuer.revoke("subject_ref", "alice", 1)

    assert door.says(request) in {"unauthenticated", "expired", "forbidden"}


def test_a_key_that_is_gone_ends_what_it_signed(door):
    request = asked(door.issuer.token("op=send"))
    assert door.says(request) == "ok"
    door.issuer.trust.swap(keys={})

    assert door.says(request) == "unauthenticated"


@pytest.mark.parametrize("fields", [{"exp": NOW + 10}, {}])
def test_nothing_is_allowed_past_its_end(door, fields):
    caveats = () if fields else (f"exp={NOW + 10}",)
    request = asked(door.issuer.token(*caveats, **fields))
    assert door.says(request) == "ok"
    door.issuer.clock.advance(9.9)
    assert door.says(request) == "ok"
    door.issuer.clock.advance(60.2)

    assert door.says(request) == "expired"


def test_without_the_feed_nothing_more_is_sent(door):
    request = asked(door.issuer.token("op=send"))
    assert door.says(request) == "ok"
    door.issuer.trust.lease_until = door.issuer.clock.monotonic()

    assert door.says(request) == "not_ready"


@pytest.mark.parametrize(("caveat", "cost_bytes"), [("budget.reqs=3", 0), ("budget.bytes=300", 100)])
def test_what_is_counted_is_counted_every_time(door, caveat, cost_bytes):
    request = asked(door.issuer.token(caveat))

    assert [door.says(request, cost_bytes=cost_bytes) for _ in range(4)] == ["ok", "ok", "ok", "rate_limited"]


def test_what_is_remembered_is_bounded(door):
    token = door.issuer.token("op=send")
    for number in range(3000):
        assert door.says(asked(token), topic=f"t{number}") == "ok"

    assert len(door.authority._allowed) <= 1024


class Relayed(type(NO_TICKET)):
    """As a gateway in front puts it on a request."""

    relayed = True


def test_what_a_gateway_relays_never_stands(door):
    request = asked(door.issuer.token("op=send"))
    assert door.says(request) == "ok"
    assert door.authority.stands(request, "send", ["orders/eu"])

    assert not door.authority.stands(dataclasses.replace(request, ticket=Relayed()), "send", ["orders/eu"])
    assert not door.authority.stands(request, "send", ["orders/eu", "orders/us"])


@pytest.mark.parametrize(
    "end",
    [
        lambda issuer: issuer.revoke("subject_ref", "alice", 1),
        lambda issuer: issuer.trust.swap(keys={}),
        lambda issuer: issuer.clock.advance(2000),
    ],
    ids=["revoked", "key gone", "expired"],
)
def test_nothing_stands_longer_than_it_is_allowed(door, end):
    request = asked(door.issuer.token("op=send"))
    assert door.says(request) == "ok"
    assert door.authority.stands(request, "send", ["orders/eu"])
    end(door.issuer)

    assert not door.authority.stands(request, "send", ["orders/eu"])

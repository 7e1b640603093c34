"""Caveats that count at one service: they fit a worker that needs a topic and the store, and they widen nothing."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from penstock.capability.caveats import Caveat, from_wire, parse, parse_all
from penstock.capability.covers import uncovered
from penstock.capability.making import attenuate
from penstock.capability.relayed import judge_relayed
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden, Malformed, PenstockError, Unauthenticated
from penstock.wire import cbor
from tests.capability.kit import Issuer
from tests.capability.test_covers import asked, held

WORKER = ("svc-mailbox:op=recv,ack,nack", "svc-mailbox:topic=images/", "svc-storage:op=get")
BOTH = ("svc-mailbox", "svc-storage")


def verdict(token: str, issuer: Issuer, **context: str) -> str:
    """Return what the verifier says of a request: ok, or the reason why not."""
    try:
        issuer.verifier.verify(token, RequestContext(**context))
    except PenstockError as refused:
        return str(refused.facts["reason"])
    return "ok"


async def test_one_token_is_good_for_a_topic_and_for_the_store() -> None:
    issuer = Issuer()
    token = issuer.token(*WORKER, aud=BOTH)
    ask = partial(verdict, token, issuer)

    assert ask(aud="svc-mailbox", op="recv", topic="images/7") == "ok"
    assert ask(aud="svc-storage", op="get") == "ok"
    assert ask(aud="svc-mailbox", op="recv", topic="secrets") == "caveat:topic"
    assert ask(aud="svc-mailbox", op="send", topic="images/7") == "caveat:op"
    assert ask(aud="svc-storage", op="put") == "caveat:op"
    assert ask(aud="svc-passport", op="issue") == "caveat:aud"


async def test_a_service_for_which_only_others_have_an_op_refuses() -> None:
    """The list of another service is no list of this one, and no list is not every op."""
    issuer = Issuer()
    token = issuer.token("svc-mailbox:op=recv", aud=BOTH)

    assert verdict(token, issuer, aud="svc-mailbox", op="recv", topic="t") == "ok"
    assert verdict(token, issuer, aud="svc-storage", op="get") == "caveat:op"
    assert verdict(token, issuer, aud="svc-storage", op="recv") == "caveat:op"


async def test_an_op_that_must_be_named_is_named_by_its_own_service() -> None:
    """`svc-storage:op=admin` must not make anybody the admin of the mailbox."""
    issuer = Issuer()
    elsewhere = issuer.token("svc-storage:op=admin", "svc-mailbox:op=*", "svc-mailbox:topic=a", aud=BOTH)
    without = issuer.token("svc-storage:op=admin", "svc-mailbox:topic=a", aud=BOTH)
    here = issuer.token("svc-mailbox:op=admin", aud=BOTH)

    assert verdict(elsewhere, issuer, aud="svc-mailbox", op="admin", topic="a") == "ok", "a star names it"
    assert verdict(without, issuer, aud="svc-mailbox", op="admin", topic="a") == "caveat:op"
    assert verdict(here, issuer, aud="svc-mailbox", op="admin", topic="a") == "ok"


async def test_a_block_does_not_open_again_what_an_earlier_one_has_shut() -> None:
    issuer = Issuer()
    store_only = issuer.token("svc-storage:op=get,admin", aud=BOTH)
    reopened = attenuate(store_only, [parse("svc-mailbox:op=recv,admin")])

    for op in ("recv", "admin"):
        assert verdict(reopened, issuer, aud="svc-mailbox", op=op, topic="a") == "caveat:op"
    assert verdict(reopened, issuer, aud="svc-storage", op="get") == "caveat:op"
    opened = issuer.verifier.open(reopened)
    holding = replace(held(), caveats=opened.token.caveats, shut=opened.scoped.shut)
    assert uncovered(holding, asked("op=recv")) == "op"


async def test_an_op_that_must_be_named_is_not_taken_from_another_services_list() -> None:
    """The issuer named admin for the store; a block of the holder's may not make it the mailbox's."""
    issuer = Issuer()
    both = issuer.token("svc-storage:op=admin", "topic=a", aud=BOTH)
    root = issuer.verifier.open(both)

    assert root.granted_at("svc-mailbox") == frozenset()
    assert root.granted_at("svc-storage") == {"admin"}
    assert root.granted == frozenset()


@pytest.mark.parametrize(
    ("issuer", "request_", "missing"),
    [
        # By the name of the family alone, what is said about the store would count for the mailbox.
        (held("svc-mailbox:topic=a/"), asked("op=send", "svc-storage:topic=a/"), "topic"),
        (held("topic=a/"), asked("op=send", "svc-storage:topic=a/"), "topic"),
        (held("svc-mailbox:op=recv"), asked("svc-mailbox:op=send"), "op"),
        (held("svc-mailbox:topic=a/"), asked("op=send", "svc-mailbox:topic=a/b"), None),
        (held("svc-mailbox:topic=a/"), asked("op=send", "topic=a/b"), None),
        (held("svc-storage:topic=a/"), asked("op=send"), None),
        # Through the gateway a token reaches the mailbox without naming it.
        (
            held("svc-mailbox:topic=a/", aud=("omnigate", "svc-mailbox")),
            asked("op=send", aud=("omnigate",)),
            "topic",
        ),
    ],
)
def test_what_is_handed_on_is_judged_at_each_service_it_reaches(issuer, request_, missing) -> None:
    assert uncovered(issuer, request_) == missing


async def test_a_token_for_everybody_cannot_be_scoped() -> None:
    """What it does not name would be open, and a service that is added later would be too."""
    issuer = Issuer()
    everybody = issuer.token(aud=("*",))

    with pytest.raises(Malformed, match="names its audiences"):
        attenuate(everybody, [parse("svc-mailbox:op=recv")])
    forged = issuer.token("svc-mailbox:op=recv", aud=("*",))
    with pytest.raises(Unauthenticated) as refused:
        issuer.verifier.verify(forged, RequestContext(aud="svc-mailbox", op="recv"))
    assert refused.value.facts["reason"] == "malformed"


async def test_a_narrowing_to_the_gateway_does_not_shake_off_what_is_scoped_to_the_service_behind() -> None:
    issuer = Issuer()
    root = issuer.token("svc-mailbox:topic=images/", aud=("omnigate", "svc-mailbox"))
    narrowed = attenuate(root, [parse("aud=omnigate")])
    context = RequestContext(aud="svc-mailbox", op="recv", topic="secrets")

    for token in (root, narrowed):
        with pytest.raises(Forbidden) as refused:
            judge_relayed(partial(issuer.verifier.verify, token), context)
        assert refused.value.facts["reason"] == "caveat:topic"


async def test_at_a_configured_route_only_what_is_not_scoped_and_the_gateways_own_counts() -> None:
    issuer = Issuer()
    mailbox_only = issuer.token("svc-mailbox:op=get", aud=("omnigate", "svc-mailbox"))
    own = issuer.token("omnigate:op=get", aud=("omnigate", "svc-mailbox"))

    assert verdict(mailbox_only, issuer, aud="omnigate", op="get", service="omnigate") == "caveat:op"
    assert verdict(own, issuer, aud="omnigate", op="get", service="omnigate") == "ok"
    assert verdict(own, issuer, aud="route:/shop", op="get") == "ok"


@pytest.mark.parametrize(
    "text", ["svc-mailbox:exp=5", "svc-mail:op=recv", "*:op=recv", "svc-mailbox:svc-storage:op=get"]
)
def test_what_cannot_be_scoped_is_refused(text: str) -> None:
    with pytest.raises(Malformed):
        parse(text)


@pytest.mark.parametrize(
    "wire", [[19], [19, "svc-mailbox"], [19, "nobody", 5, "recv"], [19, "svc-mailbox", 19, "a", 5, "x"]]
)
def test_other_bytes_are_refused(wire: list[object]) -> None:
    with pytest.raises(Malformed):
        from_wire(wire)


def test_the_bytes_of_a_scoped_caveat_are_these() -> None:
    [caveat] = parse_all(["svc-mailbox:topic=images/"])

    assert cbor.encode(caveat.wire()).hex() == "84136b7376632d6d61696c626f780667696d616765732f"
    assert from_wire(cbor.decode(cbor.encode(caveat.wire()))) == caveat
    assert str(caveat) == "svc-mailbox:topic=images/"
    assert isinstance(caveat, Caveat)

"""An explanation tells what each condition of a token says to a request, and agrees with the verdict."""

from __future__ import annotations

import pytest

from penstock.capability.token import decode
from penstock.kernel.errors import Malformed
from penstock.node.passport_page import explained
from tests.capability.kit import NOW, Issuer

CAVEATS = ("svc-mailbox:op=recv,ack", "svc-mailbox:topic=images/", "svc-storage:op=get", "ip=10.0.0.0/8")
SERVICES = ("svc-mailbox", "svc-storage")


def says(against: str, *caveats: str, now: float = NOW) -> tuple[bool | None, list[str]]:
    """Explain a token; returns the verdict and what each condition says, the services first."""
    token = decode(Issuer().token(*(caveats or CAVEATS), aud=SERVICES))
    told = explained(token, against, now)
    return told.allowed, [each.says for each in told.conditions]


@pytest.mark.parametrize(
    ("against", "allowed", "answers"),
    [
        ("recv images/cat", True, ["allows", "allows", "allows", "elsewhere", "unknown"]),
        ("send images/cat", False, ["allows", "refuses", "allows", "elsewhere", "unknown"]),
        ("recv orders/1", False, ["allows", "allows", "refuses", "elsewhere", "unknown"]),
        ("ack", False, ["allows", "allows", "refuses", "elsewhere", "unknown"]),
        ("get", True, ["allows", "elsewhere", "elsewhere", "allows", "unknown"]),
        ("find", False, ["refuses", "elsewhere", "elsewhere", "elsewhere", "unknown"]),
        ("", None, [""] * 5),
    ],
)
def test_each_condition_says_what_it_means_for_a_request(
    against: str, allowed: bool | None, answers: list[str]
) -> None:
    assert says(against) == (allowed, answers)


def test_times_are_conditions_too() -> None:
    assert says("recv images/cat", f"exp={NOW + 10}", now=NOW + 9)[1] == ["allows", "allows"]
    assert says("recv images/cat", f"exp={NOW + 10}", now=NOW + 10) == (False, ["allows", "refuses"])
    assert says("recv images/cat", "rate.rps=5")[1] == ["allows", "unknown"]


def test_a_refusal_says_why_and_what_it_also_depends_on() -> None:
    told = explained(decode(Issuer().token(*CAVEATS, aud=SERVICES)), "send images/cat", NOW)

    assert told.why == "This needs op=send; the token allows svc-mailbox:op=recv,ack."
    assert told.hint == "Ask its issuer for one with op=send."
    assert told.if_also == ["ip=10.0.0.0/8"]
    assert (told.subject, told.tenant, told.audience, told.expires) == ("alice", "acme", SERVICES, NOW + 900)


@pytest.mark.parametrize("against", ["please let me in", "svc-mailbox:fly", "svc-mailboxes:send images/cat"])
def test_what_is_no_request_is_refused_with_an_example(against: str) -> None:
    with pytest.raises(Malformed, match="send images/x"):
        says(against)

"""Attacks, origins, events, the audit's lines and signed trials."""

from __future__ import annotations

import json
import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.contracts.passport import Attested
from penstock.kernel.errors import Integrity
from penstock.services.interop.attacks import EndpointAttack
from penstock.services.interop.audit import AuditBook, BridgeAct
from penstock.services.interop.events import KeptHeaders, StoredBody, WebhookArrival, WebhookEvent, write_event
from penstock.services.interop.origins import OriginPin, read_networks, real_peer
from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import WebhookRequest, verify
from penstock.services.interop.signing import WebhookTrial, sign_delivery
from penstock.wire.audit_chain import ChainEnd, walk_chain
from tests.services.interop.senders import NOW, SENDERS, settings

# --- bad signatures --------------------------------------------------------------------------------------------------


def test_attack_is_announced_once_and_then_counted():
    attack = EndpointAttack(limit=3, now=0)

    assert [attack.bad(at) for at in (1, 2, 3, 4, 5, 6)] == [
        "audit",
        "audit",
        "audit",
        "attacked",
        "counted",
        "counted",
    ]


def test_limit_a_minute_is_no_attack():
    attack = EndpointAttack(limit=60, now=0)

    assert {attack.bad(n * 1.0) for n in range(600)} == {"audit"}


def test_what_was_counted_is_written_once_a_minute_and_at_the_end():
    attack = EndpointAttack(limit=1, now=0)
    for n in range(10):
        attack.bad(n)

    assert [attack.look(now) for now in (10, 60, 61, 62)] == [0, 0, 8, 0]
    # One more, while the minute before it was quiet: the attack is over, and the rest of the count is written.
    attack.bad(70)
    assert attack.look(70) == 1
    assert not attack.active
    assert attack.look(200) == 0


def test_attack_ends_when_a_minute_is_quiet():
    attack = EndpointAttack(limit=1, now=0)
    for at in (1, 2, 3):
        attack.bad(at)
    attack.look(70)

    assert attack.bad(71) == "audit"


# --- origins ---------------------------------------------------------------------------------------------------------

PROXIES = read_networks(["10.0.0.0/8", "::1"])


@pytest.mark.parametrize(
    ("peer", "forwarded", "found"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", [b"203.0.113.9"], "192.0.2.1"),
        ("10.0.0.1", [b"203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [b"6.6.6.6, 203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [b"203.0.113.9, 10.0.0.2"], "203.0.113.9"),
        ("10.0.0.1", [b"6.6.6.6", b"203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", [b"6.6.6.6, junk"], "None"),
        ("10.0.0.1", [b"\xff"], "None"),
        ("10.0.0.1", [b"10.0.0.3"], "10.0.0.3"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
        ("", [], "None"),
        ("10.0.0.1", [b"6.6.6.6" + b",10.0.0.1" * 40], "10.0.0.1"),
    ],
)
def test_sender_is_the_rightmost_address_that_no_proxy_has(peer, forwarded, found):
    fields = [(b"X-Forwarded-For", value) for value in forwarded]

    assert str(real_peer(peer, fields, PROXIES)) == found


@pytest.mark.parametrize(
    ("pin", "peer", "host", "refusal"),
    [
        ({}, "192.0.2.1", [b"a"], ""),
        ({"ips": ["192.0.2.0/24"]}, "192.0.2.1", [b"a"], ""),
        ({"ips": ["192.0.2.0/24"]}, "198.51.100.1", [b"a"], "ip"),
        ({"ips": ["192.0.2.0/24"]}, "", [b"a"], "ip"),
        ({"ips": ["192.0.2.0/24"]}, "2001:db8::1", [b"a"], "ip"),
        ({"hosts": ["Hooks.Example.org"]}, "192.0.2.1", [b"hooks.example.ORG:443"], ""),
        ({"hosts": ["hooks.example.org"]}, "192.0.2.1", [b"hooks.example.org.evil"], "host"),
        ({"hosts": ["hooks.example.org"]}, "192.0.2.1", [], "host"),
        ({"hosts": ["hooks.example.org"]}, "192.0.2.1", [b"hooks.example.org", b"evil"], "host"),
        ({"hosts": ["::1"]}, "192.0.2.1", [b"[::1]:80"], ""),
    ],
)
def test_origin_is_pinned_by_address_and_host(pin, peer, host, refusal):
    pinned = OriginPin(ips=read_networks(pin.get("ips", [])), hosts=pin.get("hosts", ()), proxies=PROXIES)

    assert pinned.refuses(peer, [(b"host", value) for value in host]) == refusal


def test_pin_behind_a_proxy_looks_at_the_sender():
    pinned = OriginPin(ips=read_networks(["192.0.2.0/24"]), proxies=PROXIES)

    assert pinned.refuses("10.0.0.1", [(b"x-forwarded-for", b"192.0.2.7")]) == ""
    assert pinned.refuses("10.0.0.1", [(b"x-forwarded-for", b"192.0.2.7, 6.6.6.6")]) == "ip"
    assert pinned.refuses("6.6.6.6", [(b"x-forwarded-for", b"192.0.2.7")]) == "ip"


def test_what_is_no_network_is_refused_with_a_sentence():
    with pytest.raises(ValueError, match=r"'x' is not an address"):
        read_networks(["x"])


@given(peer=st.text(max_size=20), value=st.binary(max_size=60))
@examples(max_examples=100, deadline=None)
def test_any_forwarded_for_is_read_without_raising(peer, value):
    assert (
        OriginPin(ips=read_networks(["192.0.2.1"]), proxies=PROXIES).refuses(peer, [(b"x-forwarded-for", value)])
        == "ip"
    )


# --- events ----------------------------------------------------------------------------------------------------------


def _event(kind, body=b"", *, extra=()):
    """Write the event of a delivery; returns its JSON text, and what was sent."""
    sender = SENDERS[kind]
    sent = sender.send()
    verifier = make_verifier(kind, WebhookSetup(**settings(sender)))
    request = WebhookRequest([*sent.fields, *extra], sent.body, sent.target)
    verdict = verify(verifier, request, NOW)
    arrival = WebhookArrival(kind, "hook", 5, verdict.claim)
    return write_event(arrival, KeptHeaders(verifier), request, verdict, body), sent


def _read(event):
    return msgspec.json.decode(event, type=WebhookEvent)


@pytest.mark.parametrize("kind", SENDERS)
def test_event_shows_no_secret_and_no_signature(kind):
    extra = [
        (b"Authorization", b"Bearer fake"),
        (b"Cookie", b"a=fake"),
        (b"X-Gitlab-Token", b"fake"),
        (b"X-Api-Key", b"fake"),
        (b"X-Hub-Signature", b"fake"),
        (b"Proxy-Authorization", b"fake"),
        (b"X-Auth", b"fake"),
        (b"Host", b"h"),
        (b"User-Agent", b"ua"),
    ][: 2 if kind == "gitlab" else None]
    event, sent = _event(kind, extra=extra)
    text = event.decode()

    assert "fake" not in text.replace("fake-", "")
    assert sent.value(SENDERS[kind].signature).decode() not in text
    assert SENDERS[kind].secret not in text


def test_event_says_what_is_unsigned():
    event, _ = _event("standard_webhooks", extra=[(b"X-Other", b"1")])

    assert set(_read(event).headers) == {"webhook-id", "webhook-timestamp", "x-other"}
    assert _read(event).unsigned == ("x-other",)
    github, _ = _event("github")
    assert _read(github).unsigned == ("x-github-event", "x-github-delivery", "id", "type")


@pytest.mark.parametrize(
    ("body", "member", "value"),
    [
        (b'{"a": 1}', "body", '{"a": 1}'),
        ("gr\u00fc\u00dfe\r\n\0".encode(), "body", "gr\u00fc\u00dfe\r\n\0"),
        (b"\xff\x00", "body_b64", "/wA="),
        (StoredBody("b3:00", 7), "body_addr", "b3:00"),
        (b"", "body", ""),
    ],
)
def test_body_is_exact_text_or_base64_or_an_address(body, member, value):
    written = json.loads(_event("github", body)[0])

    assert written[member] == value
    assert [name for name in written if name.startswith("body")] == [member] + ["body_size"] * (member == "body_addr")
    assert written["claim"].startswith("content:")


def test_repeated_field_is_shown_whole():
    event, _ = _event("github", extra=[(b"X-Many", b"1"), (b"X-Many", b"\xff")])

    assert _read(event).headers["x-many"] == "1, \ufffd"


def test_what_was_decided_of_a_name_is_remembered_for_a_bounded_number_of_names():
    verifier = make_verifier("github", WebhookSetup(secrets=(b"fake",)))
    kept = KeptHeaders(verifier)
    for n in range(3000):
        request = WebhookRequest([(b"x-%d" % n, b"1"), (b"x-secret-%d" % n, b"2"), (b"cookie", b"3")], b"")
        assert kept.of(request) == {f"x-{n}": "1"}

    assert len(kept._names) <= 1024


# --- audit -----------------------------------------------------------------------------------------------------------


def _act(n):
    return BridgeAct("webhook", n, "deny", corr_id=f"c{n}", endpoint="hook", reason="wrong_signature", status=401)


def test_lines_form_a_chain_that_breaks_where_it_is_changed():
    lines = AuditBook().write([_act(n) for n in range(5)], 0, 9).splitlines(keepends=True)

    assert walk_chain(lines).records == 5
    for broken in (
        [*lines[:2], *lines[3:]],
        [lines[1], lines[0], *lines[2:]],
        [lines[0], lines[1].replace(b"401", b"200"), *lines[2:]],
    ):
        with pytest.raises(Integrity):
            walk_chain(broken)


def test_dropped_acts_leave_a_record_and_no_gap():
    book = AuditBook()
    lines = book.write([_act(1)], 0, 1) + book.write([_act(5)], 3, 5) + book.write([_act(6)], 3, 6)
    found = [json.loads(line) for line in lines.splitlines()]

    assert [record["action"] for record in found] == ["webhook", "dropped", "webhook", "webhook"]
    assert found[1]["facts"] == {"dropped": 3}
    assert walk_chain(lines.splitlines(keepends=True)) == book.end


def test_chain_goes_on_after_a_restart():
    first = AuditBook()
    before = first.write([_act(1)], 0, 1)
    second = AuditBook(first.end)
    after = second.write([_act(2)], 0, 2)

    assert walk_chain((before + after).splitlines(keepends=True)).records == 2


def test_head_is_signed_every_thousand_records_and_at_the_drain():
    book = AuditBook()
    book.write([_act(n) for n in range(999)], 0, 1)
    assert book.attest_due(draining=False) is None
    assert book.attest_due(draining=True) == book.end
    book.write([_act(1000)], 0, 1)

    due = book.attest_due(draining=False)
    word = Attested("svc-interop", due.records, due.head, 5, "k1", "sig")
    line = json.loads(book.attested(word, 2))

    assert line["facts"] == {
        "service": "svc-interop",
        "n": 1000,
        "head": due.head,
        "at_ms": 5,
        "kid": "k1",
        "signature": "sig",
    }
    assert book.attest_due(draining=True) is None
    assert due == ChainEnd(1000, due.head)


def test_unfinished_last_line_is_ignored():
    lines = AuditBook().write([_act(1), _act(2)], 0, 1).splitlines(keepends=True)

    assert walk_chain([lines[0], lines[1][:-1]]).records == 1


# --- trials ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in SENDERS if kind != "discord"])
def test_trial_is_accepted_by_its_endpoint(kind):
    sender = SENDERS[kind]
    verifier = make_verifier(kind, WebhookSetup(**settings(sender)))
    body = sender.at(b'{"a":1}', NOW)
    trial = WebhookTrial(kind=kind, url="https://hooks.example.org/webhooks/test", body=body, now=NOW, event_id="msg_1")

    signed = sign_delivery(verifier, trial)

    target = signed.url.removeprefix("https://hooks.example.org").encode()
    assert verify(verifier, WebhookRequest(signed.fields, signed.body, target), NOW).accepted


def test_curl_line_survives_a_shell():
    verifier = make_verifier("gitlab", WebhookSetup(secrets=(b"fake'; rm -rf $HOME #",)))
    trial = WebhookTrial(kind="gitlab", url="https://h/webhooks/a?b=1&c=2", body=b"{}", now=NOW, event_id="m")
    words = shlex.split(sign_delivery(verifier, trial).curl("it's.json"))

    assert words[0] == "curl"
    assert "x-gitlab-token: fake'; rm -rf $HOME #" in words
    assert words[-2:] == ["@it's.json", "https://h/webhooks/a?b=1&c=2"]

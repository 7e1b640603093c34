"""Pairs of deliveries: of one event, or of two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.services.interop.deliveries import Pair
from tests.services.interop.delivery_kinds import twilio_json
from tests.services.interop.senders import NOW, SENDERS, Sender, Sent, settings, standard, twilio_signed


def pairs() -> list[Pair]:
    """List pairs of deliveries, each of one event or of two."""
    found = [pair for sender in SENDERS.values() for pair in _common_pairs(sender)]
    return [*found, *_label_pairs(), *_id_pairs(), *_twilio_pairs(), *_linear_pairs()]


def _common_pairs(sender: Sender) -> Iterator[Pair]:
    setup, good = settings(sender), sender.send()
    later = sender.send(now=NOW + 50)
    yield Pair(sender.kind, "retry_signed_anew", setup, good, later, same=True, later_s=50)
    other = sender.body.replace(b"1", b"2").replace(b"77", b"78")
    yield Pair(sender.kind, "another_event", settings(sender), good, _other_id(sender, other), same=False)
    both = settings(sender, sender.secret, sender.other)
    yield Pair(sender.kind, "retry_after_rotation", both, good, sender.send(secret=sender.other), same=True)
    stray = good.and_field(b"x-request-id", b"1").and_field(b"user-agent", b"other")
    yield Pair(sender.kind, "other_unsigned_fields", setup, good, stray, same=True)


def _other_id(sender: Sender, body: bytes) -> Sent:
    """Send another event: the kinds that sign an id of their own field get another id."""
    prefix = {"standard_webhooks": "webhook", "svix": "svix"}.get(sender.kind)
    return (replace(sender, sign=standard(prefix, "msg_2")) if prefix else sender).send(body)


def _label_pairs() -> Iterator[Pair]:
    """Replay under another event name or delivery id: these fields are not signed."""
    for kind, names in {
        "github": (b"x-github-event", b"x-github-delivery"),
        "gitea": (b"x-gitea-event",),
        "shopify": (b"x-shopify-topic",),
        "gitlab": (b"x-gitlab-event",),
        "linear": (b"linear-delivery",),
    }.items():
        for name in names:
            good = SENDERS[kind].send()
            replay = good.with_field(name, b"another")
            yield Pair(kind, f"replay_under_other_{name.decode()}", settings(SENDERS[kind]), good, replay, same=True)
    sender = SENDERS["twilio"]
    replay = sender.send().and_field(b"i-twilio-idempotency-token", b"another")
    yield Pair("twilio", "replay_under_other_token", settings(sender), sender.send(), replay, same=True)


def _id_pairs() -> Iterator[Pair]:
    for kind, first, second in (
        ("stripe", b'{"id":"evt_1","pending_webhooks":2}', b'{"id":"evt_1","pending_webhooks":1}'),
        ("slack_webhook", b'{"event_id":"Ev1","n":1}', b'{"event_id":"Ev1","n":2}'),
        ("discord", b'{"type":2,"id":"7","n":1}', b'{"type":2,"id":"7","n":2}'),
    ):
        sender = SENDERS[kind]
        yield Pair(kind, "signed_id_decides", settings(sender), sender.send(first), sender.send(second), same=True)
    for kind in ("stripe", "slack_webhook"):
        sender = SENDERS[kind]
        first, second = sender.send(b'{"n":1}'), sender.send(b'{"n":2}')
        yield Pair(kind, "no_id_means_content", settings(sender), first, second, same=False)
        form = (sender.send(b"command=a&trigger_id=1"), sender.send(b"command=a&trigger_id=2"))
        yield Pair(kind, "form_means_content", settings(sender), *form, same=False)
    gitlab = SENDERS["gitlab"]
    keyed = [
        gitlab.send(body).and_field(b"idempotency-key", key)
        for body, key in ((b"{}", b"a"), (b"[]", b"a"), (b"{}", b"b"))
    ]
    yield Pair("gitlab", "repeat_id_decides", settings(gitlab), keyed[0], keyed[1], same=True)
    yield Pair("gitlab", "other_repeat_id", settings(gitlab), keyed[0], keyed[2], same=False)


def _twilio_pairs() -> Iterator[Pair]:
    sender = SENDERS["twilio"]
    setup, good = settings(sender), sender.send()
    sid = sender.send(b"MessageSid=SM1&MessageStatus=sent"), sender.send(b"MessageSid=SM1&MessageStatus=delivered")
    yield Pair("twilio", "message_sid_is_no_claim", setup, *sid, same=False)
    yield Pair("twilio", "other_url", setup, good, sender.send(target=b"/webhooks/test?tenant=2"), same=False)
    # One signature fits both forms: the second is the first, rewritten by somebody who saw it.
    recut = sender.send(b"ab=c"), replace(sender.send(b"ab=c"), body=b"a=bc")
    yield Pair("twilio", "rewritten_form_is_a_replay", setup, *recut, same=True)
    ported = good.with_field(
        b"x-twilio-signature", twilio_signed(b"https://hooks.example.org:443" + good.target, good.body, sender.secret)
    )
    yield Pair("twilio", "port_does_not_matter", setup, good, ported, same=True)
    yield Pair("twilio", "other_json", setup, twilio_json(), twilio_json(b'{"a":2}'), same=False)


def _linear_pairs() -> Iterator[Pair]:
    sender = SENDERS["linear"]
    raw = replace(sender, at=lambda body, _: body)
    time = b',"webhookTimestamp":1700000000000}'
    for rule, first, second, same in (
        ("order_of_members", b'{"a":1,"b":2', b'{"b":2,"a":1', True),
        ("blanks", b'{"a":[1, 2]', b'{"a":[1,2]', True),
        ("number_and_text", b'{"a":1', b'{"a":"1"', False),
        ("true_and_text", b'{"a":true', b'{"a":"True"', False),
        ("null_and_false", b'{"a":null', b'{"a":false', False),
        ("nested_time_counts", b'{"a":{"webhookTimestamp":1}', b'{"a":{"webhookTimestamp":2}', False),
        ("close_numbers", b'{"a":0.1', b'{"a":0.1000000000000000055', False),
        ("list_and_nested_list", b'{"a":[1,2]', b'{"a":[[1,2]]', False),
        ("quote_in_text", b'{"a":"b","c":"d"', b'{"a":"bc\\"d"', False),
        ("quote_in_item", b'{"a":["b","c"]', b'{"a":["b\\"c"]', False),
        ("cut_elsewhere", b'{"a":["b","c"]', b'{"a":["bc"]', False),
        ("empty_list_and_object", b'{"a":[]', b'{"a":{}', False),
    ):
        yield Pair("linear", rule, settings(sender), raw.send(first + time), raw.send(second + time), same=same)

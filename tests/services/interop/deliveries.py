"""What every verifier must accept and refuse, as data: requests with their verdicts, and pairs with their claims."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tests.services.interop.senders import (
    NOW,
    SENDERS,
    Sender,
    Sent,
    settings,
)

PRODUCT = "penstock.services.interop.providers"
TIMED = [sender for sender in SENDERS.values() if sender.time or sender.kind in ("stripe", "linear", "hmac")]
# GitLab's plain token signs nothing, so a changed body cannot be seen.
SIGNING = [sender for sender in SENDERS.values() if sender.kind != "gitlab"]


@dataclass(frozen=True)
class Case:
    """A request, and the refusal it must get; empty when it must be accepted."""

    kind: str
    rule: str
    setup: dict[str, Any]
    sent: Sent
    refusal: str = ""
    now: float = NOW

    def __str__(self) -> str:
        return f"{self.kind}-{self.rule}"


@dataclass(frozen=True)
class Pair:
    """Two requests that must be accepted, and whether they are the same event."""

    kind: str
    rule: str
    setup: dict[str, Any]
    first: Sent
    second: Sent
    same: bool
    later_s: float = 0

    def __str__(self) -> str:
        return f"{self.kind}-{self.rule}"


def judge(package: str, kind: str, setup: dict[str, Any], sent: Sent, now: float) -> Any:
    """Run one copy of the verifiers on a request."""
    kinds, verdict, setups = (import_module(f"{package}.{name}") for name in ("kinds", "verdict", "setup"))
    verifier = kinds.make_verifier(kind, setups.WebhookSetup(**setup))
    return verdict.verify(verifier, verdict.WebhookRequest(sent.fields, sent.body, sent.target), now)


def broken(package: str, case: Case | Pair) -> str:
    """Return what is wrong with how a copy of the verifiers judges this; empty when nothing is."""
    if isinstance(case, Case):
        found = judge(package, case.kind, case.setup, case.sent, case.now)
        refusal = found.refusal or ""
        return "" if refusal == case.refusal else f"{case}: {refusal or 'accepted'}, not {case.refusal or 'accepted'}"
    first = judge(package, case.kind, case.setup, case.first, NOW)
    second = judge(package, case.kind, case.setup, case.second, NOW + case.later_s)
    if first.refusal or second.refusal or first.claim is None:
        return f"{case}: {first.refusal}, {second.refusal}"
    return "" if (first.claim == second.claim) is case.same else f"{case}: same is {not case.same}"


# --- every kind ------------------------------------------------------------------------------------------------------


def _common(sender: Sender) -> Iterator[Case]:
    kind, setup, good, sig = sender.kind, settings(sender), sender.send(), sender.signature
    yield Case(kind, "good", setup, good)
    yield Case(
        kind, "field_name_in_other_case", setup, replace(good, fields=tuple((n.title(), v) for n, v in good.fields))
    )
    yield Case(kind, "wrong_secret", setup, sender.send(secret=sender.other), "wrong_signature")
    rotated = settings(sender, sender.other, sender.secret)
    yield Case(kind, "rotation_new", rotated, sender.send(secret=sender.other))
    yield Case(kind, "rotation_old", rotated, good)
    yield Case(kind, "rotated_out", settings(sender, sender.other), good, "wrong_signature")
    yield Case(kind, "no_signature", setup, good.without(sig), "no_signature")
    yield Case(kind, "two_signatures_alike", setup, good.and_field(sig, good.value(sig)), "repeated_field")
    yield Case(kind, "two_signatures", setup, good.and_field(sig.title(), b"x"), "repeated_field")
    yield Case(
        kind, "joined_signatures", setup, good.with_field(sig, good.value(sig) + b", " + good.value(sig)), _joined(kind)
    )
    yield Case(kind, "empty_signature", setup, good.with_field(sig, b""), _empty(kind))
    if kind not in ("standard_webhooks", "svix", "discord"):
        # An HMAC hashes a secret that is longer than its block of 64 bytes.
        for chars in (64, 65, 200):
            long = "s" * chars
            yield Case(kind, f"secret_of_{chars}", settings(sender, long), sender.send(secret=long))


def _joined(kind: str) -> str:
    """Say what becomes of a field that a proxy joined; Stripe's then has two times, Standard's is no list of blanks."""
    return {"stripe": "bad_timestamp", "gitlab": "wrong_signature"}.get(kind, "bad_signature_form")


def _empty(kind: str) -> str:
    return {"stripe": "no_timestamp", "gitlab": "wrong_signature"}.get(kind, "bad_signature_form")


def _changed(sender: Sender) -> Iterator[Case]:
    kind, setup, good = sender.kind, settings(sender), sender.send()
    changed = bytes([good.body[0] ^ 1]) + good.body[1:]
    yield Case(kind, "changed_body", setup, replace(good, body=changed), "wrong_signature")
    yield Case(kind, "longer_body", setup, replace(good, body=good.body + b" "), "wrong_signature")
    yield Case(kind, "empty_body", setup, replace(good, body=b""), "wrong_signature")


def _spelling(sender: Sender) -> Iterator[Case]:
    """Give the signature in every spelling that is not the one."""
    kind, setup, good, sig = sender.kind, settings(sender), sender.send(), sender.signature
    text = good.value(sig)
    if sender.encoding == "hex":
        head, _, tag = text.rpartition(b"=")
        head += b"=" if head else b""
        spellings = {
            "upper_hex": tag.upper(),
            "short_hex": tag[:-2],
            "long_hex": tag + b"00",
            "no_hex": b"z" * len(tag),
            "blank_in_hex": tag[:2] + b" " + tag[3:],
            "non_ascii": b"\xff" * len(tag),
            "odd_hex": tag[:-1],
            "newline": tag + b"\n",
        }
    else:
        head, comma, tag = text.rpartition(b",")
        head += comma
        spellings = {
            "junk_base64": tag[:4] + b"!!" + tag[4:],
            "no_padding": tag.rstrip(b"="),
            "tail": tag + b"AAAA",
            "url_base64": b"-_" + tag[2:],
            "newline": tag + b"\n",
            "non_ascii": b"\xff" + tag[1:],
            "unused_bits": _unused_bits(tag),
            "more_padding": tag + b"=",
        }
    for rule, spelled in spellings.items():
        yield Case(kind, rule, setup, good.with_field(sig, head + spelled), "bad_signature_form")
    if kind in ("github", "slack_webhook"):
        yield Case(kind, "no_prefix", setup, good.with_field(sig, tag), "bad_signature_form")
    prefix = {"github": b"sha1=", "slack_webhook": b"v1=", "standard_webhooks": b"v2,", "svix": b"v2,"}.get(kind)
    if prefix is not None:
        yield Case(kind, "other_prefix", setup, good.with_field(sig, prefix + tag), "bad_signature_form")


def _unused_bits(tag: bytes) -> bytes:
    """Change only bits that a lax decoder throws away."""
    letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    last = tag.rstrip(b"=")[-1:]
    spelled = letters[letters.index(last) + 1 : letters.index(last) + 2]
    return tag.rstrip(b"=")[:-1] + spelled + tag[len(tag.rstrip(b"=")) :]


BAD_TIMES = (
    b"1_700_000_000",
    b"+1700000000",
    b"01700000000",
    b" 1700000000",
    b"1700000000.0",
    b"-1",
    b"0",
    b"",
    b"abc",
    b"1700000000000",
    b"\xd9\xa1\xd9\xa7",
    b"1e9",
)


def _times(sender: Sender) -> Iterator[Case]:
    kind, setup, window = sender.kind, settings(sender), sender.window_s
    yield Case(kind, "oldest", setup, sender.send(now=NOW - window))
    yield Case(kind, "newest", setup, sender.send(now=NOW + window))
    yield Case(kind, "too_old", setup, sender.send(now=NOW - window - 1), "too_old")
    yield Case(kind, "in_future", setup, sender.send(now=NOW + window + 1), "in_future")
    yield Case(kind, "a_day_ahead", setup, sender.send(now=NOW + 86_400), "in_future")
    narrow = settings(sender, tolerance_s=5)
    yield Case(kind, "own_window", narrow, sender.send(now=NOW - 5))
    yield Case(kind, "outside_own_window", narrow, sender.send(now=NOW - 6), "too_old")
    if sender.time:
        good = sender.send()
        yield Case(kind, "no_time", setup, good.without(sender.time), "no_timestamp")
        yield Case(kind, "two_times", setup, good.and_field(sender.time, good.value(sender.time)), "repeated_field")
        yield Case(kind, "changed_time", setup, good.with_field(sender.time, b"%d" % (NOW + 1)), "wrong_signature")
        for time in BAD_TIMES:
            yield Case(kind, f"time_{time!r}", setup, good.with_field(sender.time, time), "bad_timestamp")


def common_cases() -> list[Case]:
    """List what holds for every kind, every one that signs, and every one with a time."""
    found: list[Case] = []
    for sender in SENDERS.values():
        found += _common(sender)
    for sender in SIGNING:
        found += [*_changed(sender), *_spelling(sender)]
    for sender in TIMED:
        found += _times(sender)
    return found

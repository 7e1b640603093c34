"""Header fields and base strings drawn by their grammar: exactly what the rule says is accepted, whatever the shape.

Random bytes rarely come near a good signature. Here the parts are good ones, wrong ones and misspelt ones in any order
and number, and a small model in each test says what has to become of them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.services.interop.providers.decoding import read_base64, read_hex, read_seconds
from penstock.services.interop.providers.kinds import make_verifier
from penstock.services.interop.providers.setup import WebhookSetup
from penstock.services.interop.providers.verdict import RefusedWebhook, WebhookRequest, verify
from tests.services.interop import senders
from tests.services.interop.deliveries import BAD_TIMES, TIMED, Case
from tests.services.interop.delivery_kinds import cases
from tests.services.interop.senders import NOW, SENDERS
from tests.services.interop.worlds import bridge

EXAMPLES = settings(max_examples=150, deadline=None)
TIME = b"%d" % NOW


def _verifier(kind):
    return make_verifier(kind, WebhookSetup(**senders.settings(SENDERS[kind])))


# --- one spelling ----------------------------------------------------------------------------------------------------

BLANKS = st.sampled_from([b"", b" ", b"\n", b"\t", b"_", b"+", b"=", b"0", b"\xff"])


def _bent(good):
    """Draw a good text, or one with something put into it or its case changed."""
    put = st.tuples(good, BLANKS, st.integers(0, 70)).map(
        lambda drawn: drawn[0][: drawn[2]] + drawn[1] + drawn[0][drawn[2] :]
    )
    return st.one_of(good, put, good.map(bytes.upper), good.map(bytes.swapcase), good.map(lambda text: text[:-1]))


@given(_bent(st.binary(min_size=32, max_size=32).map(lambda tag: tag.hex().encode())))
@EXAMPLES
def test_hex_that_is_read_is_written_the_same(text):
    with suppress(RefusedWebhook):
        assert read_hex(text, 32).hex().encode() == text


@given(_bent(st.binary(min_size=30, max_size=34).map(base64.b64encode)))
@EXAMPLES
def test_base64_that_is_read_is_written_the_same(text):
    with suppress(RefusedWebhook):
        data = read_base64(text, 32)
        assert (base64.b64encode(data), len(data)) == (text, 32)


@given(_bent(st.integers(0, 10**13).map(lambda number: b"%d" % number)))
@EXAMPLES
def test_time_that_is_read_is_written_the_same(text):
    with suppress(RefusedWebhook):
        number = read_seconds(text)
        assert (b"%d" % number, 0 < number < 10**12) == (text, True)


# --- header fields by their grammar ----------------------------------------------------------------------------------

STRIPE = SENDERS["stripe"]
GOOD_STRIPE = STRIPE.send().value(b"stripe-signature").partition(b"v1=")[2]
WRONG_HEX = b"0" * 64
stripe_members = st.lists(
    st.one_of(
        st.sampled_from([(b"t", TIME), (b"v1", GOOD_STRIPE), (b"v1", WRONG_HEX), (b"v0", GOOD_STRIPE), (b"v2", b"x")]),
        st.sampled_from([(b"t", b"01"), (b"v1", GOOD_STRIPE.upper()), (b"v1", b""), (b"", b""), (b"v1 ", GOOD_STRIPE)]),
    ),
    max_size=20,
)


@given(stripe_members)
@EXAMPLES
def test_stripe_field_is_accepted_exactly_when_its_members_say_so(members):
    sent = STRIPE.send().with_field(b"stripe-signature", b",".join(b"%b=%b" % member for member in members))

    found = verify(_verifier("stripe"), WebhookRequest(sent.fields, sent.body), NOW)

    times = [value for name, value in members if name == b"t"]
    tags = [value for name, value in members if name.strip() == b"v1"]
    well_formed = all(tag in (GOOD_STRIPE, WRONG_HEX) for tag in tags)
    assert found.accepted is (times == [TIME] and well_formed and GOOD_STRIPE in tags and len(tags) <= 16)
    assert found.accepted or found.claim is None


STANDARD = SENDERS["standard_webhooks"]
GOOD_V1 = STANDARD.send().value(b"webhook-signature")
WRONG_V1 = b"v1," + base64.b64encode(bytes(32))
OTHER_VERSIONS = (b"v2,AAAA", b"", b"v1b,x", b"V1" + GOOD_V1[2:])
MISSPELT = (GOOD_V1.rstrip(b"="), b"v1,", b"v1", GOOD_V1 + b",", b"v1a" + GOOD_V1[2:])


@given(st.lists(st.sampled_from([GOOD_V1, WRONG_V1, *OTHER_VERSIONS, *MISSPELT]), max_size=20))
@EXAMPLES
def test_standard_field_is_accepted_exactly_when_a_good_one_comes_before_a_misspelt_one(candidates):
    sent = STANDARD.send().with_field(b"webhook-signature", b" ".join(candidates))

    found = verify(_verifier("standard_webhooks"), WebhookRequest(sent.fields, sent.body), NOW)

    decisive = [each for each in candidates if each == GOOD_V1 or each in MISSPELT]
    assert found.accepted is (len(candidates) <= 16 and decisive[:1] == [GOOD_V1])
    assert found.accepted or found.claim is None


TWILIO = SENDERS["twilio"]
SETTING = b"x-twilio-webhooks-signature-settings"


@given(
    st.lists(
        st.sampled_from(
            [b"algorithm=HMAC_SHA1", b"algorithm=HMAC_SHA256", b"algorithm=", b"key=k", b"", b" key=k ", b"x"]
        ),
        max_size=5,
    )
)
@EXAMPLES
def test_twilio_settings_name_one_algorithm_or_none(members):
    sent = TWILIO.send().and_field(SETTING, b",".join(members))

    found = verify(_verifier("twilio"), WebhookRequest(sent.fields, sent.body, sent.target), NOW)

    named = [member for member in members if member.startswith(b"algorithm=")]
    assert found.accepted is (named in ([], [b"algorithm=HMAC_SHA1"]))


# --- base strings ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["slack_webhook", "stripe", "standard_webhooks", "svix", "discord", "hmac"])
@given(shift=st.integers(-12, 12), body=st.sampled_from([b'{"id":"1"}', b"1700000000.x", b"0:1:{}", b".1.2."]))
@EXAMPLES
def test_signed_text_cut_at_another_place_is_refused(kind, shift, body):
    """Move characters between the time and the body: the signed bytes stay what they were."""
    sender = SENDERS[kind]
    sent = sender.send(body if kind != "discord" else sender.body)
    joint = {"slack_webhook": b":", "discord": b""}.get(kind, b".")
    text = TIME + joint + sent.body
    cut = len(TIME) + shift
    time, rest = text[:cut], text[cut + len(joint) :]
    if sender.time:
        moved = senders.replace(sent.with_field(sender.time, time), body=rest)
    else:
        moved = senders.replace(
            sent.with_field(sender.signature, sent.value(sender.signature).replace(TIME, time)), body=rest
        )

    found = verify(_verifier(kind), WebhookRequest(moved.fields, moved.body, moved.target), NOW)

    assert found.accepted is (shift == 0)


names = st.text("abAB=&+%", max_size=4)


@given(form=st.lists(st.tuples(names, names), max_size=6), other=st.lists(st.tuples(names, names), max_size=6))
@EXAMPLES
def test_twilio_forms_that_share_a_signature_share_a_claim(form, other):
    sent = TWILIO.send(senders.urlencode(form).encode())
    swapped = senders.replace(sent, body=senders.urlencode(other).encode())

    first, second = (
        verify(_verifier("twilio"), WebhookRequest(each.fields, each.body, each.target), NOW)
        for each in (sent, swapped)
    )

    assert first.accepted
    assert second.refusal is not None or second.claim == first.claim


@pytest.mark.parametrize("sender", TIMED, ids=lambda sender: sender.kind)
@given(away_s=st.integers(-(10**6), 10**6), tolerance_s=st.integers(1, 3600))
@EXAMPLES
def test_time_is_taken_within_the_window_and_nowhere_else(sender, away_s, tolerance_s):
    verifier = make_verifier(sender.kind, WebhookSetup(**senders.settings(sender, tolerance_s=tolerance_s)))
    sent = sender.send(now=NOW + away_s)

    found = verify(verifier, WebhookRequest(sent.fields, sent.body, sent.target), NOW)

    assert found.accepted is (abs(away_s) <= tolerance_s)


@given(time=st.sampled_from(BAD_TIMES), body=st.binary(max_size=40))
@EXAMPLES
def test_misspelt_time_is_refused_even_when_it_is_signed(time, body):
    tag = hmac.new(b"fake-secret", b"v0:%b:%b" % (time, body), hashlib.sha256).hexdigest().encode()
    fields = [(b"x-slack-signature", b"v0=" + tag), (b"x-slack-request-timestamp", time)]

    assert verify(_verifier("slack_webhook"), WebhookRequest(fields, body), NOW).refusal == "bad_timestamp"


# --- the whole bridge ------------------------------------------------------------------------------------------------


def _sendable(case: Case) -> bool:
    """Tell whether the endpoint has the settings that this case is about, and HTTP can carry its fields."""
    plain = not any(b"\n" in value or value != value.strip() for _, value in case.sent.fields)
    here = case.sent.target.startswith(b"/webhooks/test")
    return bool(case.refusal) and plain and here and case.setup == senders.settings(SENDERS[case.kind])


@pytest.mark.real_loop
async def test_nothing_is_claimed_or_stored_for_what_is_refused():
    refused = [case for case in cases() if _sendable(case)]
    async with bridge(rps=0) as world:
        statuses = [(await world.http.hook(case.kind, case.sent)).status for case in refused]
        stored = dict(world.mailbox.state.messages)

    assert len(refused) > 100
    assert set(statuses) <= {400, 401}
    assert stored == {}

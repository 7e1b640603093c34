"""The mailbox contract on every implementation there is, and its pure rules."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contracts.mailbox import NEW_TOPIC, Envelope, Peek, Recv, Send
from penstock.contracts.mailbox_rules import METHODS, check_envelope, hash_chain
from penstock.kernel.clock import Clock
from penstock.kernel.errors import Integrity
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_mailbox_state import MemoryMailboxState
from penstock.wire.ids import address_of
from tests.contracts.suite_mailbox import LongPollSuite, MailboxSuite, mailbox_options
from tests.contracts.worlds import World, in_ram, over_memory, over_socket


class TestMailboxInRam(LongPollSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return in_ram(lambda clock: MemoryMailbox(clock, mailbox_options(options)), METHODS)


class TestMailboxOverMemory(LongPollSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return over_memory(lambda clock: MemoryMailbox(clock, mailbox_options(options)), METHODS)


@pytest.mark.real_loop
class TestMailboxOverSocket(MailboxSuite):
    def world(self, **options: object) -> AbstractAsyncContextManager[World]:
        return over_socket(lambda clock: MemoryMailbox(clock, mailbox_options(options)), METHODS)


VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "mailbox_chain.json").read_text())


@pytest.mark.parametrize("vector", VECTORS["chains"], ids=lambda v: v["name"])
def test_hash_chain_equals_its_vector(vector: dict) -> None:
    fields = [vector[name] for name in ("topic", "ts", "idem_key", "payload_hash", "attrs")]

    assert hash_chain(*fields) == vector["hash_chain"]


def test_hash_chain_is_the_written_formula() -> None:
    from blake3 import blake3

    def f(text: str) -> bytes:
        return len(text.encode()).to_bytes(4, "big") + text.encode()

    fields = f("t") + f("12") + f("") + f("b3:x") + f("a") + f("1") + f("b") + f("é")
    want = "b3:" + blake3(b"penstock/mailbox/chain/1" + fields).hexdigest()

    assert hash_chain("t", 12, None, "b3:x", {"b": "é", "a": "1"}) == want


def envelope(**changes: object) -> Envelope:
    payload_hash = address_of(b"x")
    good = {
        "msg_id": "m",
        "receipt": "r",
        "topic": "t",
        "ts": 5,
        "payload": b"x",
        "attrs": {"a": "1"},
        "corr_id": "",
        "shard": 0,
        "attempt": 1,
        "visible_until": 9,
        "payload_hash": payload_hash,
        "hash_chain": hash_chain("t", 5, None, payload_hash, {"a": "1"}),
    }
    return Envelope(**{**good, **changes})


@pytest.mark.parametrize(
    "change", [{"payload": b"y"}, {"topic": "u"}, {"ts": 6}, {"idem_key": "k"}, {"attrs": {"a": "2"}}, {"attrs": {}}]
)
def test_changed_message_is_found_by_its_hashes(change: dict) -> None:
    check_envelope(envelope())

    with pytest.raises(Integrity):
        check_envelope(envelope(**change))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"topic":"a b","payload_b64":""}', Send),
        ('{"topic":"","payload_b64":""}', Send),
        ('{"topic":"a\\n","payload_b64":""}', Send),
        ('{"topic":"' + "a" * 201 + '","payload_b64":""}', Send),
        ('{"topic":"a","payload_b64":"","surprise":1}', Send),
        ('{"topic":"a","payload_b64":"","delay_ms":-1}', Send),
        ('{"topic":"a","payload_b64":"","delay_ms":43200001}', Send),
        ('{"topic":"a","payload_b64":"","key":"k","delay_ms":1}', Send),
        ('{"topic":"a","payload_b64":"","idem_key":""}', Send),
        ('{"topic":"a","payload_b64":"","payload_hash":"b3:00"}', Send),
        ('{"topic":"a","payload_b64":"?"}', Send),
        ('{"topic":"a","max_messages":257}', Recv),
        ('{"topic":"a","visibility_ms":249}', Recv),
        ('{"topic":"a","wait_ms":20001}', Recv),
        ('{"topic":"a","cursor":"1","msg_id":"x"}', Peek),
        ('{"topic":"a","limit":257}', Peek),
    ],
)
def test_bad_value_is_refused_by_its_type(text: str, kind: type) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=kind)


@given(st.from_regex(NEW_TOPIC, fullmatch=True).filter(lambda name: len(name) <= 200), st.binary(max_size=64))
def test_send_is_the_same_value_in_json_and_msgpack(topic: str, payload: bytes) -> None:
    send = Send(topic, payload, attrs={"a": "b"})

    assert msgspec.json.decode(msgspec.json.encode(send), type=Send) == send
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(send), type=Send) == send


# --- the suite can fail: wrong twins, and the test that catches each -------------------------------------------------


class ForgivingReceipts(MemoryMailboxState):
    """Takes any receipt."""

    def leased(self, settlement):
        return self.messages[settlement.msg_id]


class NoOrder(MemoryMailboxState):
    """Forgets that a key is delivered one at a time."""

    def _deliverable(self, topic, now):
        return (message for message in self.of(topic) if message.state(now) == "ready")


class LazyTime(MemoryMailboxState):
    """Ends no lease."""

    def advance(self, now):
        return None


class NoMemory(MemoryMailboxState):
    """Forgets its claims."""

    def send(self, send, corr_id, now):
        self._claims.clear()
        return super().send(send, corr_id, now)


class NoRoom(MemoryMailboxState):
    """Has no bounds."""

    def _check_room(self, send):
        return None


class FreeAttempts(MemoryMailboxState):
    """Never dead-letters."""

    def _bury(self, message, reason, now):
        return None


TWINS = [
    (ForgivingReceipts, "test_stale_receipt_settles_nothing", ("ack",)),
    (NoOrder, "test_one_key_is_delivered_in_order_one_at_a_time_while_others_flow", ()),
    (LazyTime, "test_message_reappears_after_its_visibility_and_never_before", ()),
    (NoMemory, "test_same_idem_key_and_content_is_one_message", ()),
    (NoRoom, "test_full_backlog_is_busy_and_an_ack_makes_room", ()),
    (FreeAttempts, "test_consumer_that_never_answers_dead_letters_by_visibility", ()),
]


@pytest.mark.parametrize(("twin", "name", "arguments"), TWINS, ids=lambda v: getattr(v, "__name__", None))
async def test_suite_catches_the_wrong_twin(twin: type[MemoryMailboxState], name: str, arguments: tuple) -> None:
    class Suite(MailboxSuite):
        def world(self, **options: object) -> AbstractAsyncContextManager[World]:
            def make(clock: Clock) -> MemoryMailbox:
                mailbox = MemoryMailbox(clock)
                mailbox.state = twin(mailbox_options(options), Random(1))
                return mailbox

            return in_ram(make, METHODS)

    with pytest.raises((AssertionError, ValueError, pytest.fail.Exception, KeyError)):
        await getattr(Suite(), name)(*arguments)

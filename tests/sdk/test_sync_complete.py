"""The blocking client is whole: what the async client's objects have, their blocking twins have too."""

from __future__ import annotations

import inspect
import io
import pydoc
from collections.abc import Iterator

import pytest

from penstock import client as sdk
from penstock.client import sync
from penstock.contracts import mailbox as m
from penstock.kernel.errors import NotFound, Unauthenticated
from penstock.net.calls.answer import StreamAnswer
from penstock.sdk.connecting import Client
from penstock.sdk.delivery import Delivery
from penstock.sdk.discovery import Discovery
from penstock.sdk.sync_streams import SyncStream
from penstock.wire.http1.answer import AnswerHead, Framing
from penstock.wire.ids import address_of
from tests.acceptance.node_process import NodeProcess

# What the SDK's own parts say to each other, and what every closable object of the kernel has.
INNER = {
    "Client": {"opened", "resource_name"},
    "Consumer": {"check_stopped", "end_by", "failed"},
    "Delivery": {"ends_at", "lapsed", "lapses_at", "lose", "on_end", "renew_at", "spare"},
    "StreamAnswer": {"detach"},
}
# A blocking handler cannot be interrupted, so there is no choice of `on_lost`, and `run` waits for what its threads do.
LESS = {("SyncMailbox", "consume"), ("SyncMailbox", "run")}
# What yields or takes pieces, or calls a handler, is typed by its own kind.
OTHER_TYPES = {"put_stream", "open", "put", "run", "lease", "consume", "next"}


PAYLOAD = b'{"a": [1, "two"]}'


def envelope() -> m.Envelope:
    return m.Envelope(
        msg_id="1", receipt="r", topic="t", ts=0, payload=PAYLOAD, attrs={}, corr_id="c", shard=0, attempt=1,
        visible_until=0, payload_hash=address_of(PAYLOAD), hash_chain="", first_at=0,
    )  # fmt: skip


@pytest.fixture
def pairs() -> Iterator[dict[str, tuple[object, object]]]:
    """Return live async objects with their blocking twins; no node is needed to make them."""
    with sync.SyncClient(Discovery(ports={"mailbox": 9}, token="psp1_me")) as client:
        inner: Client = client._client

        async def make() -> Delivery:
            return Delivery(envelope(), 30_000, inner.mailbox._mailbox, inner._keeper, on_lost="tell")

        delivery = client._thread.call(make, 10)
        consumer = client.mailbox.consume("t")
        answer = StreamAnswer(AnswerHead(200, (), {}, Framing.NONE, 0), None)  # type: ignore[arg-type]
        yield {
            "client": (inner, client),
            "consumer": (consumer._consumer, consumer),
            "delivery": (delivery, sync.SyncDelivery(client._thread, delivery)),
            "stream": (answer, SyncStream(client._thread, answer)),
            **{
                name: (getattr(inner, name), getattr(client, name))
                for name in ("mailbox", "passport", "storage", "dht", "interop")
            },
        }


def public(thing: object) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")} - INNER.get(type(thing).__name__, set())


def test_every_public_name_of_the_async_client_is_in_the_blocking_one(pairs) -> None:
    differing = {name: public(one) ^ public(twin) for name, (one, twin) in pairs.items()}

    assert not any(differing.values()), differing


def test_every_method_takes_the_same(pairs) -> None:
    for one, twin in pairs.values():
        for name in sorted(public(one)):
            if not callable(getattr(one, name)) or (type(twin).__name__, name) in LESS:
                continue
            wanted, has = inspect.signature(getattr(one, name)), inspect.signature(getattr(twin, name))
            assert list(wanted.parameters) == [part for part in has.parameters if part != "face"], name
            if name not in OTHER_TYPES:
                defaults = {part.name: part.default for part in wanted.parameters.values()}
                assert {part: has.parameters[part].default for part in defaults} == defaults, name


def test_what_is_left_out_of_the_blocking_run_is_written_down(pairs) -> None:
    one, twin = pairs["mailbox"]
    for name in ("consume", "run"):
        wanted, has = inspect.signature(getattr(one, name)), inspect.signature(getattr(twin, name))

        assert set(wanted.parameters) - set(has.parameters) == {"drain_s", "on_lost"}


def test_a_blocking_delivery_reads_its_payload(pairs) -> None:
    delivery = pairs["delivery"][1]

    assert (delivery.text(), delivery.json()) == ('{"a": [1, "two"]}', {"a": [1, "two"]})


def test_help_does_not_print_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "psp1_secret")
    for named in (sdk, sync, Discovery):
        out = io.StringIO()
        pydoc.Helper(output=out)(named)

        assert "psp1_secret" not in out.getvalue()


# --- objects in pieces


@pytest.fixture
def client(node: NodeProcess) -> Iterator[sync.SyncClient]:
    with sync.connect(node.ready["data_dir"]) as opened:
        yield opened


def test_an_object_goes_in_and_comes_out_in_pieces(client: sync.SyncClient) -> None:
    pieces = [bytes([n]) * 100_000 for n in range(20)]
    whole = b"".join(pieces)
    stored = client.storage.put_stream(iter(pieces))

    assert (stored.address, stored.size) == (address_of(whole), len(whole))
    with client.storage.open(stored.address) as stream:
        assert (stream.status, stream.length) == (200, len(whole))
        assert b"".join(stream) == whole
        assert stream.complete
    with client.storage.open(stored.address, offset=5, length=7) as stream:
        assert stream.read(100) == whole[5:12]


def test_a_source_that_fails_stores_nothing_and_is_heard(client: sync.SyncClient) -> None:
    def pieces() -> Iterator[bytes]:
        yield b"half of it"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client.storage.put_stream(pieces())
    with pytest.raises(NotFound):
        client.storage.head(address_of(b"half of it"))
    assert client.storage.put(b"and on it goes").size == 14


def test_a_refused_upload_ends_before_its_pieces_do(client: sync.SyncClient, node: NodeProcess) -> None:
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 65_536

    with (
        sync.connect(node.ready["data_dir"], token="psp1_nobody") as stranger,
        pytest.raises(Unauthenticated),
    ):
        stranger.storage.put_stream(endless())
    assert len(taken) < 10_000


def test_a_block_that_leaves_early_gives_the_connection_back(client: sync.SyncClient) -> None:
    address = client.storage.put(b"y" * 1_000_000).address
    with client.storage.open(address) as stream:
        assert next(iter(stream))

    assert client.storage.get(address, length=3) == b"yyy"

"""A token that is replaced while a program runs: the new one is used without a restart, and no call is lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.client import Client, Malformed, NoToken, Unauthenticated, connect, connect_sync
from penstock.contracts import mailbox as m
from penstock.kernel.errors import Expired, PenstockError
from penstock.kernel.inventory import Inventory
from penstock.sdk.calling import Caller, PreparedCall, SdkOptions
from penstock.sdk.finding import Whereabouts, find
from penstock.sdk.http_mailbox import HttpMailbox
from penstock.sdk.remote_place import NodePlace, RemotePlace
from penstock.sdk.token_source import TokenFile
from penstock.testing import until
from penstock.testing.fakes import VirtualClock
from tests.acceptance.node_process import NodeProcess
from tests.net.calls.peers import Peer, Script, answer, says
from tests.sdk.kit import TOPIC, started, world
from tests.sdk.test_calling import refuses

URL = "http://node.test:5306"
REFUSALS = [Unauthenticated(reason="revoked"), Expired(reason="expired")]


def replace(file: Path, token: str) -> None:
    """Put a new token into a file as the how-to says: whole, by a rename."""
    beside = file.with_name("beside")
    beside.write_text(token + "\n")
    beside.rename(file)


def remove(file: Path) -> None:
    file.unlink()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    replace(tmp_path / "worker.token", "psp1_old")
    return tmp_path / "worker.token"


def believes(token: str, error: PenstockError, good: bytes = b'{"messages":[]}') -> Script:
    """Answer whoever holds this token, and refuse everybody else."""

    def script(connection, seen) -> None:
        held = seen.headers[b"authorization"] == f"Bearer {token}".encode()
        (says(answer(good)) if held else refuses(error))(connection, seen)

    return script


def following(file: Path) -> RemotePlace:
    """Return a place whose file is read again only after a refusal: its clock stands still."""
    place = RemotePlace(URL, token=TokenFile(file, clock=VirtualClock()))
    place.token()
    return place


def caller(peer: Peer, place: NodePlace, service: str = "mailbox", **options) -> Caller:
    return Caller(service, place, Inventory("client"), SdkOptions(**options), peer.dial)


def tokens(peer: Peer) -> list[str]:
    return [seen.headers[b"authorization"].decode().removeprefix("Bearer psp1_") for seen in peer.seen]


# --- the file


def test_a_changed_file_is_noticed_within_a_second_and_looked_at_once_a_second(file: Path) -> None:
    clock = VirtualClock()
    source = TokenFile(file, clock=clock)
    before = source.token()
    replace(file, "psp1_new")
    at_once = source.token()
    clock.advance(1.0)

    assert (before, at_once, source.token()) == ("psp1_old", "psp1_old", "psp1_new")


def test_a_refusal_has_the_file_read_even_if_it_looks_the_same(file: Path) -> None:
    source = TokenFile(file, clock=VirtualClock())
    source.token()
    told = file.stat()
    file.write_text("psp1_new\n")
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))
    source.renew()

    assert source.token() == "psp1_new"


@pytest.mark.parametrize("content", [None, "", "half a"])
def test_a_file_that_cannot_be_used_for_a_moment_leaves_the_token_as_it_is(file: Path, content: str | None) -> None:
    clock = VirtualClock()
    source = TokenFile(file, clock=clock)
    source.token()
    file.unlink() if content is None else file.write_text(content)
    clock.advance(1.0)
    meanwhile = source.token()
    with pytest.raises(NoToken, match=r"worker\.token"):
        source.renew()
    replace(file, "psp1_new")
    clock.advance(1.0)

    assert (meanwhile, source.token()) == ("psp1_old", "psp1_new")


def test_a_file_is_found_after_the_program_changed_its_directory(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    place = find(Whereabouts(where=URL, token_file=Path(file.name)), {})
    monkeypatch.chdir("/")
    replace(file, "psp1_new")
    place.renew_token()

    assert place.token() == "psp1_new"


def test_every_way_to_name_a_file_follows_it(file: Path, tmp_path: Path) -> None:
    (tmp_path / "penstock").mkdir()
    (tmp_path / "penstock" / "contexts.json").write_text(
        f'{{"contexts": {{"prod": {{"url": "{URL}", "token_file": "{file}"}}}}}}'
    )
    (tmp_path / "operator.token").write_text("psp1_old")
    places = [
        find(Whereabouts(where=URL, token_file=file), {}),
        find(Whereabouts(where=URL), {"PENSTOCK_TOKEN_FILE": str(file)}),
        find(Whereabouts(where=tmp_path, token_file=file), {}),
        find(Whereabouts(context="prod"), {"XDG_CONFIG_HOME": str(tmp_path)}),
        find(Whereabouts(where=tmp_path), {}),
    ]
    before = [place.token() for place in places]
    replace(file, "psp1_new")
    replace(tmp_path / "operator.token", "psp1_new")
    for place in places:
        place.renew_token()

    assert (before, [place.token() for place in places]) == (["psp1_old"] * 5, ["psp1_new"] * 5)


def test_the_operators_token_stays_while_its_file_is_away(tmp_path: Path) -> None:
    place = find(Whereabouts(where=tmp_path), {})
    without = place.token()
    replace(tmp_path / "operator.token", "psp1_operator")
    place.renew_token()
    (tmp_path / "operator.token").unlink()
    place.renew_token()

    assert (without, place.token()) == ("", "psp1_operator")


# --- calls


@pytest.mark.parametrize("error", REFUSALS)
@pytest.mark.parametrize("tries_max", [None, 1])
async def test_a_refused_call_is_made_once_more_with_the_new_token(
    file: Path, error: PenstockError, tries_max: int | None
) -> None:
    peer, place = Peer(believes("psp1_new", error)), following(file)
    async with caller(peer, place, tries_max=tries_max) as calls:
        replace(file, "psp1_new")
        await HttpMailbox(calls).recv(m.Recv("t"))
        await HttpMailbox(calls).recv(m.Recv("t"))

    assert tokens(peer) == ["old", "new", "new"]


async def test_of_calls_under_way_together_each_is_made_once_more(file: Path) -> None:
    """One of them reads the new file; for the others the token is another than theirs already."""
    peer, place = Peer(believes("psp1_new", REFUSALS[0])), following(file)
    async with caller(peer, place) as calls, asyncio.TaskGroup() as polls:
        for _ in range(5):
            polls.create_task(HttpMailbox(calls).recv(m.Recv("t")))
        replace(file, "psp1_new")

    assert Counter(tokens(peer)) == {"old": 5, "new": 5}


async def test_a_call_is_not_repeated_without_a_newer_token_and_not_more_than_once(file: Path) -> None:
    peer, place = Peer(believes("psp1_never", REFUSALS[0])), following(file)
    async with caller(peer, place) as calls:
        for _ in range(2):
            with pytest.raises(Unauthenticated):
                await HttpMailbox(calls).recv(m.Recv("t"))
            replace(file, "psp1_new")

    assert tokens(peer) == ["old", "old", "new"]


async def test_a_token_file_that_is_gone_is_named_in_the_refusal(file: Path) -> None:
    peer, place = Peer(believes("psp1_new", REFUSALS[0])), following(file)
    remove(file)
    async with caller(peer, place) as calls:
        with pytest.raises(Unauthenticated, match=r"No newer token was found: The token file .*worker\.token"):
            await HttpMailbox(calls).recv(m.Recv("t"))


async def test_a_stream_takes_the_new_token(file: Path) -> None:
    peer = Peer(believes("psp1_new", REFUSALS[0], b"an object"))
    place = following(file)
    async with caller(peer, place, "storage") as calls:
        replace(file, "psp1_new")
        async with calls.stream(PreparedCall(method="GET", path="/v1/o/1")) as streamed:
            read = b"".join([piece async for piece in streamed])

    assert (read, tokens(peer)) == (b"an object", ["old", "new"])


async def test_an_upload_in_pieces_says_that_its_token_was_replaced(file: Path) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a piece"

    peer, place = Peer(believes("psp1_new", REFUSALS[0])), following(file)
    async with caller(peer, place, "storage") as calls:
        replace(file, "psp1_new")
        with pytest.raises(Unauthenticated, match="The token was replaced meanwhile: call again") as refused:
            await calls.ask(PreparedCall(method="PUT", path="/v1/o", body=pieces()))

    assert "token_replaced" in refused.value.facts


async def test_a_call_whose_token_was_replaced_gives_its_message_back_and_the_consumer_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with world(max_attempts=1) as here:
        cut = Unauthenticated("Revoked.", url="PUT http://node.test/v1/o", token_replaced=True)
        errors, seen = [cut], list[bytes]()

        async def handle(delivery) -> None:
            seen.append(delivery.payload)
            if errors:
                raise errors.pop()

        await here.send(2)
        async with started(here.mailbox.run(TOPIC, handle)) as running:
            await until(lambda: _are(seen, 3))
            assert not running.done()

    assert [nack.uncounted for nack in here.server.nacks] == [True]
    assert "Traceback" not in capsys.readouterr().err


async def _are(seen: list[bytes], count: int) -> bool:
    return len(seen) == count


# --- a function


async def test_a_function_is_called_at_connect_and_when_its_token_is_refused() -> None:
    made = iter(["psp1_old", "psp1_new\n", "psp1_third"])
    peer, place = Peer(believes("psp1_new", REFUSALS[1])), find(Whereabouts(where=URL, token=lambda: next(made)), {})
    async with caller(peer, place) as calls:
        for _ in range(3):
            await HttpMailbox(calls).recv(m.Recv("t"))

    assert (tokens(peer), next(made)) == (["old", "new", "new", "new"], "psp1_third")


async def test_a_function_that_fails_later_is_told_with_the_refusal() -> None:
    made = iter(["psp1_old"])
    peer, place = Peer(believes("psp1_new", REFUSALS[0])), find(Whereabouts(where=URL, token=lambda: next(made)), {})
    async with caller(peer, place) as calls:
        with pytest.raises(Unauthenticated, match="the function given as token failed with StopIteration") as refused:
            await HttpMailbox(calls).recv(m.Recv("t"))

    assert isinstance(refused.value.__cause__.__cause__, StopIteration)


def test_what_cannot_give_a_token_is_refused_at_connect(file: Path) -> None:
    async def late() -> str:
        return "psp1_x"

    def fails() -> str:
        raise LookupError("no vault")

    for made, error, said in (
        (late, TypeError, "is no async function"),
        (lambda: 5, TypeError, "returns a text, not a whole number"),
        (lambda: "", NoToken, "What the function given as token returned is empty"),
        (fails, LookupError, "no vault"),
        (5, Malformed, "token is a text, or a function that returns one, not a whole number"),
    ):
        for opens in (connect, connect_sync):
            with pytest.raises(error, match=said):
                opens(URL, token=made)
    with pytest.raises(Malformed, match="token or token_file, not both"):
        connect(URL, token="psp1_x", token_file=file)


# --- a node


@pytest.mark.real_loop(watchdog_s=170)
@pytest.mark.parametrize("by_url", [False, True])
async def test_a_worker_goes_through_rotations_whose_old_token_is_revoked_at_once(
    node: NodeProcess, file: Path, *, by_url: bool
) -> None:
    topic = f"rotated/{by_url}"
    where = f"http://127.0.0.1:{node.port('omnigate')}" if by_url else node.ready["data_dir"]
    done: Counter[bytes] = Counter()
    async with connect(node.ready["data_dir"]) as operator:
        tid = await _rotate(operator, topic, file)
        async with connect(where, token_file=file) as worker:

            async def handle(delivery) -> None:
                stored = await worker.storage.put(delivery.payload)
                async with worker.storage.open(stored.address) as pieces:
                    done[b"".join([piece async for piece in pieces])] += 1

            async with started(worker.mailbox.run(topic, handle, concurrency=8)) as running:
                for rotation in range(3):
                    # The last one finds the worker in its long poll, with nothing to do.
                    for n in range(20):
                        await operator.mailbox.send(topic, f"{rotation}-{n}")
                    if rotation:
                        await until(lambda sent=20 * (rotation + 1): _handled(done, sent))
                    old, tid = tid, await _rotate(operator, topic, file)
                    await operator.passport.revoke(tid=old)
                await operator.mailbox.send(topic, "last")
                await until(lambda: _handled(done, 61))
                assert not running.done()
        stats = await operator.mailbox.topics(prefix=topic)

    assert sum(each.dlq for each in stats) == 0


async def _rotate(operator: Client, topic: str, file: Path) -> str:
    issued = await operator.passport.worker_token("counter", topic, store=["get", "put"])
    replace(file, issued.token)
    return issued.tid


async def _handled(done: Counter[bytes], count: int) -> bool:
    return len(done) >= count

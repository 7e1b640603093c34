"""The gate on real sockets: what the memory transport cannot show."""

from __future__ import annotations

import socket
import struct
import sys

import pytest

from penstock.testing import until
from tests.net.server.listener_kit import BOTH_LOOPS, get, post
from tests.services.omnigate.gate.kit import GateSite, gated

# No deadline of a request runs out here, however busy the machine is.
SOCKETS = {"host": "127.0.0.1", "port": 0, "request_deadline_s": 60.0, "read_timeout_s": 60.0}


async def until_classes(site: GateSite, wanted: dict[str, tuple[int, int]]) -> None:
    """Wait until the queue looks like this."""
    await until(lambda: site.classes() == wanted)


def is_paused(site: GateSite) -> bool:
    """Tell whether some connection is not read."""
    assert site.listener._core is not None
    return not all(connection._reading for connection in site.listener._core.caps.held)  # type: ignore[attr-defined]


def reset_on_close(client) -> socket.socket:  # type: ignore[no-untyped-def]
    """Make the end of a connection a reset."""
    sock = client.transport.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sock  # type: ignore[no-any-return]


@BOTH_LOOPS
async def test_held_requests_are_served_in_turn_over_sockets(loop_name: str) -> None:
    async with gated(max_inflight=1, options=SOCKETS) as site:
        field = await site.known()
        clients = [await site.dial() for _ in range(5)]
        for client in clients:
            client.send(post("/later", b"x" * 1000, field))
        await until_classes(site, {"authed": (4, 1)})
        for _ in clients:
            await until(lambda: bool(site.work.replies))
            site.work.answer()
        answers = [await client.answer() for client in clients]

    assert [answer.status for answer in answers] == [200] * 5
    assert site.work.bodies == [b"x" * 1000] * 5


@BOTH_LOOPS
async def test_a_client_that_closes_while_held_leaves_at_once(loop_name: str) -> None:
    async with gated(max_inflight=1, options=SOCKETS) as site:
        field = await site.known()
        first, second = await site.dial(), await site.dial()
        first.send(get("/later", field))
        await until_classes(site, {"authed": (0, 1)})
        second.send(get("/later", field))
        await until_classes(site, {"authed": (1, 1)})
        reset_on_close(second)
        second.transport.abort()
        await until_classes(site, {"authed": (0, 1)})

        assert len(site.work.seen) == 1


@BOTH_LOOPS
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the state of a connection that is not read")
async def test_a_reset_is_noticed_even_while_the_body_waits_unread(loop_name: str) -> None:
    async with gated(max_inflight=1, options=SOCKETS) as site:
        field = await site.known()
        first, second = await site.dial(), await site.dial()
        first.send(get("/later", field))
        await until_classes(site, {"authed": (0, 1)})
        second.send(post("/later", b"x" * 900_000, field))
        await until_classes(site, {"authed": (1, 1)})
        await until(lambda: is_paused(site))
        reset_on_close(second)
        second.transport.abort()
        await until_classes(site, {"authed": (0, 1)})

        assert len(site.work.seen) == 1

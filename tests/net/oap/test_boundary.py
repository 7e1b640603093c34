"""A bug on one connection costs that connection, and an untrusted peer costs nothing."""

from __future__ import annotations

import msgspec
import pytest

from penstock.contracts.method import Methods
from penstock.kernel.errors import DownstreamUnavailable
from penstock.net.oap.service import OapService
from tests.net.oap.kit import (
    ECHO,
    Ask,
    Kit,
    Rang,
    Told,
    settle,
)


def explode(_event: object) -> None:
    raise KeyError("a bug in an event handler")


async def test_bug_in_a_callback_ends_its_connection_and_not_the_server(caplog: pytest.LogCaptureFixture) -> None:
    kit = Kit()
    kit.server.services[100] = OapService(methods=ECHO, handle=kit.echo.handle, on_event=explode)
    async with kit:
        await kit.client.send_event(ECHO, Rang(1))
        await settle()

        assert not kit.server.connections
        assert await kit.echo_call(text="again") == Told("again")
        assert kit.dialled == 2


async def test_unknown_or_unreadable_event_is_counted_and_changes_nothing() -> None:
    class Odd(msgspec.Struct):
        bell: str = "x"

    wrong = Methods(100, [(1, "echo", Ask, Told)], events=[type(ECHO.events[0])(1, "Odd", Odd)])
    nowhere = Methods(999, [], events=[type(ECHO.events[0])(1, "Odd", Odd)])
    async with Kit() as kit:
        await kit.client.send_event(wrong, Odd())
        await kit.client.send_event(nowhere, Odd())
        await settle()

        assert kit.echo.events == []
        assert kit.inventory.metrics.value("rejected_total", reason="malformed") == 1
        assert kit.inventory.metrics.value("oap_events_lost_total") == 1
        assert await kit.echo_call(text="on") == Told("on")


async def test_client_does_not_talk_to_a_server_of_another_user() -> None:
    async with Kit() as kit:
        dial = kit.client._dial

        async def suspicious(protocol):
            transport, connection = await dial(protocol)
            connection.peer_uid = 4_000_000
            return transport, connection

        kit.client._dial = suspicious
        with pytest.raises(DownstreamUnavailable, match="Another user"):
            await kit.echo_call()
        await settle()
        assert not kit.server.connections
        assert kit.echo.seen == []

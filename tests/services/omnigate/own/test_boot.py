"""`strict_boot`: whoever does not answer is named, and being refused is an answer."""

from __future__ import annotations

import asyncio

import pytest

from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import DownstreamUnavailable, NotReady, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.scope import Scope
from penstock.net.calls.connection import ClientConnection
from penstock.net.calls.origin import HttpOrigin
from penstock.services.omnigate.own.boot import BOOT_S, check_all, service_probes
from penstock.services.omnigate.proxy.config import ProxyRoute
from penstock.services.omnigate.proxy.routes import Proxies, ProxyDeps


def scope() -> Scope:
    """Make a place for probes."""
    return Scope("probe", 8, Inventory("omnigate", LoopClock()).metrics)


async def refuses() -> None:
    """Say no."""
    raise Unauthenticated("Nobody asks.", reason="missing")


async def is_not_ready() -> None:
    """Say that it cannot."""
    raise NotReady("Not yet.", phase="starting")


async def hangs() -> None:
    """Say nothing."""
    await asyncio.get_running_loop().create_future()


async def test_who_refuses_has_answered() -> None:
    await check_all({"svc-mailbox": refuses}, scope())


async def test_all_who_do_not_answer_are_named_within_one_deadline() -> None:
    began = asyncio.get_running_loop().time()

    with pytest.raises(DownstreamUnavailable, match="a, b, c does not answer"):
        await check_all({"c": hangs, "b": is_not_ready, "a": hangs, "d": refuses}, scope())
    assert asyncio.get_running_loop().time() - began == pytest.approx(BOOT_S, abs=0.01)


async def test_a_service_that_does_not_run_here_is_not_asked() -> None:
    assert service_probes(None, None, None) == {}


async def test_each_upstream_is_dialled_and_one_that_is_not_there_is_named() -> None:
    dialled: list[str] = []

    async def dial(origin: HttpOrigin, _connection: ClientConnection) -> None:
        dialled.append(origin.host)
        raise DownstreamUnavailable("Nobody listens.")

    inventory = Inventory("omnigate", LoopClock())
    route = ProxyRoute(prefix=("shop",), upstreams=("http://a.test", "http://b.test"))
    proxies = Proxies(inventory, [route], around=ProxyDeps(dial=dial))

    with pytest.raises(DownstreamUnavailable, match=r"/shop \(http://a.test\), /shop \(http://b.test\)"):
        await check_all(proxies.probes(), scope())
    assert sorted(dialled) == ["a.test", "b.test"]
    await proxies.close()

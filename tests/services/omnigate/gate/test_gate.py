"""The gate: every stage in its order, nothing done for who is refused, and everything given back in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.kernel.errors import PolicyBlocked
from penstock.net.server.admission import Refusal
from penstock.services.omnigate.config import QuotaOptions
from tests.capability.kit import narrowed
from tests.net.server.listener_kit import get, post, settle
from tests.services.omnigate.gate.kit import (
    AUD,
    OFF,
    GateSite,
    gated,
)


async def test_a_known_token_goes_through_at_once_in_its_tenants_class() -> None:
    async with gated() as site:
        client = await site.ask("/later", await site.known(class_="internal"))
        ticket = site.work.seen[0].ticket
        held = site.classes()
        site.work.answer()
        answer = await client.answer()

    assert ticket is not None
    assert (ticket.class_name, ticket.tenant) == ("internal", "acme")  # type: ignore[attr-defined]
    assert held == {"internal": (0, 1)}
    assert answer.status == 200


async def test_an_unknown_token_is_verified_and_then_comes_in_by_its_true_class() -> None:
    async with gated() as site:
        client = await site.ask("/now", site.bearer())
        answer = await client.answer()
        ticket = site.work.seen[0].ticket

    assert answer.status == 200
    assert ticket is not None
    assert ticket.class_name == "authed"  # type: ignore[attr-defined]


async def test_no_token_is_anon_on_open_routes_and_401_on_others() -> None:
    async with gated() as site:
        open_client = await site.ask("/open/now")
        strict = await site.ask("/now")
        opened, refused = await open_client.answer(), await strict.answer()

        assert site.work.seen[0].ticket.class_name == "anon"  # type: ignore[union-attr]
    assert opened.status == 200
    assert (refused.status, refused.json()["code"], refused.json()["reason"]) == (401, "unauthenticated", "missing")
    assert refused.headers[b"www-authenticate"] == b"Bearer"


@pytest.mark.parametrize("bad", ["Bearer nonsense", "Basic YTpi", "Bearer " + "x" * 20_000, "Bearer psp1_AAAA"])
async def test_a_bad_token_is_401_even_on_an_open_route(bad: str) -> None:
    async with gated() as site:
        client = await site.ask("/open/now", f"Authorization: {bad}")
        answer = await client.answer()

    assert answer.status in {401, 431}
    assert site.work.seen == []


async def test_a_caveat_that_does_not_cover_is_403_and_gives_the_slot_back() -> None:
    async with gated() as site:
        narrow = "Authorization: Bearer " + site.issuer.token("op=put", aud=("omnigate",))
        for _ in range(2):
            client = await site.ask("/now", narrow)
            answer = await client.answer()
            assert (answer.status, answer.json()["reason"]) == (403, "caveat:op")
        held = site.classes()

    assert held == {}
    assert site.work.seen == []


@pytest.mark.parametrize(
    ("audience", "status"), [(("omnigate",), 200), (("svc-mailbox",), 200), (("svc-storage",), 403), (("*",), 200)]
)
async def test_the_audience_is_the_gateway_or_the_service_the_route_leads_to(
    audience: tuple[str, ...], status: int
) -> None:
    async with gated() as site:
        token = site.issuer.token("topic=orders", aud=audience)
        client = await site.ask("/t/orders", f"Authorization: Bearer {token}")
        other = await site.ask("/t/private", f"Authorization: Bearer {token}")
        answer, elsewhere = await client.answer(), await other.answer()

    assert answer.status == status
    assert elsewhere.status == 403


async def test_stages_come_in_order_and_a_refusal_spares_the_later_ones() -> None:
    one = QuotaOptions(default_rps=1, burst_rps=1, per_ip_rps=0, per_cap_rps=0)
    async with gated(one) as site:
        known = await site.known()
        hits = site.issuer.verifier.hits
        client = await site.ask("/now", known)
        assert (await client.answer()).status == 200
        client.send(get("/now", known))
        over = await client.answer()

        assert (over.status, over.json()["code"], over.json()["scope"]) == (429, "rate_limited", "global")
        # The token was looked at for the first request only, policy and handler too.
        assert site.issuer.verifier.hits == hits + 1
        assert site.work.policy_asked == 1
        assert len(site.work.seen) == 1


async def test_policy_is_asked_after_capability_and_before_the_body() -> None:
    blocked = Refusal(PolicyBlocked("Not here.", reason="policy"))
    async with gated(policy=lambda request, _ticket: blocked if request.method == "POST" else None) as site:
        narrow = "Authorization: Bearer " + site.issuer.token("op=get", aud=("omnigate",))
        known = await site.known()
        uncovered = site.connect()
        uncovered.send(post("/later", b"x" * 10, narrow))
        assert (await uncovered.answer()).status == 403
        asked = site.work.policy_asked
        client = site.connect()
        client.send(post("/later", b"x" * 10, known)[:-10])
        refused = await client.answer()

    assert asked == 0
    assert (refused.status, refused.json()["code"]) == (403, "policy_blocked")
    assert site.work.bodies == []


async def test_degraded_sheds_writes_and_serves_reads() -> None:
    async with gated() as site:
        known = await site.known()
        site.gate.degraded = True
        writer = site.connect()
        writer.send(post("/now", b"x", known))
        reader = await site.ask("/now", known)
        shed, served = await writer.answer(), await reader.answer()

        assert (shed.status, shed.json()["code"], served.status) == (503, "backpressure", 200)
        assert site.count("rejected_total", reason="BACKPRESSURE") == 1


async def test_who_finds_no_slot_waits_and_goes_on_when_one_is_free() -> None:
    async with gated(max_inflight=1) as site:
        known = await site.known()
        first = await site.ask("/later", known)
        second = await site.ask("/later", known)
        waiting = site.classes()
        site.work.answer()
        assert (await first.answer()).status == 200
        await settle()
        running = site.classes()
        site.work.answer()

        assert (await second.answer()).status == 200
        assert waiting == {"authed": (1, 1)}
        assert running == {"authed": (0, 1)}


async def test_a_full_class_is_429_busy_and_counted_as_the_work_queue() -> None:
    async with gated(max_inflight=1, work_capacity=64) as site:
        field = await site.known()
        clients = [await site.ask("/later", field) for _ in range(32)]
        refused = [client for client in clients if client.data]
        answer = await refused[0].answer()
        waiting = site.classes()["authed"][0]

        assert (answer.status, answer.json()["code"], answer.json()["queue"]) == (429, "busy", "work")
        assert len(refused) == 32 - 1 - waiting
        site.housekeeping.tick()
        assert site.count("queue_dropped_total", queue="work") == len(refused)
        assert site.count("busy_rejections_total", endpoint="/later", queue="work") == len(refused)
        assert site.count("queue_depth", queue="work") == waiting
        assert site.count("fq_inflight", **{"class": "authed"}) == 1
        assert site.count("fq_waiting", **{"class": "authed"}) == waiting
        assert site.count("fq_tokens", **{"class": "authed"}) <= 0


async def test_the_queues_are_in_the_inventory_and_add_up_to_the_work_queue() -> None:
    async with gated() as site:
        rows = {str(row["name"]): row for row in site.inventory.rows()["channels"]}
        parts = [row["capacity"] for name, row in rows.items() if name.startswith("work.")]

    assert rows["work"]["capacity"] == 512 == sum(parts)  # type: ignore[arg-type]
    assert (rows["work"]["kind"], rows["work"]["full"]) == ("mpsc", "refuse")
    assert set(rows["work.anon"]) >= {"depth", "dropped", "policy", "weight"}


async def test_anon_is_shared_by_address_and_never_by_a_name_a_token_could_have() -> None:
    async with gated(max_inflight=1) as site:
        await site.ask("/open")
        tenants = list(site.gate.queue.classes["anon"].tenants)

    assert tenants == [("127.0.0.1",)]


async def test_a_narrower_copy_of_a_capability_has_no_quota_of_its_own() -> None:
    per_cap = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=0, per_cap_rps=1)
    async with gated(per_cap) as site:
        token = site.issuer.token(aud=AUD)
        copies = [token, narrowed(token, ("op=get",)), narrowed(token, ("method=GET",), ("op=get",))]
        answers = []
        for copy in copies:
            site.issuer.verifier.open(copy)
            client = await site.ask("/now", f"Authorization: Bearer {copy}")
            answers.append(await client.answer())

    assert [answer.status for answer in answers] == [200, 200, 429]
    assert answers[2].json()["scope"] == "per_cap"


async def test_each_quota_answers_with_its_scope() -> None:
    per_ip = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=1, per_cap_rps=0)
    per_cap = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=0, per_cap_rps=1)
    async with gated(per_ip) as by_ip, gated(per_cap) as by_cap:
        anonymous, holder = by_ip.connect(), by_cap.connect()
        field = await by_cap.known()
        anonymous.send(get("/open/now") * 3)
        holder.send(get("/now", field) * 3)
        of_ip, of_cap = await anonymous.answers(3), await holder.answers(3)
        other = await by_cap.ask("/now", await by_cap.known())
        fresh = await other.answer()

    assert [answer.status for answer in of_ip] == [200, 200, 429]
    assert (of_ip[2].json()["scope"], of_cap[2].json()["scope"]) == ("per_ip", "per_cap")
    assert [answer.status for answer in of_cap] == [200, 200, 429]
    assert fresh.status == 200


async def test_verified_tenants_have_no_address_quota_and_forgeries_use_it_up() -> None:
    per_ip = QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=1, per_cap_rps=0)
    async with gated(per_ip) as site:
        fields = [site.bearer() for _ in range(5)]
        good = [await (await site.ask("/now", field)).answer() for field in fields]
        token = fields[0]
        forged = [token[:-4] + f"AA{n}A" for n in range(4)]
        bad = [await (await site.ask("/now", field)).answer() for field in forged]

    assert [answer.status for answer in good] == [200] * 5
    assert [answer.status for answer in bad] == [401, 401, 429, 429]


async def test_quotas_flow_back_with_time() -> None:
    one = QuotaOptions(default_rps=2, burst_rps=1, per_ip_rps=0, per_cap_rps=0)
    async with gated(one) as site:
        client = site.connect()
        client.send(get("/open/now") * 2)
        first = await client.answers(2)
        await asyncio.sleep(0.5)
        client.send(get("/open/now"))
        later = await client.answer()

    assert [answer.status for answer in first] == [200, 429]
    assert later.status == 200


async def test_without_a_verifier_nobody_is_asked_for_a_capability() -> None:
    async with gated(checked=False) as site:
        client = await site.ask("/now")

        assert (await client.answer()).status == 200


async def test_own_pages_pass_a_gate_that_lets_nobody_in() -> None:
    async with gated(QuotaOptions(default_rps=1, burst_rps=1)) as site:
        client = site.connect()
        client.send(get("/open/now") * 2 + get("/healthz") + get("/readyz"))
        answers = await client.answers(4)

    assert [answer.status for answer in answers] == [200, 429, 200, 200]


async def forge_flood(site: GateSite, count: int) -> list[str]:
    """Open connections that each send a token nobody signed."""
    forged = [site.bearer()[:-6] + f"{n:06d}" for n in range(count)]
    for field in forged:
        client = site.connect()
        client.send(get("/now", field))
    return forged


async def test_a_flood_of_forged_tokens_leaves_verified_tenants_alone() -> None:
    async with gated(OFF, max_inflight=4) as site:
        field = await site.known()
        await forge_flood(site, 100)
        before = site.issuer.verifier.misses
        client = site.connect()
        client.send(get("/now", field) * 8)
        turns = 0
        while client.data.count(b"HTTP/1.1 200") < 8:
            await asyncio.sleep(0)
            turns += 1
        judged = site.issuer.verifier.misses - before

        assert turns <= 6
        # So few signatures were checked while the holder was served, whatever waits behind.
        assert judged <= 2 * turns
        await settle(100)
        verify = site.gate.queue.classes["verify"]
        assert verify.dropped > 0, "the flood was larger than the verify class"
        assert site.classes() == {}


async def fill(site: GateSite, class_name: str, addresses: int) -> None:
    """Let so many addresses send one request each that finds no slot."""
    for number in range(addresses):
        client, connection, _ = site.join()
        connection.peer = connection.peer._replace(host=f"192.0.2.{number}")
        client.send(get("/open") if class_name == "anon" else get("/now", site.bearer()[:-6] + f"{number:06d}"))


async def test_strangers_who_fill_their_class_neither_shut_readiness_nor_shed_the_writes_of_others() -> None:
    async with gated(max_inflight=1, work_capacity=64) as site:
        known = await site.known()
        await site.ask("/open")
        await fill(site, "anon", 40)
        anon = site.gate.queue.classes["anon"]
        writer = site.connect()
        writer.send(post("/now", b"x", known))
        await settle()
        held = site.classes()["authed"]
        stranger, connection, _ = site.join()
        connection.peer = connection.peer._replace(host="198.51.100.1")
        stranger.send(post("/open/write", b"x"))
        shed = await stranger.answer()

        assert anon.scarce
        assert site.gate.headroom == 1 - 1 / site.gate.queue.classes["authed"].capacity
        assert held == (1, 0)
        assert (shed.status, shed.json()["code"]) == (503, "backpressure")


async def test_headroom_is_that_of_the_fullest_class_and_shedding_ends_a_second_after_the_last_wait() -> None:
    async with gated(max_inflight=1, work_capacity=64) as site:
        assert (site.gate.headroom, site.gate.shedding) == (1.0, False)
        known = await site.known()
        clients = [await site.ask("/later", known) for _ in range(20)]
        authed = site.gate.queue.classes["authed"]
        full = site.gate.headroom, site.gate.shedding
        for client in clients:
            client.transport.abort()
        await asyncio.sleep(1.1)

        assert full == (1 - (authed.capacity + 1) // 2 / authed.capacity, True)
        assert (site.gate.headroom, site.gate.shedding) == (1.0, False)


async def test_a_verification_that_leaves_the_loop_is_waited_for_and_dropped_when_its_client_goes() -> None:
    pool = SlowPool()
    async with gated(pool=pool) as site:
        token = narrowed(site.issuer.token(aud=("omnigate",)), ("op=get",), ("exp=1800000800",))
        field = f"Authorization: Bearer {token}"
        staying, leaving = await site.ask("/now", field), await site.ask("/now", field)
        under_way = site.classes()
        leaving.transport.abort()
        await settle()
        left = site.classes()
        pool.go_on()
        answer = await staying.answer()
        await settle()

        assert under_way == {"verify": (0, 2)}
        assert left == {"verify": (0, 1)}
        assert answer.status == 200
        assert len(site.work.seen) == 1


class SlowPool:
    """A crypto pool that works when it is told to."""

    def __init__(self) -> None:
        self._gate = asyncio.Event()

    def go_on(self) -> None:
        self._gate.set()

    async def run(self, _op: str, _limit_s: float, work: Callable[[], Any]) -> Any:
        await self._gate.wait()
        return work()

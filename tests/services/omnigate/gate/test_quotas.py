"""Quotas: rates that hold over any interval, tables that stay small, addresses that cannot be multiplied."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel.clock import LoopClock
from penstock.kernel.inventory import Inventory
from penstock.net.message import Peer
from penstock.services.omnigate.config import QuotaOptions
from penstock.services.omnigate.gate.quotas import GatewayQuotas, QuotaBuckets
from tests.net.server.listener_kit import get, settle
from tests.services.omnigate.gate.kit import gated


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=200), st.integers(1, 50))
def test_what_a_bucket_lets_through_is_bounded_by_its_rate_over_any_time(gaps: list[float], rate: int) -> None:
    buckets, now, taken_at = QuotaBuckets(rate, 0.0), 0.0, []
    for gap in gaps:
        now += gap
        buckets.turn(now)
        if buckets.take("key", now):
            taken_at.append(now)
    for first in range(len(taken_at)):
        for last in range(first, len(taken_at)):
            allowed = buckets.depth + rate * (taken_at[last] - taken_at[first])
            assert last - first + 1 <= allowed + 1e-6


def test_the_table_is_bounded_and_the_bucket_in_use_survives_a_few_strangers() -> None:
    buckets = QuotaBuckets(1, 0.0, capacity=100)
    assert buckets.take("me", 0.0)
    assert buckets.take("me", 0.0)
    for number in range(49):
        buckets.take(number, 0.0)
    assert not buckets.take("me", 0.0)
    for number in range(10_000):
        buckets.take(number, 0.0)

    assert len(buckets) <= 100


def test_whoever_is_not_seen_for_two_periods_is_forgotten() -> None:
    buckets = QuotaBuckets(10, 0.0)
    buckets.take("me", 0.0)
    buckets.turn(2.0)
    assert len(buckets) == 1
    buckets.turn(4.0)

    assert len(buckets) == 0


def test_a_token_given_back_can_be_taken_again_and_never_more() -> None:
    buckets = QuotaBuckets(1, 0.0)
    for _ in range(10):
        assert buckets.take("me", 0.0)
        buckets.give_back("me")
    buckets.give_back("me")
    buckets.give_back("nobody")

    assert [buckets.take("me", 0.0) for _ in range(3)] == [True, True, False]


def test_a_rate_of_zero_is_off_and_remembers_nobody() -> None:
    buckets = QuotaBuckets(0, 0.0)

    assert all(buckets.take(number, 0.0) for number in range(1000))
    assert len(buckets) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
    ],
)
async def test_an_address_is_an_ipv4_or_an_ipv6_network(one: str, other: str, *, same: bool) -> None:
    allowances = GatewayQuotas(Inventory("test", LoopClock()), QuotaOptions(), 0.0)
    names = [allowances.address(Peer(host, 1, None, secure=False)) for host in (one, other)]

    assert (names[0] == names[1]) is same


async def test_peers_of_a_unix_socket_have_only_the_global_quota() -> None:
    tight = QuotaOptions(default_rps=1, burst_rps=5, per_ip_rps=1, per_cap_rps=1)
    async with gated(tight) as site:
        client, connection, _ = site.join()
        connection.peer = connection.peer._replace(uid=1000)
        client.send(get("/open/now") * 2 + get("/now", await site.known()) * 2 + get("/now", site.bearer()) * 2)
        answers = await client.answers(6)

    assert [answer.status for answer in answers] == [200] * 5 + [429]
    assert answers[5].json()["scope"] == "global"


async def test_a_reload_changes_the_rates_at_once() -> None:
    async with gated(QuotaOptions(default_rps=1, burst_rps=1, per_ip_rps=0, per_cap_rps=0)) as site:
        client = site.connect()
        client.send(get("/open/now") * 2)
        before = await client.answers(2)
        site.gate.apply(QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=0, per_cap_rps=0))
        client.send(get("/open/now") * 5)
        after = await client.answers(5)

    assert [answer.status for answer in before] == [200, 429]
    assert {answer.status for answer in after} == {200}


async def test_no_table_of_the_gate_holds_a_token() -> None:
    async with gated(QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=5, per_cap_rps=5)) as site:
        field = site.bearer()
        token = field.rpartition(" ")[2]
        client = await site.ask("/now", field)
        await client.answer()
        await settle()
        keys = [*site.gate.quotas.per_cap._now, *site.gate.quotas.per_ip._now]
        tenants = [key for each in site.gate.queue.classes.values() for key in each.tenants]

    assert keys
    assert not any(token in repr(key) or key == token for key in [*keys, *tenants])


async def test_refusals_are_counted_by_kind() -> None:
    async with gated(QuotaOptions(default_rps=0, burst_rps=1, per_ip_rps=1, per_cap_rps=0)) as site:
        client = site.connect()
        client.send(get("/open/now") * 5)
        await client.answers(5)

        assert site.count("quota_reject_total", kind="per_ip") == 3
        assert site.count("rejected_total", reason="rate_limited") == 3
        limits = {row["name"]: row for row in site.inventory.rows()["limits"]}
        assert limits["quotas.per_ip"]["refused"] == 3

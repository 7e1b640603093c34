"""Who owns a network does not own a bucket; private addresses are not limited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.services.dht.core.bucket import Bucket, Inserted
from penstock.services.dht.core.diversity import AddressGroup, DiversityRules, Mix, entropy_bits, group_of
from tests.services.dht.making import contact

RULES = DiversityRules()


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "192.168.1.1", "::1", "fe80::1", "example.org"])
def test_an_address_that_is_not_global_has_no_group(host: str) -> None:
    assert group_of(host) is None


def test_a_private_network_is_grouped_on_request() -> None:
    assert group_of("10.1.2.3", group_private=True) == group_of("10.1.2.9", group_private=True)


def test_groups_are_the_16_and_24_bits_or_32_and_48_of_an_address() -> None:
    first, second, third = group_of("8.8.8.8"), group_of("8.8.4.4"), group_of("8.9.8.8")
    assert first is not None
    assert second is not None
    assert third is not None

    assert first.group == second.group != third.group
    assert first.subnet != second.subnet
    assert group_of("2a00:1450:1::1") == group_of("2a00:1450:1::2") != group_of("2a00:1450:2::1")


GROUPS = st.builds(lambda g, s: AddressGroup(f"g{g}", f"g{g}.{s}"), st.integers(0, 5), st.integers(0, 30))


@given(st.lists(GROUPS, max_size=60))
def test_whatever_comes_in_which_order_no_group_takes_more_than_its_share(arrivals: list[AddressGroup]) -> None:
    mix, taken = Mix(RULES), list[AddressGroup]()
    for each in arrivals:
        if mix.allows(each):
            mix.add(each)
            taken.append(each)
            of_group = sum(other.group == each.group for other in taken)
            if len(taken) >= 5:
                assert of_group <= 0.4 * len(taken), "a newcomer never stands above its share"

    assert all(count <= 8 for count in mix.groups.values())
    subnets = [each.subnet for each in taken]
    assert all(subnets.count(subnet) <= 2 for subnet in subnets)


@given(st.lists(GROUPS, max_size=40))
def test_a_one_sided_set_becomes_more_mixed_and_never_less(arrivals: list[AddressGroup]) -> None:
    mix = Mix(RULES)
    for each in arrivals:
        before = entropy_bits(mix.groups)
        if mix.allows(each):
            mix.add(each)
            if mix.size >= 5:
                assert entropy_bits(mix.groups) >= min(1.5, before)


def test_seventy_percent_of_one_network_leave_room_for_the_others() -> None:
    bucket = Bucket(20)
    hosts = [f"8.8.{i}.1" for i in range(70)] + [f"{20 + i}.1.1.1" for i in range(30)]
    for node, host in enumerate(hosts, start=1):
        bucket.insert(contact(node, host), 0.0)
    for node, host in enumerate(hosts, start=1):
        bucket.insert(contact(node, host), 1.0)

    groups = [each.group.group for each in bucket.view().contacts if each.group is not None]
    assert max(groups.count(group) for group in groups) <= 8
    assert len(set(groups)) >= 3


def test_a_third_of_one_subnet_is_refused() -> None:
    bucket = Bucket(20)
    outcomes = [bucket.insert(contact(node, f"8.8.8.{node}"), 0.0).outcome for node in (1, 2, 3)]

    assert outcomes == [Inserted.ADDED, Inserted.ADDED, Inserted.REFUSED]


def test_loopback_is_not_limited() -> None:
    bucket = Bucket(20)
    for node in range(1, 21):
        bucket.insert(contact(node), 0.0)

    assert len(bucket) == 20


def test_a_replacement_takes_a_place_only_while_its_subnet_has_room() -> None:
    bucket = Bucket(4, RULES)
    for number, host in enumerate(("11.0.0.1", "12.0.0.1", "13.0.0.1", "14.0.0.1")):
        bucket.insert(contact(number, host), 0.0)
    for number in range(10, 13):
        assert bucket.insert(contact(number, f"15.0.0.{number}"), 1.0).outcome is Inserted.CACHED

    promoted = [bucket.evict(number) for number in range(3)]
    assert [None if each is None else each.id for each in promoted] == [12, 11, None]

"""How many addresses of one network a set of contacts may hold, so that who owns a network does not own the set. Pure.

Only global addresses are grouped: the group is the /16 of an IPv4 address and the /32 of an IPv6 one, the subnet its
/24 or /48. Loopback and private addresses belong to no group and are not limited, unless a private network is to be
treated like the Internet (`group_private`). A newcomer is judged by its own group: it may not take more than its share.
A set that is already one-sided still takes what makes it more even.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

GROUP_SHARE: Final = 0.4
SUBNET_MAX: Final = 2
ENTROPY_BITS_MIN: Final = 1.5
# Shares and entropy of fewer entries say nothing: one entry alone is 100 %.
JUDGED_FROM: Final = 5


class AddressGroup(NamedTuple):
    """The two networks an address belongs to."""

    group: str
    subnet: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DiversityRules:
    """The limits; the defaults are those of a bucket of 20."""

    group_share: float = GROUP_SHARE
    entropy_bits_min: float = ENTROPY_BITS_MIN
    subnet_max: int = SUBNET_MAX
    group_max: int = 8


@lru_cache(maxsize=4096)
def group_of(host: str, *, group_private: bool = False) -> AddressGroup | None:
    """Return the networks of an address; None for a name, and for an address that is not global."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if not address.is_global and not group_private:
        return None
    wide, narrow = (16, 24) if address.version == 4 else (32, 48)
    number, bits = int(address), address.max_prefixlen
    return AddressGroup(f"{number >> bits - wide:x}/{wide}", f"{number >> bits - narrow:x}/{narrow}")


class Mix:
    """The groups of a set of contacts, counted; contacts without a group are not counted."""

    __slots__ = ("_groups", "_largest", "_rules", "_subnets", "size")

    def __init__(self, rules: DiversityRules) -> None:
        self._rules = rules
        self._groups: dict[str, int] = {}
        self._subnets: dict[str, int] = {}
        self._largest = 0  # members of the largest group
        self.size = 0

    def add(self, member: AddressGroup) -> None:
        """Count a member."""
        of_group = self._groups[member.group] = self._groups.get(member.group, 0) + 1
        if of_group > self._largest:
            self._largest = of_group
        self._subnets[member.subnet] = self._subnets.get(member.subnet, 0) + 1
        self.size += 1

    def remove(self, member: AddressGroup) -> None:
        """Count a member out."""
        _lower(self._groups, member.group)
        _lower(self._subnets, member.subnet)
        self._largest = max(self._groups.values(), default=0)
        self.size -= 1

    def admit(self, member: AddressGroup) -> bool:
        """Count a member if it may be one; False when it may not."""
        if not self.allows(member):
            return False
        self.add(member)
        return True

    def allows(self, member: AddressGroup) -> bool:
        """Tell whether one more of this group keeps the set mixed, or makes it more so."""
        rules = self._rules
        of_group = self._groups.get(member.group, 0) + 1
        if of_group > rules.group_max or self._subnets.get(member.subnet, 0) >= rules.subnet_max:
            return False
        size = self.size + 1
        if size < JUDGED_FROM:
            return True
        share = rules.group_share * size
        # The entropy can only be too low where some group is above its share, which mostly spares the sum.
        return of_group <= share and (self._largest <= share or self._mixed_enough(member))

    def _mixed_enough(self, member: AddressGroup) -> bool:
        after = {**self._groups, member.group: self._groups.get(member.group, 0) + 1}
        now = entropy_bits(after)
        return now >= self._rules.entropy_bits_min or now >= entropy_bits(self._groups)

    @property
    def groups(self) -> Mapping[str, int]:
        """Return the count of each group."""
        return self._groups


def entropy_bits(counts: Mapping[str, int]) -> float:
    """Return the Shannon entropy of a distribution given by counts."""
    total = sum(counts.values())
    return sum(-n / total * math.log2(n / total) for n in counts.values() if n) if total else 0.0


def _lower(counts: dict[str, int], name: str) -> None:
    left = counts[name] - 1
    if left:
        counts[name] = left
    else:
        del counts[name]

"""The `[omnigate]` table as a whole: each fault is told in a sentence, and no setting lifts a bound of the gateway."""

from __future__ import annotations

import pytest

from penstock.config.build import Machine, build
from penstock.config.faults import ConfigFaults, Fault
from penstock.config.settings import Settings
from penstock.config.sources import Document, Sources
from penstock.config.tables import node_schema
from penstock.services.omnigate.config import TABLE


def read(toml: str) -> Settings:
    """Make settings of a file's text alone."""

    def fetch(part: str, name: str) -> str:
        raise AssertionError(f"nothing here is kept elsewhere: {part} {name}")

    machine = Machine(ram_bytes=1 << 30, fetch=fetch)
    return build(node_schema(TABLE), Document("gate.toml", toml), Sources(environ={}), machine)


def faults_of(toml: str) -> tuple[Fault, ...]:
    """Return what is wrong with a file."""
    with pytest.raises(ConfigFaults) as refused:
        read(toml)
    return refused.value.faults


@pytest.mark.parametrize(
    ("toml", "told"),
    [
        ('[[omnigate.routes]]\nprefix = "/v1/o"\nupstream = ["http://h"]', "'/v1/o' is one of the gateway's own paths"),
        ('[[omnigate.routes]]\nprefix = "/a"\nupstream = ["http://h:99999"]', "A URL's port is between 1 and 65535."),
        (
            '[[omnigate.routes]]\nprefix = "/a"\nupstream = ["http://[::1"]',
            "the upstream 'http://[::1' is no http:// base",
        ),
        (
            '[[omnigate.routes]]\nprefix = "/a"\nupstream = ["http://h"]\nclass = "gold"',
            "the class 'gold' of /a is none",
        ),
        (
            '[[omnigate.views]]\nname = "v"\nparts = [{name = "p", target = "ftp://h"}]',
            "the target of the part p is no",
        ),
        ('[[omnigate.views]]\nname = "v"\nparts = []', "the view v has 0 parts, not 1 to 3"),
    ],
)
def test_what_is_wrong_with_a_route_or_a_view_is_told_in_one_sentence(toml: str, told: str) -> None:
    (fault,) = faults_of(toml)

    assert told in str(fault)
    assert len(str(fault)) < 200


@pytest.mark.parametrize("row", ['max_body_bytes = "2MiB"', "decompress_ratio_cap = 11"])
@pytest.mark.parametrize("table", ["omnigate", "http"])
def test_no_setting_lets_the_gateway_take_larger_bodies_than_a_mebibyte_or_inflate_more_than_ten_times(
    table: str, row: str
) -> None:
    (fault,) = faults_of(f"[{table}.limits]\n{row}")

    assert fault.key == f"omnigate.limits.{row.split(maxsplit=1)[0]}"


def test_a_lower_bound_is_taken_from_either_table() -> None:
    assert read('[http.limits]\nmax_body_bytes = "64KiB"').size("omnigate.limits.max_body_bytes") == 64 << 10
    assert read("[omnigate.limits]\ndecompress_ratio_cap = 3").integer("omnigate.limits.decompress_ratio_cap") == 3

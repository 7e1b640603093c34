"""Settings that no issuer could live with are refused at the start with their rule, not found out while it runs."""

from __future__ import annotations

import pytest

from penstock.capability import ed25519
from penstock.config import ConfigFaults, Sources, load, node_schema
from penstock.services.passport.config import TABLE

KEY = ed25519.public_of(bytes(32)).hex()
SMALL_ORDER = "01" + "00" * 31


def faults(*sets: str) -> list[tuple[str, str]]:
    try:
        load(node_schema(TABLE), Sources(sets=tuple(f"passport.{each}" for each in sets)))
    except ConfigFaults as found:
        return [(fault.key.removeprefix("passport."), fault.rule) for fault in found.faults]
    return []


@pytest.mark.parametrize("key", ["", "zz", KEY[:-2], KEY + "00", SMALL_ORDER])
@pytest.mark.parametrize("endpoint", ["/etc/policy.json", "https://registry.example/policy"])
def test_a_registry_elsewhere_needs_the_key_it_signs_with(endpoint: str, key: str) -> None:
    given = [f"registry.endpoint={endpoint}", *([f"registry.public_key={key}"] if key else [])]
    ((blamed, rule),) = faults(*given)

    assert blamed == "registry.public_key"
    assert "passport.registry.endpoint" in rule
    assert faults(f"registry.endpoint={endpoint}", f"registry.public_key={KEY}") == []


def test_a_hardware_module_is_named_and_does_what_is_asked_of_it() -> None:
    module = "kms.pkcs11.module=/usr/lib/module.so"

    assert [key for key, _ in faults("kms.engine=pkcs11")] == ["kms.pkcs11.module"]
    assert [key for key, _ in faults("kms.engine=pkcs11", module, "pq.mode=mirror")] == ["pq.mode"]
    assert faults("kms.engine=pkcs11", module) == []


@pytest.mark.parametrize(
    ("algs", "mode", "good"),
    [
        ("ed25519", "off", True),
        ("ed25519+ml-dsa-65", "off", False),
        ("ed25519", "enforce", False),
        ("ed25519", "mirror", True),
        ("rsa", "off", False),
    ],
)
def test_there_is_always_an_algorithm_to_issue_with(algs: str, mode: str, good: bool) -> None:
    told = faults(f"issuer_policy.alg_set={algs}", f"pq.mode={mode}")

    assert [key for key, _ in told] == ([] if good else ["issuer_policy.alg_set"])

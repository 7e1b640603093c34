"""The `[passport]` table and the options read from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.capability.token import ALGORITHMS
from penstock.config import (
    Apply,
    Derived,
    Key,
    KeyRule,
    Kind,
    channel_key,
    listener_settings,
    oap_key,
    service_drain,
    service_table,
)
from penstock.kernel.errors import Malformed
from penstock.services.passport.kms import KmsLimits
from penstock.services.passport.policy import OFFERED, Limits
from penstock.services.passport.registry import anchor_of

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

_DAY_S = 24 * 3600
_FAMILY_SWITCHES = {
    "budget": ("budget.bytes", "budget.reqs"),
    "rate": ("rate.rps",),
    "route": ("route",),
    "region": ("region",),
}


def _kms_keys() -> tuple[Key, ...]:
    return (
        Key(
            "kms.engine",
            Kind.CHOICE,
            "local",
            choices=("local", "pkcs11"),
            apply=Apply.RESTART,
            help="Where the signing keys are: sealed in the data directory, or in a hardware module.",
        ),
        Key(
            "kms.timeout",
            Kind.DURATION,
            "3s",
            low="10ms",
            high="30s",
            apply=Apply.RESTART,
            help="A signature is made within this. Late: 504, never tried again.",
        ),
        Key(
            "kms.slo",
            Kind.DURATION,
            "500ms",
            low="1ms",
            high="10s",
            apply=Apply.RESTART,
            help="The breaker opens when one signature in twenty takes longer, for a minute.",
        ),
        Key(
            "kms.threads",
            Kind.INT,
            4,
            low=1,
            high=64,
            unit="threads",
            apply=Apply.RESTART,
            help="Threads that wait for the key store. At most this many calls can be stuck.",
        ),
        Key(
            "kms.sealing_secret",
            Kind.SECRET,
            None,
            apply=Apply.RESTART,
            help="Seals the keys at rest. Empty: a secret of the data directory's own.",
        ),
        Key(
            "kms.pkcs11.module",
            Kind.PATH,
            None,
            apply=Apply.RESTART,
            help="The PKCS#11 library of the hardware module.",
        ),
        Key(
            "kms.pkcs11.token_label", Kind.STR, "penstock", apply=Apply.RESTART, help="The label of the module's token."
        ),
        Key("kms.pkcs11.pin", Kind.SECRET, None, apply=Apply.RESTART, help="The user PIN of the module's token."),
    )


def _policy_keys() -> tuple[Key, ...]:
    return (
        Key(
            "issuer_policy.max_ttl",
            Kind.DURATION,
            "1h",
            low="1s",
            high="24h",
            help="The longest life of a token; the operator's own is exempt.",
        ),
        Key(
            "issuer_policy.grace",
            Kind.DURATION,
            "10m",
            low="0s",
            high="24h",
            help="How long a rotated key still verifies.",
        ),
        Key(
            "issuer_policy.rotation_days",
            Kind.INT,
            30,
            low=1,
            high=365,
            unit="days",
            apply=Apply.RESTART,
            help="Signing keys older than this are rotated.",
        ),
        Key(
            "issuer_policy.alg_set",
            Kind.LIST,
            ALGORITHMS,
            choices=ALGORITHMS,
            help="Algorithms a token may be signed with.",
        ),
        *_caveat_keys(),
    )


def _caveat_keys() -> tuple[Key, ...]:
    return (
        Key(
            "pq.mode",
            Kind.CHOICE,
            "off",
            choices=("off", "mirror", "require", "enforce"),
            help="How far post-quantum signatures are offered and demanded.",
        ),
        Key("caveats.max_budget_bytes", Kind.SIZE, "1MiB", low="1B", high="1GiB", help="The largest `budget.bytes`."),
        Key(
            "caveats.max_budget_reqs",
            Kind.INT,
            100,
            low=1,
            high=1_000_000,
            unit="requests",
            help="The largest `budget.reqs`.",
        ),
        Key(
            "caveats.max_rate_rps",
            Kind.INT,
            5,
            low=1,
            high=1_000_000,
            unit="requests a second",
            help="The largest `rate.rps`.",
        ),
        *(
            Key(
                f"caveats.enable_{name}",
                Kind.BOOL,
                default=True,
                help=f"Issue tokens with {' and '.join(families)} caveats.",
            )
            for name, families in _FAMILY_SWITCHES.items()
        ),
    )


def _registry_keys() -> tuple[Key, ...]:
    return (
        Key(
            "registry.endpoint",
            Kind.STR,
            None,
            apply=Apply.RESTART,
            help="File or URL of the signed policy. Empty: a local one, made and signed at the first start.",
        ),
        Key(
            "registry.public_key",
            Kind.STR,
            None,
            apply=Apply.RESTART,
            help="The Ed25519 key that signs the policy, in hex. Needed with an endpoint.",
        ),
        Key(
            "registry.timeout",
            Kind.DURATION,
            "3s",
            low="10ms",
            high="60s",
            apply=Apply.RESTART,
            help="A policy is fetched within this.",
        ),
        Key(
            "registry.poll",
            Kind.DURATION,
            "30s",
            low="100ms",
            high="24h",
            apply=Apply.RESTART,
            help="How often the policy is fetched, with jitter.",
        ),
    )


def _is_anchor(public_key: str | None, endpoint: str | None) -> bool:
    """Tell whether a registry's signatures can be checked; without an endpoint the registry is our own."""
    if not endpoint:
        return True
    try:
        return bool(anchor_of(public_key or ""))
    except Malformed:
        return False


_RULES = (
    KeyRule(
        ("passport.registry.public_key", "passport.registry.endpoint"),
        _is_anchor,
        "must be the Ed25519 key that signs what passport.registry.endpoint holds, as 64 hex digits",
    ),
    KeyRule(
        ("passport.kms.pkcs11.module", "passport.kms.engine"),
        lambda module, engine: engine != "pkcs11" or module is not None,
        "must be set where passport.kms.engine is pkcs11",
    ),
    KeyRule(
        ("passport.pq.mode", "passport.kms.engine"),
        lambda mode, engine: engine != "pkcs11" or mode == "off",
        "must be off where passport.kms.engine is pkcs11, which has no ML-DSA-65",
    ),
    KeyRule(
        ("passport.issuer_policy.alg_set", "passport.pq.mode"),
        lambda algs, mode: not set(OFFERED[mode]).isdisjoint(algs),
        "must have an algorithm that passport.pq.mode offers",
    ),
)

_TABLE = service_table(
    "passport",
    port_offset=7,
    keys=(
        oap_key(),
        Key(
            "workers",
            Kind.INT,
            Derived((), lambda: min(os.cpu_count() or 1, 8), "the number of cores, at most 8"),
            low=1,
            high=64,
            unit="tasks",
            apply=Apply.RESTART,
            help="Workers of the issuance pool.",
        ),
        Key(
            "crypto_threads",
            Kind.INT,
            2,
            low=1,
            high=64,
            unit="threads",
            apply=Apply.RESTART,
            help="Threads that check long chains and batches of signatures.",
        ),
        Key(
            "limits.rps",
            Kind.INT,
            20_000,
            low=1,
            high=10_000_000,
            unit="requests a second",
            zero_off=True,
            apply=Apply.RESTART,
            help="Requests to issue, revoke and rotate. More: 429 `rate_limited`.",
        ),
        Key(
            "limits.inflight",
            Kind.INT,
            512,
            low=32,
            high=65_536,
            unit="requests",
            apply=Apply.RESTART,
            help="Requests to issue, revoke and rotate that are unanswered at once. More: 429 `busy`.",
        ),
        channel_key("issue", 512, "requests to issue on their way to the pool. Full: 429 `busy`."),
        channel_key("revoke", 256, "revocations and rotations on their way to the one worker. Full: 429 `busy`."),
        *_policy_keys(),
        *_registry_keys(),
        *_kms_keys(),
        service_drain("5s", "30s"),
    ),
    help="Capability tokens: issue, verify, revoke.",
)
TABLE = replace(_TABLE, rules=(*_TABLE.rules, *_RULES))


@dataclass(frozen=True, kw_only=True, slots=True)
class RegistryOptions:
    """Where the policy comes from."""

    endpoint: str = ""
    public_key: str = ""
    timeout_s: float = 3.0
    poll_s: float = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class KmsOptions:
    """Where the signing keys are."""

    engine: str = "local"
    limits: KmsLimits = field(default_factory=KmsLimits)
    sealing_secret: bytes = b""
    module: Path | None = None
    token_label: str = "penstock"  # noqa: S105 - the label of a hardware token
    pin: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassportOptions:
    """What can be tuned."""

    listener: ListenerSettings
    # None keeps everything in RAM.
    data_dir: Path | None = None
    workers: int = 2
    crypto_threads: int = 2
    rps: int = 20_000
    inflight: int = 512
    issue_capacity: int = 512
    revoke_capacity: int = 256
    rotation_days: int = 30
    drain_deadline_s: float = 5.0
    limits: Limits = field(default_factory=Limits)
    registry: RegistryOptions = field(default_factory=RegistryOptions)
    kms: KmsOptions = field(default_factory=KmsOptions)

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> PassportOptions:
        """Read the `[passport]` table; the node may hand in listener settings it has fitted to the machine."""
        return cls(
            listener=listener or listener_settings(settings, "passport"),
            data_dir=None if settings.flag("node.amnesia") else settings.path("node.data_dir"),
            workers=settings.integer("passport.workers"),
            crypto_threads=settings.integer("passport.crypto_threads"),
            rps=settings.integer("passport.limits.rps"),
            inflight=settings.integer("passport.limits.inflight"),
            issue_capacity=settings.integer("passport.channels.issue"),
            revoke_capacity=settings.integer("passport.channels.revoke"),
            rotation_days=settings.integer("passport.issuer_policy.rotation_days"),
            drain_deadline_s=settings.seconds("passport.drain_deadline"),
            limits=limits_of(settings),
            registry=_registry(settings),
            kms=_kms(settings),
        )


def limits_of(settings: Settings) -> Limits:
    """Read what may change while the service runs."""
    off = [name for name in _FAMILY_SWITCHES if not settings.flag(f"passport.caveats.enable_{name}")]
    return Limits(
        max_ttl_s=int(settings.seconds("passport.issuer_policy.max_ttl")),
        grace_s=settings.seconds("passport.issuer_policy.grace"),
        algs=settings.texts("passport.issuer_policy.alg_set"),
        pq_mode=settings.text("passport.pq.mode"),
        disabled=frozenset(family for name in off for family in _FAMILY_SWITCHES[name]),
        max_budget_bytes=settings.size("passport.caveats.max_budget_bytes"),
        max_budget_reqs=settings.integer("passport.caveats.max_budget_reqs"),
        max_rate_rps=settings.integer("passport.caveats.max_rate_rps"),
    )


def _optional(settings: Settings, name: str) -> str:
    return "" if settings[name] is None else settings.text(name)


def _registry(settings: Settings) -> RegistryOptions:
    return RegistryOptions(
        endpoint=_optional(settings, "passport.registry.endpoint"),
        public_key=_optional(settings, "passport.registry.public_key"),
        timeout_s=settings.seconds("passport.registry.timeout"),
        poll_s=settings.seconds("passport.registry.poll"),
    )


def _kms(settings: Settings) -> KmsOptions:
    sealing, pin = settings.secret("passport.kms.sealing_secret"), settings.secret("passport.kms.pkcs11.pin")
    return KmsOptions(
        engine=settings.text("passport.kms.engine"),
        limits=KmsLimits(
            timeout_s=settings.seconds("passport.kms.timeout"),
            slo_s=settings.seconds("passport.kms.slo"),
            threads=settings.integer("passport.kms.threads"),
        ),
        sealing_secret=b"" if sealing is None else sealing.reveal().encode(),
        module=settings.path("passport.kms.pkcs11.module"),
        token_label=settings.text("passport.kms.pkcs11.token_label"),
        pin="" if pin is None else pin.reveal(),
    )

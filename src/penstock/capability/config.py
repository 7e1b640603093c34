"""The `[capability]` table: where a verifier's keys and floors come from, and how much it remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from penstock.capability.verifier import PqMode, VerifierOptions
from penstock.config import Apply, Key, Kind, Table

if TYPE_CHECKING:
    from penstock.config import Settings

TABLE = Table(
    "capability",
    (
        Key(
            "issuer",
            Kind.STR,
            None,
            apply=Apply.RESTART,
            help="Where svc-passport is, for a service alone: http(s)://host:port, unix:/socket, oap:/socket, "
            "oap://host:port, or a file. Beyond this machine only https. Empty: the file it publishes there.",
        ),
        Key(
            "issuer_certificate",
            Kind.PATH,
            None,
            apply=Apply.RESTART,
            help="The certificate, or its authority, that an https issuer must prove itself by. Empty: the "
            "system's authorities.",
        ),
        Key(
            "stale_grace",
            Kind.DURATION,
            "30s",
            low="0s",
            high="10m",
            apply=Apply.RESTART,
            help="How long reads go on after the revocation feed was lost. Writes stop at once.",
        ),
        Key(
            "cache_tokens",
            Kind.INT,
            8192,
            low=16,
            high=1_000_000,
            unit="tokens",
            apply=Apply.RESTART,
            help="Verified tokens that are remembered, for a minute at most.",
        ),
        Key(
            "budgets",
            Kind.INT,
            65_536,
            low=16,
            high=10_000_000,
            unit="counters",
            apply=Apply.RESTART,
            help="Budgets and rates counted at once. Full: a new budgeted token is refused.",
        ),
    ),
    help="Verifying capabilities, in every service.",
)


def verifier_options(settings: Settings) -> VerifierOptions:
    """Read the table; the post-quantum mode is the issuer's."""
    return VerifierOptions(
        tokens_max=settings.integer("capability.cache_tokens"),
        prefixes_max=2 * settings.integer("capability.cache_tokens"),
        accounts_max=settings.integer("capability.budgets"),
        stale_grace_s=settings.seconds("capability.stale_grace"),
        amnesia=settings.flag("node.amnesia"),
        pq_mode=cast("PqMode", settings.text("passport.pq.mode")),
    )

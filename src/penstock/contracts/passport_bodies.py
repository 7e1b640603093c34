"""Answers of the passport's HTTP routes where they differ from the contract's values: every member is there. Pure."""

from __future__ import annotations

import msgspec

from penstock.contracts import passport as p


class VerifiedOut(msgspec.Struct, frozen=True):
    """The verdict with all its members."""

    ok: bool
    claims: p.Claims | None
    reason: str
    warnings: tuple[str, ...]
    authoritative: bool


class VerifiedBatchOut(msgspec.Struct, frozen=True):
    """The verdicts, in order."""

    results: tuple[VerifiedOut, ...]


def verified_out(verdict: p.Verified) -> VerifiedOut:
    """Write a verdict out."""
    return VerifiedOut(verdict.ok, verdict.claims, verdict.reason, verdict.warnings, verdict.authoritative)


def batch_out(verdicts: p.VerifiedBatch) -> VerifiedBatchOut:
    """Write verdicts out."""
    return VerifiedBatchOut(tuple(map(verified_out, verdicts.results)))

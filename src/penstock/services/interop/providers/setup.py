"""What an endpoint's settings give to its verifier; pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class WebhookSetup:
    """The part of an endpoint's settings that the check depends on. The last five are for `kind = "hmac"`."""

    # Newest first; each of them is accepted.
    secrets: tuple[bytes, ...] = field(repr=False)
    # None: the kind's own window.
    tolerance_s: float | None = None
    # What the provider was told, without the path: Twilio signs it.
    public_url: str = ""
    header: str = ""
    format: str = "{hex}"
    template: str = "{body}"
    timestamp_header: str = ""
    id_header: str = ""

    def window_s(self, default: float) -> float:
        """Return how far a time may be from now."""
        return default if self.tolerance_s is None else self.tolerance_s

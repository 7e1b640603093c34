"""The SDK without asyncio, under its public name; the code lies in `penstock.sdk.sync`."""

from __future__ import annotations

from penstock.sdk.sync import *  # noqa: F403 - the whole module under its public name

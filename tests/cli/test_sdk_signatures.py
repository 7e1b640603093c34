"""The page of the SDK's signatures: complete, and the same on every machine."""

from __future__ import annotations

import pytest

from penstock.cli.sdk_signatures import signatures_page


def test_every_public_call_of_a_client_is_there_with_its_parameters() -> None:
    page = signatures_page()

    assert "client.mailbox.ack(lease: Leased) -> Acked" in page
    assert "    idem_key: str | None = None,\n" in page
    assert all(f"\n{name}(" in page for name in ("connect", "connect_sync", "client.storage.put", "client.dht.find"))
    assert "self" not in page


def test_a_default_of_this_machine_is_not_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TEST_MARK", "of-this-machine")

    assert "of-this-machine" not in signatures_page()
    assert "environ: Mapping[str, str] | None = None," in signatures_page()

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
    assert "environ: Mapping[str, str] | None = None" in signatures_page()


def test_texts_that_are_defaults_are_quoted() -> None:
    page = signatures_page()

    assert 'prefix: str = "",' in page
    assert 'state: State = "ready",' in page
    assert 'on_lost: OnLost = "interrupt",' in page
    assert "= ," not in page


def test_options_have_their_defaults() -> None:
    page = signatures_page()

    assert "| `timeout_s` | `float` | `10.0` |" in page
    assert "| `tries_max` | `int or None` | `None` |" in page
    assert "| `receipts` | `Literal['strict', 'any']` | `\"strict\"` |" in page


@pytest.mark.parametrize(
    "value", ["Sent", "Envelope", "Issued", "Verified", "Stored", "ObjectInfo", "Attempt", "HandlerError", "Nacked"]
)
def test_what_comes_back_is_described(value: str) -> None:
    assert f"\n## {value}\n" in signatures_page()


def test_what_the_parts_of_the_sdk_say_to_each_other_is_left_out() -> None:
    page = signatures_page()

    assert [
        name for name in ("delivery.on_end", "check_stopped", "delivery.lapsed", "delivery.lose") if name in page
    ] == []

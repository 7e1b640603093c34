"""What the page of svc-interop says about refusals."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.services.interop.providers.verdict import WebhookRefusal

PAGE = (Path(__file__).parents[3] / "docs" / "services" / "interop.md").read_text()


def test_every_reason_of_a_refused_webhook_is_explained() -> None:
    (table,) = re.findall(r"\| reason \| what it means \|\n(.*?)\n\n", PAGE, re.DOTALL)
    explained = {name for row in table.splitlines() for name in re.findall(r"`([\w:]+)`", row.split("|")[1])}

    assert explained == {*WebhookRefusal, "bad_origin:ip", "bad_origin:host"}

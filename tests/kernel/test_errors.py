"""The error taxonomy: one root, and every class fixes its code, status, advice and metric."""

from __future__ import annotations

import pytest

from penstock.kernel import errors
from penstock.kernel.errors import BY_CODE, Busy, Lagging, Malformed, OverLimit, PenstockError, Timeout, taxonomy

# The closed set of problem codes with their status; codes of one class each.
STATUS = {
    "busy": 429, "timeout": 504, "canceled": 503, "not_ready": 503, "backpressure": 503, "integrity": 422,
    "over_limit": 413,
    "malformed": 400, "bad_origin": 400, "unauthenticated": 401, "expired": 401, "forbidden": 403,
    "policy_blocked": 403,
    "not_found": 404, "conflict": 409, "unsupported": 415, "rate_limited": 429, "downstream_unavailable": 503,
    "internal": 500,
}  # fmt: skip


def test_codes_and_statuses_are_the_closed_set() -> None:
    assert {code: kind.status for code, kind in BY_CODE.items()} == STATUS


@pytest.mark.parametrize("kind", taxonomy(), ids=lambda kind: kind.__name__)
def test_the_docstring_is_the_message(kind) -> None:
    assert kind.title() == kind.__doc__.partition("\n")[0]
    assert kind.title().endswith(".")
    assert issubclass(kind, PenstockError)


def test_what_may_be_tried_again_is_what_passes_by_itself() -> None:
    advice = {kind.code for kind in taxonomy() if kind.retryable}

    assert advice == {
        "busy", "timeout", "not_ready", "backpressure", "rate_limited", "downstream_unavailable",
    }  # fmt: skip


def test_an_instance_carries_its_facts_and_may_override_the_status() -> None:
    busy = Busy("work is full", queue="work")
    assert (str(busy), busy.facts, busy.status) == ("work is full", {"queue": "work"}, 429)

    ranged = Malformed("bad range", status=416)
    assert (ranged.status, Malformed.status) == (416, 400)


def test_a_timeout_names_its_operation_and_budget() -> None:
    error = Timeout("kms_sign", budget_s=0.25)

    assert (error.op, error.budget_s, error.facts["budget_ms"]) == ("kms_sign", 0.25, 250)
    assert "kms_sign" in error.detail
    assert "250 ms" in error.detail


def test_limits_and_lags_say_how_much() -> None:
    assert Lagging(7).skipped == 7
    assert OverLimit(limit="body_bytes").facts == {"limit": "body_bytes"}
    assert OverLimit(limit="body_bytes").detail == OverLimit.title()


def test_the_brownout_reason_is_spelled_as_the_seeds_do() -> None:
    assert errors.Backpressure().reason == "BACKPRESSURE"
    assert Busy().reason == "busy"

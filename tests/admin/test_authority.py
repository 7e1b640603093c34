"""Who may look: the operator token, whole and exact, and nothing that resembles it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from penstock.admin.authority import OperatorOnly
from penstock.net.server.route import Route

TOKEN = "psp1_not-a-real-token-just-forty-characters-long"


@dataclass
class Asked:
    """As much of a request as admission looks at."""

    route: Route
    headers: dict[bytes, bytes] = field(default_factory=dict)


def asked(path: str = "/inventory", *, open_route: bool = False, authorization: str | None = None) -> Asked:
    headers = {} if authorization is None else {b"authorization": authorization.encode()}
    return Asked(Route(method="GET", path=path, handler=str, open=open_route), headers)


def judge(request: Asked, *, open_metrics: bool = False, anyone: bool = False) -> str | None:
    """Return the reason of the refusal, None when admitted."""
    admission = OperatorOnly(lambda: TOKEN, open_metrics=lambda: open_metrics, anyone=anyone)
    refusal = admission(request)  # type: ignore[arg-type]
    return None if refusal is None else str(refusal.error.facts["reason"])


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_is_admitted(scheme: str) -> None:
    assert judge(asked(authorization=f"{scheme} {TOKEN}")) is None


@pytest.mark.parametrize("given", [None, "", "Basic " + TOKEN, TOKEN, "Bearer", "Bearer "])
def test_no_bearer_token_is_missing(given: str | None) -> None:
    assert judge(asked(authorization=given)) == "missing"


@pytest.mark.parametrize("given", ["x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), TOKEN[::-1]])
def test_a_wrong_token_is_refused(given: str) -> None:
    assert judge(asked(authorization=f"Bearer {given}")) == "bad_signature"


def test_metrics_are_open_only_where_the_settings_say_so() -> None:
    assert judge(asked("/metrics"), open_metrics=True) is None
    assert judge(asked("/metrics"), open_metrics=False) == "missing"
    assert judge(asked("/inventory"), open_metrics=True) == "missing"


def test_open_routes_and_insecure_dev_need_nothing() -> None:
    assert judge(asked(open_route=True)) is None
    assert judge(asked(), anyone=True) is None


def test_before_there_is_a_token_nobody_is_admitted() -> None:
    empty = OperatorOnly(lambda: "", open_metrics=lambda: False)

    assert empty(asked(authorization="Bearer ")) is not None  # type: ignore[arg-type]

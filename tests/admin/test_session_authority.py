"""A session opens the admin listener to the page that holds it, and to no other page, port or site."""

from __future__ import annotations

import pytest

from penstock.admin.authority import OperatorOnly, session_cookie, session_of
from tests.admin.test_authority import TOKEN, Asked, asked


class Secured:
    """A peer on TLS."""

    secure = True


class Plain:
    """A peer without it."""

    secure = False


def operator() -> OperatorOnly:
    return OperatorOnly(lambda: TOKEN, open_metrics=lambda: False)


def with_session(secret: str, **headers: str) -> Asked:
    request = asked()
    request.headers[b"host"] = b"127.0.0.1:5300"
    request.headers[b"cookie"] = f"other=1; penstock_session_5300={secret}".encode()
    request.headers.update({name.replace("_", "-").encode(): value.encode() for name, value in headers.items()})
    return request


def judge(authority: OperatorOnly, request: Asked) -> str | None:
    refusal = authority(request)  # type: ignore[arg-type]
    return None if refusal is None else str(refusal.error.facts["reason"])


def test_a_session_made_from_the_token_or_from_a_link_is_admitted() -> None:
    authority = operator()
    by_token = authority.sign_in(token=f" {TOKEN}\n")
    by_link = authority.sign_in(once=authority.make_link())

    assert by_token
    assert by_link
    assert judge(authority, with_session(by_token)) is None
    assert judge(authority, with_session(by_link)) is None


@pytest.mark.parametrize("given", [{}, {"token": "x"}, {"once": "x"}, {"token": TOKEN[:-1]}, {"token": "\ud800"}])
def test_anything_else_signs_nobody_in(given: dict[str, str]) -> None:
    assert operator().sign_in(**given) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "same-origin"},
        {"sec_fetch_site": "none"},
        {"origin": "http://127.0.0.1:5300"},
        {"origin": "HTTP://127.0.0.1:5300", "sec_fetch_site": "same-origin"},
    ],
)
def test_our_own_page_may_use_its_session(headers: dict[str, str]) -> None:
    authority = operator()

    assert judge(authority, with_session(str(authority.sign_in(token=TOKEN)), **headers)) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},  # another port of this host: the cookie goes there too
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
    ],
)
def test_another_page_may_not_use_it_whatever_the_method(headers: dict[str, str]) -> None:
    authority = operator()

    assert judge(authority, with_session(str(authority.sign_in(token=TOKEN)), **headers)) == "session"


def test_a_wrong_bearer_token_is_refused_even_beside_a_good_session() -> None:
    authority = operator()
    request = with_session(str(authority.sign_in(token=TOKEN)), authorization="Bearer wrong")

    assert judge(authority, request) == "bad_signature"


def test_two_nodes_on_one_host_do_not_share_a_cookie() -> None:
    request = with_session("mine")
    request.headers[b"host"] = b"127.0.0.1:6300"

    assert session_of(request) == ""  # type: ignore[arg-type]
    assert judge(operator(), request) == "missing"


@pytest.mark.parametrize(("peer", "secure"), [(Plain, False), (Secured, True)])
def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(peer: type, secure: bool) -> None:
    request = with_session("")
    request.peer = peer()  # type: ignore[attr-defined]
    name, value = session_cookie(request, "abc")  # type: ignore[arg-type]
    parts = value.decode().split("; ")

    assert name == b"Set-Cookie"
    assert parts[0] == "penstock_session_5300=abc"
    assert {"Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"} <= set(parts)
    assert ("Secure" in parts) is secure


def test_signing_out_takes_the_cookie_back() -> None:
    request = with_session("")
    request.peer = Plain()  # type: ignore[attr-defined]

    assert b"Max-Age=0" in session_cookie(request, "")[1]  # type: ignore[arg-type]

"""The route table: literal before parameter before rest, 404 and 405 told apart."""

from __future__ import annotations

import pytest

from penstock.kernel.errors import NotFound, Unsupported
from penstock.net.server.route import Route, Router


def table(*declared: str) -> Router:
    """Make a router of `METHOD /path` lines."""
    pairs = [line.split(" ") for line in declared]
    return Router(Route(method=method, path=path, handler=lambda _request: None) for method, path in pairs)


ROUTER = table(
    "GET /", "GET /v1/topics", "GET /v1/topics/{topic}/peek", "POST /v1/topics/{topic}", "GET /v1/topics/all/peek",
    "GET /v1/o/{rest*}",
)  # fmt: skip


@pytest.mark.parametrize(
    ("method", "segments", "path", "params"),
    [
        ("GET", (), "/", {}),
        ("GET", ("v1", "topics"), "/v1/topics", {}),
        ("HEAD", ("v1", "topics"), "/v1/topics", {}),
        ("GET", ("v1", "topics", "a/b", "peek"), "/v1/topics/{topic}/peek", {"topic": "a/b"}),
        ("GET", ("v1", "topics", "all", "peek"), "/v1/topics/all/peek", {}),
        ("POST", ("v1", "topics", "x"), "/v1/topics/{topic}", {"topic": "x"}),
        ("GET", ("v1", "o", "a", "b"), "/v1/o/{rest*}", {"rest": "a/b"}),
        ("GET", ("v1", "o"), "/v1/o/{rest*}", {"rest": ""}),
    ],
)
def test_a_path_leads_to_its_route(method: str, segments: tuple[str, ...], path: str, params: dict[str, str]) -> None:
    route, found = ROUTER.match(method, segments)

    assert (route.path, found) == (path, params)


@pytest.mark.parametrize(
    "segments", [("v1",), ("v1", "topics", "x", "peek", ""), ("v2",), ("v1", "topics", "x", "y", "z")]
)
def test_a_path_without_a_route_is_404(segments: tuple[str, ...]) -> None:
    with pytest.raises(NotFound):
        ROUTER.match("GET", segments)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/topic", "/v1/topics"),
        ("/v1/tpoics", "/v1/topics"),
        ("/v1/Topics/", "/v1/topics"),
        ("/topics", "/v1/topics"),
        ("/v1/topics/orders/peak", "/v1/topics/orders/peek"),
        ("/v1/subjects", ""),
        ("/favicon.ico", ""),
        ("/v1/" + "topics" * 1_000, ""),
        ("/x" * 1_000, ""),
    ],
)
def test_a_path_that_is_not_there_is_answered_with_the_one_that_was_meant(path: str, meant: str) -> None:
    with pytest.raises(NotFound) as caught:
        ROUTER.match("GET", tuple(path[1:].split("/")))

    wanted = f"Did you mean {meant}?" if meant else "/openapi.json lists every path of this port."
    assert caught.value.facts["hint"] == wanted


def test_another_method_is_405_and_names_what_is_allowed() -> None:
    with pytest.raises(Unsupported) as caught:
        ROUTER.match("DELETE", ("v1", "topics"))

    assert caught.value.status == 405
    assert caught.value.facts["allow"] == ["GET", "HEAD", "OPTIONS"]
    assert caught.value.facts["hint"] == "It takes GET, HEAD, OPTIONS."


def test_the_root_says_what_the_port_is_where_only_programs_post_to_it() -> None:
    with pytest.raises(NotFound, match="HTTP API"):
        table("POST /").match("GET", ())
    with pytest.raises(Unsupported):
        table("POST /").match("DELETE", ())


def test_the_same_route_twice_is_a_bug() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        table("GET /a/{x}", "GET /a/{y}")

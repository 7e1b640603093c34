"""Routes of the gateway that an operator adds and removes while it runs."""

from __future__ import annotations

import http.client
import json
import os
import tomllib
from pathlib import Path

import pytest

from penstock.kernel.errors import Conflict, Malformed, NotFound
from penstock.services.omnigate.proxy.config import RouteRefused
from penstock.services.omnigate.proxy.live_routes import LiveRoutes, NewRoute
from tests.acceptance.node_process import NodeProcess, ask, penstock
from tests.acceptance.upstream_process import Upstream

CONFIG = """
[[omnigate.routes]]
prefix = "/fixed"
upstream = ["{base}"]
"""


def get(node: NodeProcess, path: str) -> int:
    return node.ask("omnigate", "GET", path).status


def test_a_route_is_added_used_kept_and_removed_while_the_gateway_runs(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    env = {**os.environ, "PENSTOCK_DATA_DIR": str(tmp_path / "node")}

    def route(*words: str, code: int = 0) -> str:
        done = penstock("route", *words, env=env)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    with Upstream() as upstream:
        config.write_text(CONFIG.format(base=upstream.url))
        base = upstream.url
        with NodeProcess("--config", str(config), data_dir=tmp_path / "node") as node:
            kept = node.connect("omnigate")
            assert ask(kept, "GET", "/fixed/now").status == 200
            assert get(node, "/shop/now") == 404
            told = route("add", "/shop", base)
            assert "/shop  ->  " in told
            assert "is open to anyone" in told
            assert get(node, "/shop/now") == 200
            # A connection that was open before the change sees it too, and the old route still works on it.
            assert [ask(kept, "GET", path).status for path in ("/shop/now", "/fixed/now")] == [200, 200]
            kept.close()
            listed = json.loads(route("list", "--json"))["routes"]
            assert [(each["prefix"], each["source"]) for each in listed] == [("/fixed", "file"), ("/shop", "live")]
            assert "the configuration file has a route" in route("add", "/fixed", base, code=1).lower()
            assert "Write it as /shop" in route("add", "shop", base, code=1)
            assert "Write it as /shop" in route("remove", "shop", code=1)
            assert "own paths" in route("add", "/v1/send", base, code=1)
            assert "does not answer yet" in route("add", "/nobody", "http://127.0.0.1:9")
            described = node.ask("omnigate", "GET", "/openapi.json").json()["paths"]
            assert any(path.startswith("/shop") for path in described)
        with NodeProcess("--config", str(config), data_dir=tmp_path / "node") as node:
            assert get(node, "/shop/now") == 200
            assert route("remove", "/shop") == "/shop is gone\n"
            assert get(node, "/shop/now") == 404
            assert "no route /shop" in route("remove", "/shop", code=1)
            config.write_text("")
            assert penstock("config", "reload", env=env).returncode == 0
            assert get(node, "/fixed/now") == 404


def test_the_gateway_describes_what_an_operator_may_ask_as_the_admin_listener_does(node: NodeProcess) -> None:
    def asked(listener: str) -> dict[tuple[str, str], object]:
        described = node.ask(listener, "GET", "/openapi.json", token=True).json()["paths"]
        return {
            (path, method): sorted(each["name"] for each in operation.get("parameters", ()))
            for path, operations in described.items()
            if path.startswith("/v1/node/")
            for method, operation in operations.items()
        }

    at_gateway, at_admin = asked("omnigate"), asked("admin")
    assert at_gateway == {each: at_admin[each] for each in at_gateway}
    assert at_gateway["/v1/node/routes", "get"] == ["dial"]


def test_nobody_but_the_operator_changes_routes(node: NodeProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.port("omnigate"))
    body = {"prefix": "/x", "upstream": ["http://127.0.0.1:9"]}
    for token in (None, "psp1_nobody"):
        assert ask(connection, "POST", "/v1/node/routes", body, token).status == 401
    issue = {"subject_ref": "ada", "audience": ["omnigate"], "caveats": ["op=admin"]}
    token = node.ask("passport", "POST", "/v1/passport/issue", issue, token=True).json()["token"]
    assert ask(connection, "POST", "/v1/node/routes", body, token).status == 403
    connection.close()


def test_the_file_is_written_before_the_change_and_a_damaged_one_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "omnigate" / "routes.toml"
    routes = LiveRoutes(file, ())
    seen: list[int] = []
    routes.on_change = lambda tables: seen.append(len(tomllib.loads(file.read_text()).get("routes", [])))
    routes.add(NewRoute("/a", ("http://h:1",), require=("op=get",)))
    routes.add(NewRoute("/b", ("http://h:2",), strip_prefix=False))
    routes.remove("/a")

    assert seen == [1, 2, 1]
    assert [route.name for route in LiveRoutes(file, ()).tables.live] == ["/b"]
    assert LiveRoutes(file, ()).tables.live[0].strip_prefix is False
    file.write_text("routes = 3")
    with pytest.raises(RouteRefused, match="cannot be read"):
        LiveRoutes(file, ())
    assert file.read_text() == "routes = 3"


def test_the_configurations_route_wins_and_bad_ones_are_refused() -> None:
    fixed = NewRoute("/a", ("http://h:1",)).route()
    routes = LiveRoutes(None, ())
    routes.add(NewRoute("/a", ("http://h:2",)))
    routes.configure((fixed,))

    assert routes.tables.served == (fixed,)
    with pytest.raises(Conflict):
        routes.add(NewRoute("/a", ("http://h:3",)))
    with pytest.raises(NotFound):
        routes.remove("/b")
    for bad in (
        NewRoute("a", ("http://h",)),
        NewRoute("/a", ("ftp://h",)),
        NewRoute("/a", ("http://h",), require=("x",)),
    ):
        with pytest.raises(Malformed):
            routes.add(bad)


def test_what_a_route_was_given_is_told_as_a_whole_so_that_it_can_be_given_again(tmp_path: Path) -> None:
    asked = {
        "prefix": "/whole",
        "upstream": ["http://127.0.0.1:9", "http://127.0.0.1:10"],
        "require": ["op=get", "topic=orders"],
        "methods": ["GET", "OPTIONS"],
        "strip_prefix": False,
        "timeout_ms": 1250,
    }
    with NodeProcess(data_dir=tmp_path) as node:
        assert node.ask("admin", "POST", "/admin/routes", asked, token=True).status == 200
        (told,) = node.ask("admin", "GET", "/admin/routes", token=True).json()["routes"]

    assert {name: told[name] for name in NewRoute.__struct_fields__} == asked

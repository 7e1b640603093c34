"""The first rule that matches decides; what no rule speaks of is denied; a bundle that does not load is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net.server.route import Route
from penstock.services.omnigate.gate.policy import (
    DEFAULT,
    AccessPolicy,
    Bundle,
    BundleRefused,
    PolicyRule,
    ProvenCaller,
    parse_bundle,
    read_bundle,
)
from penstock.wire.http1.head import CHUNKED

ANON = ProvenCaller("anon", "ip:192.0.2.7")
ACME = ProvenCaller("authed", "acme")
PLAIN = Route(method="GET", path="/shop/{rest*}", handler=lambda _: None)


def request(method: str, path: str, *, length: int = 0, route: Route = PLAIN) -> Any:
    """Make as much of a request as policy looks at."""
    segments = tuple(part for part in path.split("/") if part)
    return SimpleNamespace(method=method, segments=segments, route=route, head=SimpleNamespace(length=length))


def status(policy: AccessPolicy, asked: Any, sender: ProvenCaller = ACME, tags: frozenset[str] = frozenset()) -> int:
    """Return what policy would answer; 200 stands for allowed."""
    refusal = policy.decide(asked, sender, tags)
    return 200 if refusal is None else refusal.status


def test_what_no_rule_speaks_of_is_denied() -> None:
    assert status(AccessPolicy(Bundle()), request("GET", "/anything")) == 403


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/o/b3:00", 200),
        ("HEAD", "/v1/o/b3:00", 200),
        ("PUT", "/v1/o", 200),
        ("DELETE", "/v1/o/b3:00", 403),
        ("POST", "/v1/mailbox/orders", 200),
        ("GET", "/v1/mailbox/orders", 403),
        ("POST", "/v1/passport/issue", 200),
        ("GET", "/v1/dht/providers/b3:00", 200),
        ("GET", "/v1/view/home", 200),
        ("GET", "/v1/other", 403),
        ("GET", "/shop/1", 403),
    ],
)
def test_the_shipped_bundle_allows_the_own_routes_and_nothing_else(method: str, path: str, expected: int) -> None:
    assert status(AccessPolicy(DEFAULT), request(method, path)) == expected


def test_a_prefix_ends_at_a_segment() -> None:
    policy = AccessPolicy(Bundle(rules=(PolicyRule(action="allow", path="/v1/o"),)))

    assert status(policy, request("GET", "/v1/o")) == 200
    assert status(policy, request("GET", "/v1/o/x")) == 200
    assert status(policy, request("GET", "/v1/other", route=Route(method="GET", path="/x", handler=print))) == 403


def test_the_first_match_wins() -> None:
    deny_first = Bundle(rules=(PolicyRule(action="deny", path="/a/b"), PolicyRule(action="allow", path="/a")))
    allow_first = Bundle(rules=(PolicyRule(action="allow", path="/a"), PolicyRule(action="deny", path="/a/b")))

    assert status(AccessPolicy(deny_first), request("GET", "/a/b/c")) == 403
    assert status(AccessPolicy(deny_first), request("GET", "/a/c")) == 200
    assert status(AccessPolicy(allow_first), request("GET", "/a/b/c")) == 200


def test_a_legal_reason_is_451_and_any_other_403() -> None:
    policy = AccessPolicy(
        Bundle(rules=(PolicyRule(action="deny", path="/a", reason="legal"), PolicyRule(action="deny", reason="abuse")))
    )

    refused = policy.decide(request("GET", "/a"), ACME)

    assert refused is not None
    assert (refused.status, refused.error.code, refused.error.facts["reason"]) == (451, "policy_blocked", "legal")
    assert status(policy, request("GET", "/b", route=Route(method="GET", path="/b", handler=print))) == 403


def test_rules_look_at_tenant_class_region_tags_and_body() -> None:
    rules = (
        PolicyRule(action="deny", tenant=("acme",), path="/t"),
        PolicyRule(action="deny", class_=("anon",), path="/c"),
        PolicyRule(action="deny", region=("eu",), path="/r"),
        PolicyRule(action="deny", tags=("beta",), path="/g"),
        PolicyRule(action="deny", body_over=100, path="/b"),
        PolicyRule(action="allow"),
    )
    policy = AccessPolicy(Bundle(rules=rules), region="eu")

    assert (status(policy, request("GET", "/t"), ACME), status(policy, request("GET", "/t"), ANON)) == (403, 200)
    assert (status(policy, request("GET", "/c"), ACME), status(policy, request("GET", "/c"), ANON)) == (200, 403)
    assert status(policy, request("GET", "/r")) == 403
    assert status(AccessPolicy(Bundle(rules=rules), region="us"), request("GET", "/r")) == 200
    tagged = Route(method="GET", path="/g", handler=print)
    assert status(policy, request("GET", "/g", route=tagged), tags=frozenset({"beta"})) == 403
    assert status(policy, request("GET", "/g")) == 200
    assert [status(policy, request("POST", "/b", length=n)) for n in (100, 101, CHUNKED)] == [200, 403, 403]


def test_a_configured_route_is_allowed_after_the_bundle_s_rules_only() -> None:
    policy = AccessPolicy(Bundle(rules=(PolicyRule(action="deny", path="/shop/secret"),)), allowed=[PLAIN])

    assert status(policy, request("GET", "/shop/1")) == 200
    assert status(policy, request("GET", "/shop/secret/2")) == 403
    assert status(policy, request("GET", "/shop/1", route=Route(method="GET", path="/x", handler=print))) == 403


@pytest.mark.parametrize(
    "text",
    [
        b"default_action = 'maybe'",
        b"[[rules]]\naction = 'allow'\npaht = '/x'",
        b"[[rules]]\nmethods = ['GET']",
        b"[[rules]]\naction = 'allow'\npath = 'x'",
        b"[[rules]]\naction = 'allow'\nmethods = ['FETCH']",
        b"[[rules]]\naction = 'allow'\nbody_over = -1",
        b"rules = 3",
        b"[[rules]",
        b"\xff\xfe",
        b"[[rules]]\naction = 'allow'\n" * 1025,
        b"#" * ((1 << 20) + 1),
    ],
)
def test_a_bundle_that_does_not_load_is_refused_as_a_whole(text: bytes) -> None:
    with pytest.raises(BundleRefused):
        parse_bundle(text)


def test_a_bundle_file_is_toml_or_json_and_a_missing_one_is_named(tmp_path: Path) -> None:
    toml, json, missing = tmp_path / "a.toml", tmp_path / "a.json", tmp_path / "none.toml"
    toml.write_bytes(b"[[rules]]\naction = 'allow'\nclass = ['internal']")
    json.write_bytes(b'{"rules": [{"action": "allow", "class": ["internal"]}]}')

    assert read_bundle(toml) == read_bundle(json) == Bundle(rules=(PolicyRule(action="allow", class_=("internal",)),))
    with pytest.raises(BundleRefused, match=r"none\.toml"):
        read_bundle(missing)


_RULES = st.builds(
    PolicyRule,
    action=st.sampled_from(["allow", "deny"]),
    methods=st.lists(st.sampled_from(["GET", "POST"]), max_size=2).map(tuple),
    path=st.sampled_from(["/", "/a", "/a/b", "/b"]),
    class_=st.lists(st.sampled_from(["anon", "authed"]), max_size=2).map(tuple),
)


@given(st.lists(_RULES, max_size=6), st.sampled_from(["GET", "POST"]), st.sampled_from(["/a", "/a/b/c", "/b", "/ab"]))
def test_decisions_equal_a_plain_reading_of_the_rules(rules: list[PolicyRule], method: str, path: str) -> None:
    asked = request(method, path)

    expected = 403
    for rule in rules:
        prefix = tuple(part for part in rule.path.split("/") if part)
        if (
            (not rule.methods or method in rule.methods)
            and asked.segments[: len(prefix)] == prefix
            and (not rule.class_ or "authed" in rule.class_)
        ):
            expected = 200 if rule.action == "allow" else 403
            break
    assert status(AccessPolicy(Bundle(rules=tuple(rules))), asked) == expected

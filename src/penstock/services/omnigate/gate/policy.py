"""Policy: ordered rules, the first that matches decides, and what no rule speaks of is denied.

Everything here is decided before any downstream call, without waiting, from the head of the request and the proven
standing of its sender. A bundle is plain data (TOML or JSON); one that does not load is refused as a whole.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Literal

import msgspec

from penstock.kernel.errors import Malformed, PolicyBlocked
from penstock.kernel.memo import Memo
from penstock.net.server.admission import Refusal
from penstock.wire.http1.head import CHUNKED, METHODS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penstock.net.message import Request
    from penstock.net.server.route import Route

RULES_MAX: Final = 1024
BUNDLE_BYTES_MAX: Final = 1 << 20
LEGAL: Final = "legal"
_LEGAL_STATUS: Final = 451
# Compiled rules by route and method; both are finite, so this is bounded by the routes of the listener.
_KEPT_MAX: Final = 4096

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Prefix = Annotated[str, msgspec.Meta(min_length=1, max_length=1024, pattern="^/")]
Bytes = Annotated[int, msgspec.Meta(ge=0)]


class BundleRefused(Malformed):
    """A policy bundle that cannot be used; the text says where and why."""


class PolicyRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"class_": "class"}):
    """One rule. What it does not name, it does not look at; a list matches any of its words."""

    action: Literal["allow", "deny"]
    methods: tuple[Word, ...] = ()
    # Whole segments: `/v1/o` matches `/v1/o` and `/v1/o/x`, never `/v1/other`.
    path: Prefix = "/"
    tenant: tuple[Word, ...] = ()
    class_: tuple[Word, ...] = ()
    region: tuple[Word, ...] = ()
    tags: tuple[Word, ...] = ()
    # Matches a body announced as larger than this, and one of unknown length.
    body_over: Bytes | None = None
    reason: Word = "policy"

    def __post_init__(self) -> None:
        """Refuse methods that no request can have: such a rule would never match, or always seem to."""
        unknown = set(self.methods) - METHODS
        if unknown:
            raise ValueError(f"{', '.join(sorted(unknown))} is no method the listener takes")


class Bundle(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rules in order, and what happens when none matches."""

    rules: tuple[PolicyRule, ...] = ()
    default_action: Literal["allow", "deny"] = "deny"


DEFAULT: Final = Bundle(
    rules=(
        PolicyRule(action="allow", methods=("GET", "HEAD", "PUT"), path="/v1/o"),
        PolicyRule(action="allow", methods=("POST",), path="/v1/mailbox"),
        PolicyRule(action="allow", methods=("GET", "POST"), path="/v1/passport"),
        PolicyRule(action="allow", methods=("GET", "POST", "DELETE"), path="/v1/dht"),
        PolicyRule(action="allow", methods=("POST",), path="/webhooks"),
        PolicyRule(action="allow", methods=("GET", "POST"), path="/v1/webhooks"),
        PolicyRule(action="allow", methods=("POST",), path="/put"),
        PolicyRule(action="allow", methods=("GET", "HEAD"), path="/o"),
        PolicyRule(action="allow", methods=("GET",), path="/v1/view"),
        PolicyRule(action="allow", methods=("GET",), path="/v1/gateway"),
        # The services under their own paths; what each asks of a capability holds as at their own ports.
        *(
            PolicyRule(action="allow", path=f"/v1/{name}")
            for name in ("send", "recv", "ack", "nack", "extend", "topics", "dlq", "keys", "node", "sqs")
        ),
    )
)
"""What ships: the node's own routes, and nothing else."""


def read_bundle(path: Path) -> Bundle:
    """Read a bundle from a file, TOML unless its name ends in `.json`."""
    try:
        data = path.read_bytes()
    except OSError as exc:
        raise BundleRefused(f"the policy bundle {path} cannot be read: {exc.strerror}") from exc
    try:
        return parse_bundle(data, json=path.suffix == ".json")
    except BundleRefused as exc:
        raise BundleRefused(f"the policy bundle {path} is refused: {exc}") from exc


def parse_bundle(data: bytes, *, json: bool = False) -> Bundle:
    """Read a bundle from bytes; everything unknown, ambiguous or oversized is refused."""
    if len(data) > BUNDLE_BYTES_MAX:
        raise BundleRefused(f"it is larger than {BUNDLE_BYTES_MAX} bytes")
    try:
        raw = msgspec.json.decode(data) if json else tomllib.loads(data.decode("utf-8"))
        bundle = msgspec.convert(raw, Bundle)
    except (msgspec.MsgspecError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as exc:
        raise BundleRefused(str(exc)) from exc
    if len(bundle.rules) > RULES_MAX:
        raise BundleRefused(f"it has more than {RULES_MAX} rules")
    return bundle


@dataclass(frozen=True, slots=True)
class ProvenCaller:
    """Who asks, as far as it is proven: what rules about people look at."""

    class_name: str
    tenant: str


class _Ready:
    """A rule made ready for one route: what the route already decides is not looked at again."""

    __slots__ = ("body_over", "classes", "prefix", "refusal", "tenants")

    def __init__(self, rule: PolicyRule, prefix: tuple[str, ...], refusal: Refusal | None) -> None:
        self.prefix = prefix
        self.tenants = frozenset(rule.tenant)
        self.classes = frozenset(rule.class_)
        self.body_over = rule.body_over
        self.refusal = refusal

    def matches(self, request: Request, sender: ProvenCaller) -> bool:
        if self.prefix and request.segments[: len(self.prefix)] != self.prefix:
            return False
        if self.classes and sender.class_name not in self.classes:
            return False
        if self.tenants and sender.tenant not in self.tenants:
            return False
        return self.body_over is None or _over(request, self.body_over)


class AccessPolicy:
    """Decides by a bundle; routes that an operator configured carry their own allow, tried last."""

    def __init__(self, bundle: Bundle, *, region: str = "", allowed: Iterable[Route] = ()) -> None:
        """Make ready to decide; `allowed` are the configured routes, `region` is where this gateway stands."""
        self.bundle = bundle
        self._region = region
        self._allowed = frozenset(allowed)
        self._denied = {rule.reason: _refusal(rule.reason) for rule in bundle.rules if rule.action == "deny"}
        self._default = None if bundle.default_action == "allow" else _refusal("default")
        self._kept: Memo[tuple[Route, str], tuple[_Ready, ...]] = Memo(_KEPT_MAX)

    def decide(self, request: Request, sender: ProvenCaller, tags: frozenset[str] = frozenset()) -> Refusal | None:
        """Return None to allow, or what to answer instead. `tags` are the route's: the same at every call."""
        rules = self._kept.get((request.route, request.method))
        if rules is None:
            rules = self._make_ready(request, tags)
        for rule in rules:
            if rule.matches(request, sender):
                return rule.refusal
        return None if request.route in self._allowed else self._default

    def _make_ready(self, request: Request, tags: frozenset[str]) -> tuple[_Ready, ...]:
        route, method = request.route, request.method
        kept = tuple(
            _Ready(rule, _segments(rule.path), None if rule.action == "allow" else self._denied[rule.reason])
            for rule in self.bundle.rules
            if self._concerns(rule, method, tags)
        )
        return self._kept.put((route, method), kept)

    def _concerns(self, rule: PolicyRule, method: str, tags: frozenset[str]) -> bool:
        if rule.methods and method not in rule.methods:
            return False
        if rule.region and self._region not in rule.region:
            return False
        return not rule.tags or not tags.isdisjoint(rule.tags)


def _over(request: Request, limit: int) -> bool:
    length = request.head.length
    return length == CHUNKED or length > limit


def _segments(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part)


def _refusal(reason: str) -> Refusal:
    if reason == LEGAL:
        return Refusal(PolicyBlocked("This may not be served for legal reasons.", status=_LEGAL_STATUS, reason=reason))
    return Refusal(PolicyBlocked("The gateway's policy does not allow this.", reason=reason))

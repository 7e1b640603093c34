"""The panels of single services. They are here because the page and the services do not import each other."""

from __future__ import annotations

from datetime import UTC, datetime
from heapq import nlargest
from typing import TYPE_CHECKING

from penstock.admin.panel import Column, Panel, Rows

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from penstock.services.omnigate.fair.entry import Tenant
    from penstock.services.omnigate.service import OmnigateService
    from penstock.services.passport.audit_writer import AuditEntry
    from penstock.services.passport.service import PassportService

_CLASS_COLUMNS = (
    Column("class", "class"),
    Column("weight", "weight", "count"),
    Column("share", "share of the slots", "percent"),
    Column("running", "running", "count"),
    Column("waiting", "waiting", "count"),
    Column("places", "places", "count"),
    Column("tenants", "tenants", "count"),
    Column("refused", "refused", "bad"),
    Column("sheds", "sheds"),
)


def traffic_classes(service: OmnigateService) -> Panel:
    """Show the classes of the gateway: weight, running, waiting and refused requests."""

    def source() -> Rows:
        classes = service.gate.queue.classes.values()
        weights = sum(each.weight for each in classes)
        return [
            {
                "class": each.name,
                "weight": each.weight,
                "share": 100 * each.weight / weights,
                "running": each.running,
                "waiting": each.waiting,
                "places": each.capacity,
                "tenants": len(each.tenants),
                "refused": each.dropped,
                "sheds": "writes" if each.scarce or service.gate.degraded else "",
            }
            for each in sorted(classes, key=lambda each: (-each.waiting, -each.weight, each.name))
        ]

    return Panel("gateway-classes", "Traffic classes at the gateway", source, view="gateway", columns=_CLASS_COLUMNS)


_TENANT_COLUMNS = (
    Column("who", "class and tenant"),
    Column("rate", "requests", "rate"),
    Column("part", "share of the requests", "percent"),
    Column("running", "running", "count"),
    Column("share", "share of what runs", "percent"),
    Column("waiting", "waiting", "count"),
    Column("parked", "long polls and streams", "count"),
)
_TENANTS_SHOWN = 20
_LATELY_S = 5.0


class TenantRates:
    """Requests a second by tenant, over the last five to ten seconds.

    Most requests are over within milliseconds: who is busy is seen by what was taken in, not by what runs now.
    """

    def __init__(self) -> None:
        self._counts: tuple[float, dict[tuple[str, Hashable], int]] = (0.0, {})
        self._base = self._counts

    def look(self, tenants: Sequence[Tenant], now: float) -> dict[tuple[str, Hashable], float]:
        """Return the rates of those that sent something; the first look, or one after a pause, has none."""
        if now - self._counts[0] >= _LATELY_S:
            counts = (now, {each.key: each.taken for each in tenants})
            # Counts from before a pause would spread what is new over all of it.
            self._base = counts if now - self._counts[0] > 2 * _LATELY_S else self._counts
            self._counts = counts
        since, before = self._base
        if now - since < 1.0:
            return {}
        grown = {each.key: _grown(each.taken, before.get(each.key, 0)) for each in tenants}
        return {key: count / (now - since) for key, count in grown.items() if count}


def _grown(taken: int, before: int) -> int:
    """Tell how many came since; a tenant that was forgotten meanwhile began again."""
    return taken - before if taken >= before else taken


def gateway_tenants(service: OmnigateService) -> Panel:
    """Show the tenants that keep the gateway busiest: their share of requests and of slots, and how many wait."""
    lately = TenantRates()

    def source() -> Rows:
        queue = service.gate.queue
        tenants = [each for one in queue.classes.values() for each in one.tenants.values()]
        rates = lately.look(tenants, service.gate.monotonic())
        busy = [each for each in tenants if each.live or each.key in rates]
        busiest = nlargest(_TENANTS_SHOWN, busy, key=lambda each: (each.waiting, rates.get(each.key, 0.0), each.live))
        total = sum(rates.values())
        return [_tenant(each, rates.get(each.key, 0.0), total, queue.running) for each in busiest]

    empty = "No request came in the last seconds, and none is under way."
    title = "Busiest tenants at the gateway"
    return Panel("gateway-tenants", title, source, view="gateway", columns=_TENANT_COLUMNS, empty=empty)


def _tenant(tenant: Tenant, rate: float, rate_in_all: float, running_in_all: int) -> dict[str, object]:
    class_name, name = tenant.key
    running = max(0, tenant.live - tenant.waiting - tenant.parked)
    return {
        "who": f"{class_name} / {_plain(name)}",
        "rate": round(rate, 2),
        "part": 100 * rate / rate_in_all if rate_in_all else None,
        "running": running,
        "share": 100 * running / running_in_all if running_in_all else None,
        "waiting": tenant.waiting,
        "parked": tenant.parked,
    }


_BROWNOUT_COLUMNS = (
    Column("trigger", "trigger"),
    Column("now", "now"),
    Column("limit", "sheds writes"),
    Column("state", "state"),
)


def gateway_brownout(service: OmnigateService) -> Panel:
    """Show what would make the gateway shed writes, how near that is, and what does now."""

    def source() -> Rows:
        ill, classes = service.readiness.ill, service.gate.queue.classes.values()
        rows = [_trigger("services behind", ", ".join(ill) or "all answer", "one does not answer", active=bool(ill))]
        fullest = sorted(classes, key=lambda each: (-each.waiting / each.capacity, each.name))
        rows += [
            _trigger(
                f"class {each.name}", f"{each.waiting} of {each.capacity} places", "the last eighth", active=each.scarce
            )
            for each in fullest
        ]
        return sorted(rows, key=lambda row: row["state"] == "takes all")

    return Panel("gateway-brownout", "Brownout of the gateway", source, view="gateway", columns=_BROWNOUT_COLUMNS)


def _trigger(name: str, now: str, limit: str, *, active: bool) -> dict[str, object]:
    return {"trigger": name, "now": now, "limit": limit, "state": "sheds writes" if active else "takes all"}


# --- the issuer

_TIMES = frozenset({"iat", "nbf"})
_FACT_COLUMNS = (Column("what", "issuer"), Column("value", "state"))
_AUDIT_COLUMNS = (
    Column("n", "record", "count"),
    Column("at", "when", "time"),
    Column("action", "what"),
    Column("by_sub", "by"),
    Column("sub", "subject"),
    Column("aud", "for services"),
    Column("caveats", "caveats"),
    Column("until", "until", "time"),
    Column("more", "more"),
)
# Not shown: the token that asked, and what every token has; `penstock token list --json` tells all.
_AUDIT_LEFT_OUT = frozenset({"by", "exp", *(column.key for column in _AUDIT_COLUMNS)})
_OF_EVERY_TOKEN = frozenset({"kid", "epoch", "rid", "via"})
_USUAL_CLASS = "authed"


def issuer(service: PassportService) -> Panel:
    """Show the issuer: epoch, keys, whether tokens can be issued, and how many were verified."""

    def source() -> Rows:
        state, signing = service.book.state, service.book.view.value.signing
        old = [key for key in state.keys if key.kid not in signing.values()]
        facts: list[tuple[str, object]] = [
            ("issuance", _issuance(service)),
            ("current epoch", state.current),
            ("revocations kept", len(state.kept)),
            ("policy version", state.policy_version),
            *((f"signing key, {alg}", kid) for alg, kid in signing.items()),
            *((f"old key, verifies until {_when(key.exp)}", key.kid) for key in old),
            ("tokens judged", _judged(service)),
            ("audit", f"{service.trail.records:,} records, head {service.trail.head}"),
        ]
        return [{"what": what, "value": str(value)} for what, value in facts]

    return Panel("issuer", "Passport", source, view="tokens", columns=_FACT_COLUMNS)


def _issuance(service: PassportService) -> str:
    if service.book.view.value.policy is None:
        return "closed: there is no policy"
    return "open" if service.book.view.value.signing else "closed: there is no key"


def _judged(service: PassportService) -> str:
    seen = service.verifier
    return f"{seen.hits:,} from memory, {seen.misses:,} anew, {seen.refusals:,} refused"


def audit(service: PassportService) -> Panel:
    """Show the last records, of the runs before too, newest first."""
    trail = service.trail

    def source() -> Rows:
        return [_recorded(entry) for entry in reversed(trail.recent)]

    def note() -> str:
        shown, older = len(trail.recent), trail.records - len(trail.recent)
        where = "the older ones are in audit/passport.jsonl of the data directory, the tokens in penstock token list"
        return f"the last {shown} of {trail.records:,} records; {where}" if older > 0 else ""

    empty = "Nothing was ever issued, revoked or rotated."
    return Panel("audit", "Audit", source, view="tokens", columns=_AUDIT_COLUMNS, note=note, empty=empty)


def _recorded(entry: AuditEntry) -> dict[str, object]:
    facts = {name: _fact(name, value) for name, value in entry.facts.items()}
    left_out = _AUDIT_LEFT_OUT | _unremarkable(facts) if entry.action == "issue" else _AUDIT_LEFT_OUT
    more = ", ".join(f"{name} {fact}" for name, fact in facts.items() if fact and name not in left_out)
    shown = {column.key: facts.get(column.key, "") for column in _AUDIT_COLUMNS}
    until = entry.facts.get("exp")
    own = {"n": entry.n, "at": entry.at_ms, "action": entry.action, "until": until and until * 1000}
    return {**shown, **own, "more": more}


def _unremarkable(facts: Mapping[str, str]) -> frozenset[str]:
    """Name what says nothing of a token: what every token has, and a tenant and class that nobody chose."""
    usual = {"tenant": f"sub:{facts.get('sub', '')}", "traffic_class": _USUAL_CLASS}
    return _OF_EVERY_TOKEN | {name for name, value in usual.items() if facts.get(name) == value}


def _fact(name: str, value: object) -> str:
    """Write a fact as a person reads it: times as times."""
    return _when(value) if name in _TIMES and isinstance(value, int) else _plain(value)


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _when(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M")

"""The `[interop]` table and the options read from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.config import (
    Apply,
    Key,
    KeyRule,
    Kind,
    channel_key,
    listener_settings,
    oap_key,
    service_drain,
    service_table,
)
from penstock.config.schema import REQUIRED
from penstock.kernel.errors import Malformed
from penstock.net.calls.origin import parse_url
from penstock.net.hosts import is_loopback
from penstock.rpc.remote import oap_place
from penstock.services.interop.brownout import BrownoutLimits
from penstock.services.interop.endpoints import NO_ENDPOINTS, Endpoints, make_endpoints
from penstock.services.interop.providers.kinds import KINDS
from penstock.services.interop.providers.verdict import BadWebhookSetup
from penstock.services.interop.sqs.face.access_keys import ALL_QUEUES, OPS, TENANT, AccessKey
from penstock.services.interop.sqs.face.wiring import ACCOUNT, SqsOptions

if TYPE_CHECKING:
    from penstock.config import ListenerSettings, Settings

PORT_OFFSET = 9
_KEY_ID = re.compile(r"[A-Za-z0-9_+=,.@-]{4,128}", re.ASCII)


def _endpoint_text(name: str, default: str, text: str) -> Key:
    return Key(name, Kind.STR, default, help=text)


_ENDPOINT = (
    _endpoint_text("kind", "", f"How the sender signs. Empty: the endpoint's name. One of {', '.join(KINDS)}."),
    Key(
        "secrets",
        Kind.SECRET_REFS,
        REQUIRED,
        help="Where the secrets lie, newest first: `env:NAME` or `file:path`. Each of them is accepted.",
    ),
    _endpoint_text("topic", "", "The topic of its events. Empty: `webhooks/` and the name."),
    Key(
        "tolerance_s",
        Kind.INT,
        None,
        low=1,
        high=86_400,
        unit="seconds",
        help="How far a signed time may be from now, both ways. Empty: the kind's own.",
    ),
    Key("allow_ips", Kind.LIST, (), help="Addresses and networks that may send. Empty: any."),
    Key("allow_hosts", Kind.LIST, (), help="Host names a request may have been sent to. Empty: any."),
    _endpoint_text("key", "", "Orders events: `pointer:` and a JSON pointer, or `header:` and a field's name."),
    _endpoint_text(
        "claim",
        "auto",
        "What makes two deliveries one event: `auto`, `signature`, `none`, `pointer:...` or `header:...`.",
    ),
    Key(
        "on_attack",
        Kind.CHOICE,
        "report",
        choices=("report", "pause"),
        help="What too many bad signatures do: only an event and a record, or the endpoint is paused.",
    ),
    _endpoint_text("header", "", "For `kind = hmac`: the field with the signature."),
    _endpoint_text("format", "{hex}", "For `kind = hmac`: how that field is written, with {hex} or {b64}, and {ts}."),
    _endpoint_text("template", "{body}", "For `kind = hmac`: the signed text, with {body}, {ts} and {id}."),
    _endpoint_text("timestamp_header", "", "For `kind = hmac`: the field with the signed time."),
    _endpoint_text("id_header", "", "For `kind = hmac`: the field with the signed id."),
)


BEHIND = ("mailbox", "passport", "storage")
"""The services behind the bridge."""


def _place(service: str) -> Key:
    how = (
        "oap:/socket or oap://host:port"
        if service == "storage"
        else "https://host:port, oap:/socket or oap://host:port"
    )
    text = f"Where svc-{service} is, if in another process: {how}. Empty: alone, its socket in the data directory."
    return Key(f"downstream.{service}", Kind.STR, None, apply=Apply.RESTART, help=text)


def _is_place(place: str | None) -> bool | str:
    """Judge where a service is said to be; in the clear only on this machine, because tokens go there."""
    if place is None:
        return True
    try:
        if place.startswith(("http://", "https://")):
            origin, path = parse_url(place)
            if path != "/" or (place.startswith("http://") and not is_loopback(origin.host)):
                return "must be https and no more than https://host:port, unless it is on this machine"
        else:
            oap_place(place)
    except Malformed as exc:
        return exc.detail
    return True


def _is_frames(place: str | None) -> bool | str:
    return "must be oap:/socket or oap://host:port" if place is not None and "http" in place[:4] else _is_place(place)


_SQS_KEY = (
    Key("id", Kind.STR, "", help="The access key id that clients sign with. Empty: the name of the table."),
    Key("secret", Kind.SECRET_REFS, REQUIRED, help="Where its secret lies: one `env:NAME` or `file:path`."),
    Key(
        "topics",
        Kind.LIST,
        ALL_QUEUES,
        help="Beginnings of the topics it may use. A queue's topic is `sqs/` and its name.",
    ),
    Key("ops", Kind.LIST, OPS, help=f"What it may do: some of {', '.join(OPS)}."),
    Key("tenant", Kind.STR, "", help="Whose share of the mailbox counts what it sends. Empty: svc-interop's own."),
)


def _keys_can_work(rows: Mapping[str, Mapping[str, Any]]) -> bool | str:
    try:
        _configured_keys(rows)
    except ValueError as exc:
        return str(exc)
    return True


def _configured_keys(rows: Mapping[str, Mapping[str, Any]]) -> tuple[AccessKey, ...]:
    """Make the access keys that the settings describe; ValueError says what is wrong with one."""
    return tuple(_configured_key(name, row) for name, row in rows.items())


def _configured_key(name: str, row: Mapping[str, Any]) -> AccessKey:
    key_id, secrets, ops = row["id"] or name, row["secret"], tuple(row["ops"])
    if not _KEY_ID.fullmatch(key_id):
        raise ValueError(f"{name}: an access key id is 4 to 128 letters, digits and +=,.@_-")
    if len(secrets) != 1:
        raise ValueError(f"{name}: an access key has one secret")
    if not ops or not set(ops) <= set(OPS):
        raise ValueError(f"{name}: `ops` is one or more of {', '.join(OPS)}")
    if not re.fullmatch(TENANT, row["tenant"]):
        raise ValueError(f"{name}: a tenant's name is printable, has no blanks and does not begin with sub:")
    return AccessKey(
        id=key_id, secret=secrets[0].reveal(), name=name, tenant=row["tenant"], ops=ops, topics=tuple(row["topics"])
    )


def _is_account(account: str) -> bool:
    return bool(re.fullmatch(r"[0-9]{12}", account))


def _can_work(rows: Mapping[str, Mapping[str, Any]], public_url: str | None, proxies: tuple[str, ...]) -> bool | str:
    try:
        make_endpoints(rows, public_url or "", proxies)
    except BadWebhookSetup as exc:
        return str(exc)
    return True


def _no_audit_file(sink: str, amnesia: bool) -> bool:  # noqa: FBT001 a rule's values come by position
    return not (amnesia and sink == "file")


def _has_path(sink: str, path: Path | None) -> bool:
    return sink != "file" or path is not None


_TABLE = service_table(
    "interop",
    port_offset=PORT_OFFSET,
    keys=(
        Key(
            "public_url",
            Kind.STR,
            None,
            help="Where providers reach this service: https:// and the host. Twilio signs it.",
        ),
        Key(
            "providers",
            Kind.NAMED,
            {},
            fields=_ENDPOINT,
            help="Webhook endpoints by name; the name is the last part of the URL.",
        ),
        Key("trusted_proxies", Kind.LIST, (), help="Addresses and networks whose X-Forwarded-For is believed."),
        Key(
            "max_rps",
            Kind.INT,
            500,
            low=1,
            high=1_000_000,
            unit="requests/s",
            zero_off=True,
            help="Webhooks and puts a second. Above: 429 `rate_limited`.",
        ),
        Key(
            "burst",
            Kind.INT,
            250,
            low=1,
            high=1_000_000,
            unit="requests",
            help="How many may come at once above `max_rps`.",
        ),
        Key(
            "workers",
            Kind.INT,
            8,
            low=2,
            high=256,
            unit="tasks",
            apply=Apply.RESTART,
            help="Workers; at most half as many puts are streamed at once.",
        ),
        Key(
            "webhook_deadline",
            Kind.DURATION,
            "2s",
            low="100ms",
            high="30s",
            apply=Apply.RESTART,
            help="A webhook is answered within this.",
        ),
        Key(
            "put_max_bytes",
            Kind.SIZE,
            "64MiB",
            low="1KiB",
            high="1GiB",
            apply=Apply.RESTART,
            help="The largest streamed put.",
        ),
        Key(
            "bad_signatures_max",
            Kind.INT,
            60,
            low=1,
            high=100_000,
            unit="a minute",
            apply=Apply.RESTART,
            help="Bad signatures a minute at one endpoint. More are an attack: reported once, then only counted.",
        ),
        Key(
            "brownout.error_rate",
            Kind.FLOAT,
            0.01,
            low=0.0001,
            high=1.0,
            apply=Apply.RESTART,
            help="The part of failures over five minutes that turns brownout on.",
        ),
        Key(
            "brownout.p95",
            Kind.DURATION,
            "500ms",
            low="10ms",
            high="60s",
            apply=Apply.RESTART,
            help="The downstream p95 over a minute that turns brownout on.",
        ),
        Key(
            "audit.sink",
            Kind.CHOICE,
            "memory",
            choices=("memory", "stdout", "file"),
            apply=Apply.RESTART,
            help="Where the record of decisions goes. `file` is refused under amnesia.",
        ),
        Key("audit.path", Kind.PATH, None, apply=Apply.RESTART, help="The file of `audit.sink = file`."),
        Key(
            "sqs.enabled",
            Kind.CHOICE,
            "auto",
            choices=("auto", "on", "off"),
            apply=Apply.RESTART,
            help="Whether AWS SQS clients are served. `auto`: where only this machine can reach the listener.",
        ),
        Key(
            "sqs.url",
            Kind.STR,
            None,
            apply=Apply.RESTART,
            help="Where SQS clients reach this service, told in queue URLs. Empty: the Host that they asked.",
        ),
        Key(
            "sqs.account",
            Kind.STR,
            ACCOUNT,
            apply=Apply.RESTART,
            help="The account that queues belong to: twelve digits, part of their URLs and ARNs.",
        ),
        Key(
            "sqs.rps",
            Kind.INT,
            0,
            low=0,
            high=1_000_000,
            unit="requests/s",
            zero_off=True,
            apply=Apply.RESTART,
            help="SQS requests a second. Above: 429 `RequestThrottled`. 0: no limit.",
        ),
        Key(
            "sqs.waiters_max",
            Kind.INT,
            4096,
            low=1,
            high=65_536,
            unit="receivers",
            apply=Apply.RESTART,
            help="ReceiveMessage calls that may wait at once. Above: 429 `RequestThrottled`.",
        ),
        Key(
            "sqs.cooldown",
            Kind.DURATION,
            "0s",
            low="0s",
            high="60s",
            apply=Apply.RESTART,
            help="How long a deleted queue's name and a purged queue rest, as at AWS 60 s. 0: not at all.",
        ),
        Key(
            "sqs.keys",
            Kind.NAMED,
            {},
            fields=_SQS_KEY,
            help="Access keys by name, beside those that `penstock sqs key create` makes.",
        ),
        channel_key("work", 512, "webhooks and puts on their way to a worker. Full: 429 `busy`."),
        channel_key("audit", 512, "decisions on their way to the audit. Full: the oldest is dropped and counted."),
        *(_place(service) for service in BEHIND),
        Key(
            "downstream.certificate",
            Kind.PATH,
            None,
            apply=Apply.RESTART,
            help="The certificate, or its authority, that https services behind must prove themselves by. Empty: the "
            "system's authorities.",
        ),
        Key(
            "issuer_token",
            Kind.SECRET_REFS,
            (),
            help="Where the bridge's own token lies, with op=issue: `file:path` or `env:NAME`. Empty: svc-passport "
            "issues one for the operator of the data directory.",
        ),
        oap_key(),
        service_drain("5s", "5s"),
    ),
    help="The bridge to the outside world: webhooks, puts and reads, and the SQS face.",
)
TABLE = replace(
    _TABLE,
    rules=(
        *_TABLE.rules,
        KeyRule(("interop.providers", "interop.public_url", "interop.trusted_proxies"), _can_work, "cannot work"),
        KeyRule(("interop.downstream.mailbox",), _is_place, "cannot work"),
        KeyRule(("interop.downstream.passport",), _is_place, "cannot work"),
        KeyRule(("interop.downstream.storage",), _is_frames, "cannot work"),
        KeyRule(("interop.sqs.keys",), _keys_can_work, "cannot work"),
        KeyRule(("interop.sqs.account",), _is_account, "must be twelve digits"),
        KeyRule(("interop.audit.sink", "node.amnesia"), _no_audit_file, "must not be `file` under node.amnesia"),
        KeyRule(("interop.audit.sink", "interop.audit.path"), _has_path, "needs interop.audit.path"),
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class InteropOptions:
    """What can be tuned."""

    listener: ListenerSettings
    endpoints: Endpoints = field(default_factory=lambda: NO_ENDPOINTS)
    rps: int = 500
    burst: int = 250
    workers: int = 8
    webhook_deadline_s: float = 2.0
    put_bytes_max: int = 64 << 20
    bad_signatures_max: int = 60
    brownout: BrownoutLimits = field(default_factory=BrownoutLimits)
    audit_sink: str = "memory"
    audit_path: Path | None = None
    work_capacity: int = 512
    audit_capacity: int = 512
    drain_deadline_s: float = 5.0
    sqs: SqsOptions = field(default_factory=SqsOptions)

    @classmethod
    def from_settings(cls, settings: Settings, listener: ListenerSettings | None = None) -> InteropOptions:
        """Read the `[interop]` table; the node may hand in listener settings it has fitted to the machine."""
        number, seconds = settings.integer, settings.seconds
        limits = BrownoutLimits(
            error_rate=settings.number("interop.brownout.error_rate"), p95_s=seconds("interop.brownout.p95")
        )
        return cls(
            listener=listener or listener_settings(settings, "interop"),
            endpoints=endpoints_of(settings),
            rps=number("interop.max_rps"),
            burst=number("interop.burst"),
            workers=number("interop.workers"),
            webhook_deadline_s=seconds("interop.webhook_deadline"),
            put_bytes_max=settings.size("interop.put_max_bytes"),
            bad_signatures_max=number("interop.bad_signatures_max"),
            brownout=limits,
            audit_sink=settings.text("interop.audit.sink"),
            audit_path=settings.path("interop.audit.path"),
            work_capacity=number("interop.channels.work"),
            audit_capacity=number("interop.channels.audit"),
            drain_deadline_s=seconds("interop.drain_deadline"),
            sqs=_sqs_options(settings),
        )


def _sqs_options(settings: Settings) -> SqsOptions:
    wanted, url = settings.text("interop.sqs.enabled"), settings["interop.sqs.url"]
    directory = settings.path("node.data_dir")
    return SqsOptions(
        enabled=wanted == "on" or (wanted == "auto" and settings.address("interop.bind_addr").is_loopback),
        url="" if url is None else str(url).rstrip("/"),
        account=settings.text("interop.sqs.account"),
        rps=settings.integer("interop.sqs.rps"),
        waiters_max=settings.integer("interop.sqs.waiters_max"),
        cooldown_s=settings.seconds("interop.sqs.cooldown"),
        keys=_configured_keys(settings.named("interop.sqs.keys")),
        folder=None if settings.flag("node.amnesia") or directory is None else directory / "interop",
    )


def endpoints_of(settings: Settings) -> Endpoints:
    """Make the endpoints that the settings describe; the table's rules have seen that they can be made."""
    return make_endpoints(
        settings.named("interop.providers"), _public_url(settings), settings.texts("interop.trusted_proxies")
    )


def _public_url(settings: Settings) -> str:
    return "" if settings["interop.public_url"] is None else settings.text("interop.public_url")

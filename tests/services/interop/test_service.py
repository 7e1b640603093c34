"""The bridge over real sockets: webhooks are durable when answered; the rest is refused with nothing claimed."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import os
from dataclasses import replace
from functools import partial

import pytest

from penstock.contracts.call import NOBODY
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import DownstreamUnavailable, NotReady
from penstock.kernel.inventory import Inventory
from penstock.services.interop.audit import BridgeAct
from penstock.services.interop.brownout import BrownoutState
from penstock.services.interop.service import SERVICE, BridgeAround, InteropService
from penstock.testing.contracts.memory_mailbox import MemoryMailbox
from penstock.testing.contracts.memory_storage import MemoryStorage
from penstock.wire.audit_chain import walk_chain
from penstock.wire.ids import address_of
from tests.golden.seed_tables import SEED_CHANNELS
from tests.services.interop.senders import SENDERS, Sent
from tests.services.interop.worlds import LISTENER, InteropOptions, bridge, endpoints, until

pytestmark = pytest.mark.real_loop


def live(kind: str, body: bytes | None = None, **more) -> Sent:
    """Sign as the provider would now."""
    target = f"/webhooks/{kind}".encode() if kind == "twilio" else None
    return SENDERS[kind].send(body, now=int(SYSTEM.wall()), target=target, **more)


# --- webhooks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SENDERS)
async def test_webhook_of_every_kind_is_accepted_and_its_retry_is_a_duplicate(kind):
    async with bridge() as world:
        first = await world.http.hook(kind, live(kind))
        # The provider's retry: signed anew, a second later.
        later = SENDERS[kind].send(
            now=int(SYSTEM.wall()) + 1, target=f"/webhooks/{kind}".encode() if kind == "twilio" else None
        )
        again = await world.http.hook(kind, later)
        (event,) = world.messages(f"webhooks/{kind}")

    assert (first.status, first.json()["duplicate"], first.json()["accepted"]) == (202, False, True)
    assert (again.status, again.json()["duplicate"]) == (202, True)
    assert again.json()["msg_id"] == first.json()["msg_id"]
    assert first.json()["corr_id"] == first.headers["x-corr-id"]
    assert (event["provider"], event["endpoint"]) == (kind, kind)
    assert event["body"].encode() == live(kind).body or kind == "linear"


@pytest.mark.parametrize("kind", [kind for kind in SENDERS if kind != "gitlab"])
async def test_bad_signature_is_401_without_a_reason_and_claims_nothing(kind):
    async with bridge() as world:
        good = live(kind)
        bad = await world.http.hook(kind, Sent(good.fields, good.body + b" ", good.target))
        unsigned = await world.http.hook(kind, good.without(SENDERS[kind].signature))
        after = await world.http.hook(kind, good)
        acts = [json.loads(line)["facts"]["reason"] for line in await _audited(world, 3)]

    assert (bad.status, bad.json()["code"]) == (401, "unauthenticated")
    # The two refusals look alike from outside; only the audit tells them apart.
    assert {**bad.json(), "corr_id": ""} == {**unsigned.json(), "corr_id": ""}
    assert acts == ["wrong_signature", "no_signature", "accepted"]
    assert (after.status, after.json()["duplicate"]) == (202, False)


async def _audited(world, count):
    await until(lambda: len(world.service.audit.recent) >= count)
    return list(world.service.audit.recent)


async def test_repeated_signature_field_is_refused_and_not_joined():
    sent = live("github")
    async with bridge() as world:
        answer = await world.http.hook(
            "github", sent.and_field(b"X-Hub-Signature-256", sent.value(b"x-hub-signature-256"))
        )

    assert answer.status == 401


async def test_unknown_endpoint_is_404_and_paused_one_503():
    async with bridge() as world:
        unknown = await world.http.hook("nobody", live("github"))
        world.service.records.pause("github")
        paused = await world.http.hook("github", live("github"))
        world.service.records.resume("github")
        resumed = await world.http.hook("github", live("github"))

    assert [unknown.status, paused.status, resumed.status] == [404, 503, 202]


async def test_handshakes_are_answered_and_put_nothing_into_the_mailbox():
    async with bridge() as world:
        slack = await world.http.hook(
            "slack_webhook", live("slack_webhook", b'{"type":"url_verification","challenge":"abc"}')
        )
        ping = await world.http.hook("discord", live("discord", b'{"type":1}'))
        event_ping = await world.http.hook("discord", live("discord", b'{"type":0}'))
        count = len(world.mailbox.state.messages)

    assert (slack.status, slack.body, slack.headers["content-type"]) == (200, b"abc", "text/plain; charset=utf-8")
    assert (ping.status, ping.json()) == (200, {"type": 1})
    assert (event_ping.status, event_ping.body) == (204, b"")
    assert count == 0


async def test_signed_but_senseless_body_is_400():
    async with bridge() as world:
        answer = await world.http.hook("discord", live("discord", b"x"))

    assert (answer.status, answer.json()["code"]) == (400, "malformed")


async def test_compressed_body_is_verified_as_sent_and_stored_inflated():
    sent = live("github", gzip.compress(b'{"a":1}', mtime=0)).and_field(b"content-encoding", b"gzip")
    bomb = live("github", gzip.compress(bytes(900_000))).and_field(b"content-encoding", b"gzip")
    unknown = live("github", b"x").and_field(b"content-encoding", b"who-knows")
    async with bridge() as world:
        answers = [(await world.http.hook("github", each)).status for each in (sent, bomb, unknown)]
        (event,) = world.messages("webhooks/github")

    assert answers == [202, 413, 415]
    assert event["body"] == '{"a":1}'


async def test_large_body_is_stored_first_and_too_large_one_refused():
    body = os.urandom(600_000)
    async with bridge() as world:
        large = await world.http.hook("github", live("github", body))
        huge = await world.http.hook("github", live("github", bytes((1 << 20) + 1)))
        (event,) = world.messages("webhooks/github")

    assert (large.status, huge.status) == (202, 413)
    assert (event["body_addr"], event["body_size"], "body" in event) == (address_of(body), 600_000, False)
    assert world.storage.objects[address_of(body)] == body


async def test_ordering_key_topic_and_claim_are_the_endpoints():
    rows = {
        "mine": {
            "kind": "github",
            "secrets": ("fake-secret",),
            "topic": "a/b",
            "key": "pointer:/repo/id",
            "claim": "pointer:/id",
        },
        "none": {"kind": "github", "secrets": ("fake-secret",), "claim": "none"},
    }
    async with bridge(endpoints(rows)) as world:
        bodies = [
            b'{"id":"1","repo":{"id":7},"n":1}',
            b'{"id":"1","repo":{"id":7},"n":2}',
            b'{"id":"2","repo":{"id":7}}',
        ]
        mine = [(await world.http.hook("mine", live("github", body))).json() for body in bodies]
        none = [(await world.http.hook("none", live("github", bodies[0]))).json() for _ in range(2)]
        keys = {message.sent.key for message in world.mailbox.state.messages.values() if message.sent.topic == "a/b"}

    assert [answer["duplicate"] for answer in mine] == [False, True, False]
    assert [answer["duplicate"] for answer in none] == [False, False]
    assert keys == {"7"}


async def test_two_endpoints_do_not_share_claims():
    rows = {name: {"kind": "github", "secrets": ("fake-secret",), "topic": "one"} for name in ("a", "b")}
    async with bridge(endpoints(rows)) as world:
        answers = [(await world.http.hook(name, live("github"))).json()["duplicate"] for name in ("a", "b")]

    assert answers == [False, False]


async def test_origin_is_pinned():
    rows = {
        "here": {"kind": "github", "secrets": ("fake-secret",), "allow_ips": ("127.0.0.1",)},
        "there": {"kind": "github", "secrets": ("fake-secret",), "allow_ips": ("192.0.2.1",)},
        "host": {"kind": "github", "secrets": ("fake-secret",), "allow_hosts": ("hooks.example.org",)},
    }
    async with bridge(endpoints(rows)) as world:
        answers = [await world.http.hook(name, live("github")) for name in rows]

    assert [answer.status for answer in answers] == [202, 400, 400]
    assert answers[1].json()["code"] == "bad_origin"


async def test_secrets_swap_live():
    async with bridge() as world:
        old, new = live("github"), live("github", b"{}", secret="new-fake-secret")
        before = [(await world.http.hook("github", each)).status for each in (old, new)]
        changed = InteropOptions(
            listener=LISTENER, endpoints=endpoints({"github": {"secrets": ("new-fake-secret",)}}), rps=7, burst=7
        )
        world.service.apply(changed)
        after = [(await world.http.hook("github", each)).status for each in (old, new)]

    assert (before, after) == ([202, 401], [401, 202])


# --- refusals before any work ----------------------------------------------------------------------------------------


async def test_rate_is_limited_for_webhooks_and_not_for_reads():
    async with bridge(rps=1, burst=2) as world:
        hooks = [(await world.http.hook("github", live("github", b"%d" % n))).status for n in range(4)]
        read = await world.http.ask("GET", f"/o/{address_of(b'')}")

    assert hooks[:2] == [202, 202]
    assert 429 in hooks[2:]
    assert read.status == 404


async def test_what_nobody_proved_to_have_sent_leaves_the_senders_their_rate():
    """Four forged webhooks take nothing of a rate of four; the next four have used up what strangers have."""
    async with bridge(rps=1, burst=4) as world:
        sent = live("github", b"1")
        forged = replace(
            sent, fields=tuple((n, v[:-4] + b"0000" if b"ignature" in n.lower() else v) for n, v in sent.fields)
        )
        bad = [(await world.http.hook("github", forged)).status for _ in range(4)]
        good = [(await world.http.hook("github", live("github", b"%d" % n))).status for n in range(3)]
        worse = [(await world.http.hook("github", forged)).status for _ in range(6)]

    assert bad == [401] * 4
    assert good == [202] * 3
    assert 429 in worse


class Stuck(MemoryMailbox):
    """A mailbox that answers when it is let go."""

    def __init__(self) -> None:
        super().__init__(SYSTEM)
        self.go = asyncio.Event()
        self.waiting = 0

    async def send_batch(self, request, call=NOBODY):
        self.waiting += 1
        await self.go.wait()
        return await super().send_batch(request, call)


async def test_full_work_queue_is_429_at_once():
    mailbox = Stuck()
    async with bridge(mailbox=mailbox, workers=2, work_capacity=1) as world:
        asked = [asyncio.ensure_future(world.http.hook("github", live("github", b"%d" % n))) for n in range(12)]
        await until(lambda: world.count("busy_rejections_total", endpoint="/webhooks/{name}", queue="work"))
        mailbox.go.set()
        statuses = [answer.status for answer in [await each for each in asked]]

    assert set(statuses) <= {202, 429, 503}
    assert statuses.count(429) >= 1
    assert statuses.count(202) >= 2


async def test_forged_webhooks_take_no_place_in_work_and_are_told_so_when_it_is_full():
    mailbox = Stuck()
    async with bridge(mailbox=mailbox, workers=1, work_capacity=1) as world:
        first = asyncio.ensure_future(world.http.hook("github", live("github", b"a")))
        await until(lambda: mailbox.waiting)
        second = asyncio.ensure_future(world.http.hook("github", live("github", b"b")))
        await until(lambda: world.service.work.depth)
        forged = [await world.http.hook("github", live("github", secret="wrong-fake")) for _ in range(3)]
        depth = world.service.work.depth
        mailbox.go.set()
        good = [(await each).status for each in (first, second)]

    assert ([answer.status for answer in forged], depth, good) == ([401] * 3, 1, [202, 202])


# --- downstreams -----------------------------------------------------------------------------------------------------


class Failing(MemoryMailbox):
    """A mailbox that is down for its first calls."""

    def __init__(self, failures: int) -> None:
        super().__init__(SYSTEM)
        self.failures = failures
        self.calls = 0

    async def send_batch(self, request, call=NOBODY):
        self.calls += 1
        if self.calls <= self.failures:
            raise DownstreamUnavailable("told to")
        return await super().send_batch(request, call)


async def test_mailbox_that_fails_is_503_and_nothing_is_claimed():
    mailbox = Failing(3)
    async with bridge(mailbox=mailbox) as world:
        down = await world.http.hook("github", live("github"))
        count = len(mailbox.state.messages)
        up = await world.http.hook("github", live("github"))

    assert (down.status, down.json()["code"], mailbox.calls) == (503, "downstream_unavailable", 4)
    assert "retry-after" in down.headers
    assert (count, up.status, up.json()["duplicate"]) == (0, 202, False)


async def test_mailbox_that_fails_once_is_tried_again():
    mailbox = Failing(1)
    async with bridge(mailbox=mailbox) as world:
        answer = await world.http.hook("github", live("github"))

    assert (answer.status, mailbox.calls) == (202, 2)


class Forgetful(MemoryMailbox):
    """A mailbox that stores what it is sent and loses the first answer: a crash after the commit."""

    lost = False

    async def send_batch(self, request, call=NOBODY):
        answer = await super().send_batch(request, call)
        if not self.lost:
            self.lost = True
            raise DownstreamUnavailable("the answer was lost")
        return answer


async def test_lost_answer_is_one_message():
    mailbox = Forgetful(SYSTEM)
    async with bridge(mailbox=mailbox) as world:
        first = await world.http.hook("github", live("github"))
        again = await world.http.hook("github", live("github"))

    assert (first.status, first.json()["duplicate"]) == (202, True)
    assert again.json()["msg_id"] == first.json()["msg_id"]
    assert len(mailbox.state.messages) == 1


async def test_late_mailbox_is_503_within_the_deadline():
    mailbox = Stuck()
    async with bridge(mailbox=mailbox, webhook_deadline_s=1.2) as world:
        answer = await world.http.hook("github", live("github"))
        mailbox.go.set()

    assert answer.status in (503, 504)


# --- authority -------------------------------------------------------------------------------------------------------


class Counter:
    """A passport that mints numbered tokens and notes for what."""

    def __init__(self) -> None:
        self.asked = []
        self.down = False

    async def mint(self):
        return self._issued("issuer", 3600)

    async def issue(self, request, call=NOBODY):
        if self.down:
            raise NotReady("told to")
        self.asked.append((request, call.capability))
        return self._issued(f"t{len(self.asked)}", request.ttl_s)

    def _issued(self, token, ttl_s):
        from penstock.contracts.passport import Issued

        return Issued(token, "k", "ed25519", 0, int(SYSTEM.wall()) + ttl_s, ())


class Noting(MemoryMailbox):
    """A mailbox that notes with what right it is asked."""

    def __init__(self) -> None:
        super().__init__(SYSTEM)
        self.capabilities = []

    async def send_batch(self, request, call=NOBODY):
        self.capabilities.append(call.capability)
        return await super().send_batch(request, call)


async def test_event_is_sent_with_a_passport_for_its_topic_alone_and_reused():
    passport, mailbox = Counter(), Noting()
    async with bridge(mailbox=mailbox, around={"passport": passport, "mint": passport.mint}) as world:
        await _until_open(world)
        for body in (b"1", b"2"):
            assert (await world.http.hook("github", live("github", body))).status == 202
        await world.http.hook("gitea", live("gitea"))

    asked = [
        (request.subject_ref, request.audience, request.caveats, request.ttl_s, by) for request, by in passport.asked
    ]
    # For each endpoint: to send, and once to look at its topic's settings and to make them.
    assert asked == [
        (subject, "svc-mailbox", (f"op={op}", f"topic=webhooks/{name}"), 60, "issuer")
        for name in ("github", "gitea")
        for subject, op in ((f"webhook:accept:{name}", "send"), ("interop:topics", "recv"), ("interop:topics", "admin"))
    ]
    assert mailbox.capabilities == ["t1", "t1", "t4"]


async def _until_open(world):
    await until(lambda: world.inventory.health.gate("passport").open)


async def test_without_its_own_authority_the_bridge_fails_closed():
    passport = Counter()

    async def refuse():
        raise DownstreamUnavailable("told to")

    async with bridge(around={"passport": passport, "mint": refuse}) as world:
        answer = await world.http.hook("github", live("github"))
        ready = await world.http.ask("GET", "/readyz")
        count = len(world.mailbox.state.messages)

    assert (answer.status, count, ready.status) == (503, 0, 503)
    assert "passport" in ready.json()["missing"]


async def test_passport_that_is_down_is_503():
    passport = Counter()
    async with bridge(around={"passport": passport, "mint": passport.mint}) as world:
        await _until_open(world)
        passport.down = True
        answer = await world.http.hook("github", live("github"))

    assert (answer.status, len(world.mailbox.state.messages)) == (503, 0)


# --- puts and reads --------------------------------------------------------------------------------------------------

OCTETS = ((b"Content-Type", b"application/octet-stream"),)
JSON = ((b"Content-Type", b"application/json"),)


async def test_bytes_are_put_and_read_back():
    data = os.urandom(200_000)
    async with bridge() as world:
        put = await world.http.ask("POST", "/put", data, OCTETS)
        whole = await world.http.ask("GET", f"/o/{address_of(data)}")
        part = await world.http.ask("GET", f"/o/{address_of(data)}", fields=((b"Range", b"bytes=5-9"),))
        head = await world.http.ask("HEAD", f"/o/{address_of(data)}")
        same = await world.http.ask(
            "GET", f"/o/{address_of(data)}", fields=((b"If-None-Match", f'"{address_of(data)}"'.encode()),)
        )

    assert (put.status, put.json()["address"]) == (202, address_of(data))
    assert (whole.status, whole.body) == (200, data)
    assert (part.status, part.body, part.headers["content-range"]) == (206, data[5:10], "bytes 5-9/200000")
    assert (head.status, head.headers["content-length"], same.status) == (200, "200000", 304)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"payload": base64.b64encode(b"foobar").decode()}, 202),
        (
            {
                "payload": base64.b64encode(gzip.compress(b"foobar")).decode(),
                "meta": {"content_encoding": "gzip", "type": "x"},
            },
            202,
        ),
        ({"payload": "!!"}, 400),
        ({"payload": "Zm9v\n"}, 400),
        ({"payload": 1}, 400),
        ({}, 400),
        ({"payload": "", "other": 1}, 400),
        ({"payload": "Zm9v", "meta": {"content_encoding": "nope"}}, 415),
    ],
)
async def test_put_as_json(body, status):
    async with bridge() as world:
        answer = await world.http.ask("POST", "/put", json.dumps(body).encode(), JSON)

    assert answer.status == status
    assert status != 202 or answer.json()["address"] == address_of(b"foobar")


async def test_put_refusals():
    async with bridge(put_bytes_max=100_000) as world:
        wrong = await world.http.ask("POST", "/put", b"x", (*OCTETS, (b"X-Expect-Addr", address_of(b"y").encode())))
        right = await world.http.ask("POST", "/put", b"x", (*OCTETS, (b"X-Expect-Addr", address_of(b"x").encode())))
        large = await world.http.ask("POST", "/put", bytes(100_001), OCTETS)
        other = await world.http.ask("POST", "/put", b"x", ((b"Content-Type", b"text/plain"),))
        address = await world.http.ask("POST", "/put", b"x", (*OCTETS, (b"X-Expect-Addr", b"b3:zz")))
        missing = await world.http.ask("GET", f"/o/{address_of(b'none')}")
        malformed = await world.http.ask("GET", "/o/b3:xyz")

    assert [each.status for each in (wrong, right, large, other, address, missing, malformed)] == [
        409,
        202,
        413,
        415,
        400,
        404,
        400,
    ]


class OneToken:
    """A verifier that knows one token, for put alone."""

    def verify(self, token, context, *, cost_bytes=0, charged=False, waived=frozenset()):
        from penstock.contracts.capability import Grant
        from penstock.kernel.errors import Forbidden, Unauthenticated

        if token != "good":
            raise Unauthenticated(reason="invalid")
        if (context.aud, context.op) != ("svc-interop", "put"):
            raise Forbidden(reason="caveat:op")
        return Grant("me", "sub:me", "authed", "t", ("svc-interop",), 0)

    def check(self, grant, context):
        return None


async def test_puts_and_reads_need_a_capability_and_webhooks_a_signature():
    bearer = (b"Authorization", b"Bearer good")
    async with bridge(around={"verifier": OneToken()}) as world:
        asked = [
            await world.http.ask("POST", "/put", b"x", OCTETS),
            await world.http.ask("POST", "/put", b"x", (*OCTETS, (b"Authorization", b"Bearer bad"))),
            await world.http.ask("POST", "/put", b"x", (*OCTETS, bearer)),
            await world.http.ask("GET", f"/o/{address_of(b'x')}", fields=(bearer,)),
            await world.http.ask("GET", f"/o/{address_of(b'x')}"),
            await world.http.hook("github", live("github")),
        ]

    assert [answer.status for answer in asked] == [401, 401, 202, 403, 401, 202]


class SlowStore(MemoryStorage):
    """A store that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()
        self.waiting = 0

    async def put(self, request, call=NOBODY):
        self.waiting += 1
        await self.go.wait()
        return await super().put(request, call)


async def test_slow_puts_do_not_delay_a_webhook_and_more_than_half_are_429():
    storage = SlowStore()
    async with bridge(storage=storage, workers=8) as world:
        puts = [asyncio.ensure_future(world.http.ask("POST", "/put", b"%d" % n, OCTETS)) for n in range(8)]
        refused = partial(world.count, "busy_rejections_total", endpoint="/put", queue="puts")
        await until(lambda: storage.waiting >= 4 and refused() >= 4)
        hook = await world.http.hook("github", live("github"))
        storage.go.set()
        statuses = sorted(answer.status for answer in [await each for each in puts])

    assert hook.status == 202
    assert statuses == [202] * 4 + [429] * 4


# --- brownout --------------------------------------------------------------------------------------------------------


async def test_brownout_sheds_puts_and_large_webhooks_and_keeps_reads_and_small_webhooks():
    async with bridge() as world:
        await world.http.ask("POST", "/put", b"x", OCTETS)
        for _ in range(100):
            world.service.brownout.note_answer(SYSTEM.monotonic(), 500)
        world.service.sentinel.look()
        shed = [
            await world.http.ask("POST", "/put", b"x", OCTETS),
            await world.http.hook("github", live("github", bytes(70_000))),
        ]
        kept = [await world.http.hook("github", live("github")), await world.http.ask("GET", f"/o/{address_of(b'x')}")]
        ready, read = await world.http.ask("GET", "/readyz"), await world.http.ask("GET", "/readyz/read")
        active = world.count("brownout_active", component="bridge")
        world.service.brownout.state = BrownoutState()
        world.service.sentinel._gate.set(is_open=True)
        after = await world.http.ask("POST", "/put", b"x", OCTETS)

    assert [(answer.status, answer.json()["code"]) for answer in shed] == [(503, "backpressure")] * 2
    assert [answer.status for answer in kept] == [202, 200]
    assert (ready.status, ready.json()["degraded"], read.status, active) == (503, ["bridge"], 200, 1)
    assert after.status == 202


async def test_own_failures_turn_brownout_on_and_bad_requests_do_not():
    async with bridge(mailbox=Failing(10_000), rps=0) as world:
        for n in range(100):
            await world.http.hook("github", live("github", b"%d" % n))
        world.service.sentinel.look()
        first = world.service.brownout.state

    async with bridge(rps=0) as world:
        for _ in range(150):
            await world.http.hook("github", live("github", secret="wrong-fake"))
        world.service.sentinel.look()
        second = world.service.brownout.state

    assert first.reasons == ("error_rate",)
    assert not second.active


# --- attacks, audit, inbox -------------------------------------------------------------------------------------------


async def test_attacked_endpoint_is_announced_counted_and_still_open_to_good_ones():
    async with bridge(bad_signatures_max=3) as world:
        heard = world.service.records.events.subscribe()
        for _ in range(6):
            await world.http.hook("github", live("github", secret="wrong-fake"))
        good = await world.http.hook("github", live("github"))
        lines = [json.loads(line) for line in await _audited(world, 6)]
        kinds = [(await heard.recv()).kind for _ in range(6)]

    assert good.status == 202
    assert [line["action"] for line in lines] == ["webhook"] * 4 + ["attacked", "webhook"]
    assert kinds == ["webhook.refused"] * 4 + ["endpoint.attacked", "webhook.accepted"]


async def test_attack_pauses_where_that_is_set():
    rows = {"github": {"secrets": ("fake-secret",), "on_attack": "pause"}}
    async with bridge(endpoints(rows), bad_signatures_max=1) as world:
        for _ in range(2):
            await world.http.hook("github", live("github", secret="wrong-fake"))
        good = await world.http.hook("github", live("github"))

    assert (good.status, good.json()["phase"]) == (503, "paused")


async def test_audit_file_is_a_chain_across_restarts(tmp_path):
    path = tmp_path / "audit.log"
    for _ in range(2):
        async with bridge(audit_sink="file", audit_path=path) as world:
            await world.http.hook("github", live("github"))

    with path.open("rb") as file:
        assert walk_chain(file).records == 2
    assert path.stat().st_mode & 0o077 == 0
    assert b"fake-secret" not in path.read_bytes()


async def test_audit_that_cannot_be_written_for_a_while_stays_a_chain(tmp_path):
    folder, away = tmp_path / "audit", tmp_path / "away"
    folder.mkdir()
    path = folder / "audit.log"
    async with bridge(audit_sink="file", audit_path=path) as world:
        await world.http.hook("github", live("github", b"1"))
        await _audited(world, 1)
        folder.rename(away)
        refused = await world.http.hook("github", live("github", b"2"))
        await until(lambda: world.count("audit_failures_total") >= 1)
        away.rename(folder)
        await world.http.hook("github", live("github", b"3"))
        await _audited(world, 3)

    # Business went on; the file tells of the record that it does not have.
    assert refused.status == 202
    with path.open("rb") as file:
        assert walk_chain(file).records == 3
    facts = [json.loads(line)["facts"] for line in path.read_bytes().splitlines()]
    assert facts[1] == {"dropped": 1}


async def test_full_audit_ring_drops_the_oldest_and_says_so():
    async with bridge(audit_capacity=4) as world:
        for n in range(20):
            world.service.records.acts.try_send(BridgeAct("webhook", n, "deny"))
        lines = [json.loads(line) for line in await _audited(world, 5)]
        dropped = world.count("audit_drop_total")

    assert dropped == 16
    assert (lines[0]["action"], lines[0]["facts"]) == ("dropped", {"dropped": 16})
    assert [line["at_ms"] for line in lines[1:]] == [16, 17, 18, 19]


async def test_inbox_shows_the_last_deliveries_without_the_bodies_of_refused_ones():
    async with bridge() as world:
        await world.http.hook("github", live("github", b'{"secret":"x"}', secret="wrong-fake"))
        good = await world.http.hook("github", live("github"))
        newest = world.service.records.inbox.newest(10)

    assert [(each.outcome, each.reason, bool(each.size)) for each in newest] == [
        ("accepted", "", True),
        ("refused", "wrong_signature", False),
    ]
    assert newest[0].msg_id == good.json()["msg_id"]


# --- the seed's tables -----------------------------------------------------------------------------------------------


async def test_inventory_is_the_seeds():
    async with bridge() as world:
        rows = {row.name: row.facts for row in world.inventory.declared("channels")}
        tasks = {row.name for row in world.inventory.declared("tasks")}
    for seed in (row for row in SEED_CHANNELS if row.service == SERVICE):
        facts = rows[seed.name]
        assert (facts["kind"], facts["capacity"], facts["full"]) == (seed.kind, seed.capacity, seed.full)
    assert {"listener", "worker", "sentinel", "audit_writer"} <= tasks


async def test_service_can_be_declared_without_running():
    service = InteropService(Inventory(SERVICE), InteropOptions(listener=LISTENER), BridgeAround())

    assert [child.name for child in service.children()][-1] == "listener"
    await service.close()


async def test_drain_answers_what_was_admitted():
    mailbox = Stuck()
    async with bridge(mailbox=mailbox) as world:
        asked = asyncio.ensure_future(world.http.hook("github", live("github")))
        await until(lambda: mailbox.waiting)
        asyncio.get_running_loop().call_later(0.05, mailbox.go.set)

    # The bridge was drained while the mailbox still thought.
    assert (await asked).status == 202


def test_hmac_is_what_the_tests_sign_with():
    assert (
        live("gitea").value(b"x-gitea-signature").decode()
        == hmac.new(b"fake-secret", live("gitea").body, hashlib.sha256).hexdigest()
    )

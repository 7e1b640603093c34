"""svc-passport over real sockets: routes, codes, caching of keys, and verify that outlives intake."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock.capability.caveats import parse_all
from penstock.capability.making import attenuate
from penstock.capability.token import decode, encode
from penstock.kernel.errors import Unauthenticated
from tests.services.passport.kit import Running, options, running

pytestmark = pytest.mark.real_loop


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: Any


class Client:
    """One kept connection."""

    def __init__(self, world: Running, reader, writer) -> None:
        self.world = world
        self._reader, self._writer = reader, writer

    async def ask(
        self, method: str, path: str, body: object = None, *, token: str | None = None, **fields: str
    ) -> Answer:
        data = b"" if body is None else json.dumps(body).encode()
        heads = {
            "Host": "localhost",
            "Content-Length": str(len(data)),
            **{k.replace("_", "-"): v for k, v in fields.items()},
        }
        if token is not None:
            heads["Authorization"] = f"Bearer {token}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in heads.items())
        self._writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + data)
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        status, *rest = head.split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest if line)}
        length = int(headers.get("content-length", 0))
        content = await self._reader.readexactly(length) if length else b""
        return Answer(int(status.split()[1]), headers, json.loads(content) if content else None)

    async def operator(self, path: str, body: object = None) -> Answer:
        return await self.ask("POST", path, body, token=self.world.operator_token)


@asynccontextmanager
async def connected(opts=None):
    async with running(opts or options(sockets=True)) as world:
        reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
        try:
            yield Client(world, reader, writer)
        finally:
            writer.close()


ISSUE = {"subject_ref": "alice", "audience": "svc-mailbox", "caveats": ["op=send", "topic=orders/"], "ttl_s": 60}


async def test_issue_verify_revoke_and_the_feed():
    async with connected() as client:
        issued = await client.operator("/v1/passport/issue", ISSUE)
        assert issued.status == 200
        assert set(issued.body) == {"token", "tid", "kid", "alg", "epoch", "exp", "caveats"}
        token = issued.body["token"]
        asked = {"token": token, "context": {"aud": "svc-mailbox", "op": "send"}}
        verdict = (await client.ask("POST", "/v1/passport/verify", asked)).body
        assert (verdict["ok"], verdict["warnings"], verdict["authoritative"]) == (True, ["topic"], False)
        revoked = await client.operator("/v1/passport/revoke", {"tid": verdict["claims"]["tid"], "reason": "lost"})
        assert (revoked.status, revoked.body) == (200, {"current_epoch": 1})
        verdict = (await client.ask("POST", "/v1/passport/verify", asked)).body
        assert (verdict["ok"], verdict["reason"], verdict["claims"]) == (False, "revoked", None)
        feed = (await client.ask("GET", "/v1/passport/revocations?since=0")).body

        assert [(entry["seq"], entry["kind"]) for entry in feed["entries"]] == [(1, "tid")]
        assert feed["lease_ms"] == 5000


async def test_keys_are_cached_by_their_etag_and_change_with_a_rotation():
    async with connected() as client:
        first = await client.ask("GET", "/v1/keys")
        assert first.headers["cache-control"] == "public, max-age=60"
        assert first.body["keys"][0]["crv"] == "Ed25519"
        again = await client.ask("GET", "/v1/keys", If_None_Match=first.headers["etag"])
        assert again.status == 304
        rotated = await client.operator("/v1/passport/rotate")
        changed = await client.ask("GET", "/v1/keys", If_None_Match=first.headers["etag"])

        assert changed.status == 200
        assert [key["kid"] for key in changed.body["keys"]] == [rotated.body["kid"], first.body["keys"][0]["kid"]]


@pytest.mark.parametrize(
    ("path", "body", "token", "refusal"),
    [
        ("/v1/passport/issue", ISSUE, None, (401, "unauthenticated", "missing")),
        ("/v1/passport/issue", ISSUE, "psp1_x", (401, "unauthenticated", "malformed")),
        ("/v1/passport/issue", {**ISSUE, "ttl_s": 3601}, "operator", (400, "malformed", "ttl_too_long")),
        ("/v1/passport/issue", {**ISSUE, "caveats": ["x=1"]}, "operator", (400, "malformed", "unknown_caveat")),
        ("/v1/passport/issue", {**ISSUE, "accept_algs": ["x"]}, "operator", (400, "malformed", "no_acceptable_alg")),
        ("/v1/passport/issue", {**ISSUE, "extra": 1}, "operator", (400, "malformed", None)),
        ("/v1/passport/issue", {**ISSUE, "ttl_s": 0}, "operator", (400, "malformed", None)),
        ("/v1/passport/issue", [], "operator", (400, "malformed", None)),
        ("/v1/passport/revoke", {}, "operator", (400, "malformed", None)),
        ("/v1/passport/revoke", {"tid": "0" * 32, "kid": "k"}, "operator", (400, "malformed", None)),
        ("/v1/passport/revoke", {"epoch": 9}, "operator", (400, "malformed", "epoch_too_high")),
        ("/v1/passport/revoke", {"subject_ref": "operator"}, "operator", (409, "conflict", "needs_force")),
        ("/v1/passport/revoke", {"tenant": "a"}, None, (401, "unauthenticated", "missing")),
        ("/v1/passport/rotate", None, None, (401, "unauthenticated", "missing")),
        ("/v1/passport/revoke", {"tenant": "a"}, "plain", (403, "forbidden", "caveat:aud")),
        ("/v1/passport/issue", ISSUE, "plain", (403, "forbidden", "caveat:aud")),
        ("/v1/passport/issue", ISSUE, "elsewhere", (403, "forbidden", "caveat:ip")),
    ],
)  # fmt: skip
async def test_every_refusal_has_its_status_code_and_reason(path, body, token, refusal):
    async with connected() as client:
        named = {"operator": client.world.operator_token}
        if token == "plain":
            named["plain"] = await client.world.issue("op=send")
        if token == "elsewhere":
            named["elsewhere"] = attenuate(client.world.operator_token, parse_all(["ip=10.0.0.0/8"]))
        answer = await client.ask("POST", path, body, token=named.get(token, token))

        assert (answer.status, answer.body["code"], answer.body.get("reason")) == refusal
        assert "psp1_" not in json.dumps(answer.body)


@pytest.mark.parametrize("query", ["since=x", "since=-1", "since=1&other=2", "since=1&since=2", f"since={'9' * 17}"])
async def test_a_feed_that_is_asked_wrongly_says_so(query):
    async with connected() as client:
        assert (await client.ask("GET", f"/v1/passport/revocations?{query}")).status == 400


async def test_a_batch_judges_each_item_and_a_large_one_needs_a_token_wherever_it_comes_from():
    """Loopback is no credential: the listener's peers come from there, as everybody behind a proxy does."""
    async with connected() as client:
        good = await client.world.issue()
        items = [{"token": good}, {"token": "psp1_x"}, {"token": good, "context": {"aud": "svc-dht"}}]
        batch = (await client.ask("POST", "/v1/passport/verify_batch", {"items": items})).body["results"]
        assert [(item["ok"], item["reason"]) for item in batch] == [
            (True, ""),
            (False, "malformed"),
            (False, "caveat:aud"),
        ]
        for token in ("", "psp1_x"):
            asked = {"items": [{"token": good}] * 17}
            assert (await client.ask("POST", "/v1/passport/verify_batch", asked, token=token)).status == 401
        large = await client.ask("POST", "/v1/passport/verify_batch", {"items": [{"token": good}] * 512}, token=good)
        assert (large.status, len(large.body["results"])) == (200, 512)
        over = await client.ask("POST", "/v1/passport/verify_batch", {"items": [{"token": good}] * 513}, token=good)
        assert (over.status, over.body["limit"]) == (413, "verify_batch")

        api = client.world.api
        await api.check_batch_allowed(17, client.world.operator_token)
        with pytest.raises(Unauthenticated, match="No capability"):
            await api.check_batch_allowed(17, "")


async def test_a_long_chain_that_is_forged_opens_no_large_batch():
    async with connected() as client:
        token = client.world.operator_token
        for _ in range(5):
            token = attenuate(token, parse_all(["aud=*"]))
        await client.world.api.check_batch_allowed(17, token)
        root = decode(token)
        forged = encode(msgspec.structs.replace(root, signature=bytes(len(root.signature))))

        with pytest.raises(Unauthenticated):
            await client.world.api.check_batch_allowed(17, forged)


async def test_without_a_place_for_a_long_chain_it_is_busy_and_nothing_is_left_behind():
    async with connected() as client:
        token = client.world.operator_token
        for _ in range(5):
            token = attenuate(token, parse_all(["aud=*"]))
        api = client.world.api
        api._places.acquire_or_busy(api._places.capacity - 1)
        refused = await client.ask("POST", "/v1/passport/verify", {"token": token})
        api._places.release(api._places.capacity - 1)
        served = await client.ask("POST", "/v1/passport/verify", {"token": token})

        assert (refused.status, refused.body["code"]) == (429, "busy")
        assert served.body["ok"]
        assert api._places.in_use == 0


async def test_a_long_chain_is_verified_off_the_loop_and_answered_the_same():
    async with connected() as client:
        token = client.world.operator_token
        for _ in range(5):
            token = attenuate(token, parse_all(["aud=*"]))
        issued = await client.ask("POST", "/v1/passport/issue", ISSUE, token=token)
        verdict = await client.ask("POST", "/v1/passport/verify", {"token": attenuate(token, parse_all(["op=send"]))})

        assert issued.status == 200
        assert verdict.body["ok"]


async def test_readiness_is_told_apart_for_issuing_and_verifying():
    async with connected() as client:
        client.world.service.sampler.sample()
        ready, verify = await client.ask("GET", "/readyz"), await client.ask("GET", "/readyz/verify")
        assert (ready.status, verify.status) == (200, 200)
        assert {"kms", "registry", "policy", "issue_queue", "revoke_queue"} <= set(ready.body["gates"])


async def test_while_draining_issue_is_refused_and_verify_goes_on():
    async with connected() as client:
        token = await client.world.issue()
        client.world.service.listener.stop_intake()
        port = client.world.port

        async def once(method: str, path: str, body: object = None, token: str | None = None) -> Answer:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                return await Client(client.world, reader, writer).ask(method, path, body, token=token)
            finally:
                writer.close()

        issue = await once("POST", "/v1/passport/issue", ISSUE, client.world.operator_token)
        verify = await once("POST", "/v1/passport/verify", {"token": token})
        pages = [(await once("GET", path)).status for path in ("/readyz", "/readyz/verify", "/v1/keys")]

        assert (issue.status, issue.body["code"]) == (503, "not_ready")
        assert verify.body["ok"]
        assert pages == [503, 200, 200]


async def test_the_answer_to_a_full_queue_names_it_and_says_when_to_come_back():
    async with connected(options(sockets=True, rps=1)) as client:
        answers = [await client.operator("/v1/passport/issue", ISSUE)]
        # The second one, unless the machine slept for a second in between.
        while answers[-1].status == 200:
            answers.append(await client.operator("/v1/passport/issue", ISSUE))
        refused = answers[-1]

        assert len(answers) > 1
        assert (refused.status, refused.body["code"], refused.body["scope"]) == (429, "rate_limited", "rps")
        assert int(refused.headers["retry-after"]) >= 1

"""The bridge with the real services behind it: its passports are issued by svc-passport and judged by each of them."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from penstock.capability.verifier import CapabilityVerifier
from penstock.contracts import mailbox as m
from penstock.contracts import passport as p
from penstock.contracts.call import Call
from penstock.contracts.passport import Attested
from penstock.kernel.clock import SYSTEM
from penstock.kernel.errors import Forbidden, Integrity
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.services.interop.audit import AuditBook, BridgeAct, verify_audit
from penstock.services.interop.authority import Purpose, issuer_request
from penstock.services.mailbox.config import MailboxOptions
from penstock.services.mailbox.engines.memory import MemoryEngine
from penstock.services.mailbox.service import SERVICE as MAILBOX
from penstock.services.mailbox.service import MailboxService
from penstock.services.passport.service import SERVICE as PASSPORT
from penstock.services.passport.service import PassportService
from penstock.services.storage.config import StorageOptions
from penstock.services.storage.service import SERVICE as STORAGE
from penstock.services.storage.service import StorageService
from penstock.wire.ids import address_of
from tests.services.interop.test_service import OCTETS, live
from tests.services.interop.worlds import LISTENER, bridge, until
from tests.services.passport.kit import options as passport_options

pytestmark = pytest.mark.real_loop


@asynccontextmanager
async def supervised(inventory, service):
    supervisor = Supervisor(inventory, service.children(), replace(service.supervision(), drain_deadline_s=25.0))
    await supervisor.start()
    try:
        yield service
    finally:
        await supervisor.drain(25.0)
        await service.close()


@asynccontextmanager
async def everything(**options):
    """Run svc-passport, svc-mailbox, svc-storage and the bridge, each judging what it is shown."""
    inventories = {name: Inventory(name, SYSTEM) for name in (PASSPORT, MAILBOX, STORAGE)}
    passport = PassportService(inventories[PASSPORT], passport_options())
    async with supervised(inventories[PASSPORT], passport):
        verifier = CapabilityVerifier(passport.book.trust, SYSTEM)
        mailbox = MailboxService(
            inventories[MAILBOX],
            MailboxOptions(listener=LISTENER, engine="memory"),
            engine=MemoryEngine(bytes(32)),
            verifier=verifier,
        )
        storage = StorageService(inventories[STORAGE], StorageOptions(), verifier=verifier)

        async def mint():
            return await passport.api.issue(issuer_request(), Call(passport.book.operator_token))

        async def mint_for(tenant):
            return await passport.api.issue(issuer_request(tenant), Call(passport.book.operator_token))

        async def attest(n, head):
            return await passport.api.attest(p.Attest("svc-interop", n, head), Call(passport.book.operator_token))

        async with supervised(inventories[MAILBOX], mailbox), supervised(inventories[STORAGE], storage):
            around = {
                "passport": passport.api,
                "mint": mint,
                "mint_for": mint_for,
                "verifier": verifier,
                "attest": attest,
            }
            async with bridge(mailbox=mailbox.api, storage=storage.api, around=around, **options) as world:
                await until(
                    lambda: world.inventory.health.gate("passport").open and inventories[MAILBOX].health.verdict().ready
                )
                yield world, passport


async def test_webhook_goes_all_the_way_and_its_retry_is_a_duplicate():
    async with everything() as (world, passport):
        first = await world.http.hook("stripe", live("stripe"))
        again = await world.http.hook("stripe", live("stripe"))
        operator = Call(passport.book.operator_token)
        received = await world.mailbox.recv(m.Recv("webhooks/stripe", max_messages=10), operator)

    assert [first.status, again.status] == [202, 202]
    assert (first.json()["duplicate"], again.json()["duplicate"]) == (False, True)
    assert [message.msg_id for message in received.messages] == [first.json()["msg_id"]] == [again.json()["msg_id"]]


async def test_passport_of_an_endpoint_can_send_to_its_topic_and_nothing_else():
    async with everything() as (world, _):
        await world.http.hook("github", live("github"))
        purpose = Purpose("webhook:accept:github", "svc-mailbox", "send", "webhooks/github")
        call = await world.service.authority.call(purpose, "")
        with pytest.raises(Forbidden):
            await world.mailbox.recv(m.Recv("webhooks/github"), call)
        with pytest.raises(Forbidden):
            await world.mailbox.send(m.Send("webhooks/other", b"x"), call)
        sent = await world.mailbox.send(m.Send("webhooks/github", b"x"), call)

    assert not sent.duplicate


async def test_put_and_get_with_a_token_for_the_bridge():
    async with everything() as (world, passport):
        request = p.Issue("alice", "svc-interop", caveats=("op=put,get",))
        token = (await passport.api.issue(request, Call(passport.book.operator_token))).token
        other = (
            await passport.api.issue(
                p.Issue("alice", "svc-mailbox", caveats=("op=put,get",)), Call(passport.book.operator_token)
            )
        ).token
        bearer, foreign = ((b"Authorization", b"Bearer " + each.encode()) for each in (token, other))
        put = await world.http.ask("POST", "/put", b"hello", (*OCTETS, bearer))
        got = await world.http.ask("GET", f"/o/{address_of(b'hello')}", fields=(bearer,))
        refused = await world.http.ask("POST", "/put", b"hello", (*OCTETS, foreign))

    assert (put.status, got.status, got.body) == (202, 200, b"hello")
    assert refused.status in (401, 403)


async def test_head_of_the_audit_is_signed_at_the_drain_and_a_changed_file_is_found(tmp_path):
    path = tmp_path / "audit.log"
    for _ in range(2):
        async with everything(audit_sink="file", audit_path=path) as (world, passport):
            await world.http.hook("github", live("github"))
            keys = passport.book.trust.keys
        lines = path.read_bytes().splitlines(keepends=True)
        verified = verify_audit(lines, "svc-interop", keys)
        assert (verified.end.records, verified.vouched) == (2, 1)
        path.unlink()

    remade = AuditBook()
    forged = remade.write([BridgeAct("webhook", 1, "allow")], 0, 1) + remade.attested(
        msgspec.convert(json.loads(lines[1])["facts"], Attested), 2
    )
    for broken, reason in ((forged.splitlines(keepends=True), "bad_signature"), (lines[1:], "broken_chain")):
        with pytest.raises(Integrity) as found:
            verify_audit(broken, "svc-interop", keys)
        assert found.value.facts["reason"] == reason
    with pytest.raises(Integrity):
        verify_audit(lines, "svc-other", keys)

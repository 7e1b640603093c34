"""What single services add to the operator's page: the gateway's classes and what it sheds, the issuer's audit."""

from __future__ import annotations

from collections.abc import Hashable
from types import SimpleNamespace

from penstock.admin.node_panels import services
from penstock.admin.view import _service
from penstock.node.panels import audit, gateway_brownout, gateway_tenants, traffic_classes
from penstock.services.omnigate.fair.entry import QueueEntry
from penstock.services.omnigate.fair.queue import FairMeasures, FairQueue
from penstock.services.passport.audit_writer import AuditEntry
from tests.services.omnigate.agents.test_prober import fall_ill, running


async def test_a_gateway_that_sheds_writes_says_so_in_its_status_and_on_its_panels() -> None:
    async with running() as site:
        supervisor = site.supervisor
        classes, triggers = traffic_classes(site.service), gateway_brownout(site.service)
        calm = (_service(supervisor), services([supervisor])[0]["brownout"], triggers.source())
        await fall_ill(site)
        ill = (_service(supervisor), services([supervisor])[0]["brownout"], triggers.source())
        shed = {row["sheds"] for row in classes.source()}

    why = "writes are shed: svc-mailbox does not answer"
    assert (calm[0]["brownout"], calm[0]["brownout_why"], calm[1]) == (False, "", "")
    assert {row["state"] for row in calm[2]} == {"takes all"}
    assert (ill[0]["brownout"], ill[0]["brownout_why"], ill[1]) == (True, why, why)
    assert (ill[2][0]["now"], ill[2][0]["state"]) == ("svc-mailbox", "sheds writes")
    assert shed == {"writes"}


def test_a_row_of_the_audit_leaves_out_the_tenant_and_class_that_nobody_chose() -> None:
    facts = {"sub": "w1", "tid": "t1", "tenant": "sub:w1", "traffic_class": "authed", "kid": "k", "exp": 60}
    usual, chosen = (
        SimpleNamespace(trail=SimpleNamespace(recent=[AuditEntry(1, 0, "issue", facts | more)]))
        for more in ({}, {"tenant": "acme", "traffic_class": "internal"})
    )
    rows = [audit(service).source()[0] for service in (usual, chosen)]

    assert [row["more"] for row in rows] == ["tid t1", "tid t1, tenant acme, traffic_class internal"]
    assert rows[0]["until"] == 60_000


def test_a_row_of_the_audit_leaves_out_what_a_revocation_does_not_say() -> None:
    facts = {"kind": "tid", "value": "t1", "why": "", "epoch": 1, "by": "t0", "by_sub": "operator"}
    service = SimpleNamespace(trail=SimpleNamespace(recent=[AuditEntry(1, 0, "revoke", facts)], records=1))

    assert audit(service).source()[0]["more"] == "kind tid, value t1, epoch 1"


def test_the_audit_says_which_of_its_records_are_shown() -> None:
    recent = [AuditEntry(n, 0, "rotate", {}) for n in (7, 8)]
    few, all_ = (SimpleNamespace(trail=SimpleNamespace(recent=recent, records=n)) for n in (8, 2))

    assert str(audit(few).draw()["note"]).startswith("the last 2 of 8 records; the older ones are in audit/")
    assert audit(all_).draw()["note"] == ""


class Gate:
    """A fair queue of one class, and the time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.queue = FairQueue(FairMeasures(weights={"authed": 1}), limit=8)

    def monotonic(self) -> float:
        return self.now

    def serve(self, tenant: Hashable, count: int) -> None:
        """Let short requests of a tenant come and end at once."""
        for _ in range(count):
            entry = QueueEntry()
            self.queue.arrive(entry, self.queue.classes["authed"], tenant, self.now)
            self.queue.end(entry)


def test_tenants_whose_requests_are_over_at_once_are_shown_with_their_shares() -> None:
    gate = Gate()
    panel = gateway_tenants(SimpleNamespace(gate=gate))
    gate.serve("before", 1000)
    assert panel.source() == []
    gate.serve("shop", 30)
    gate.serve("mail", 10)
    gate.now += 4
    rows = panel.source()

    assert [(row["who"], row["rate"], row["part"]) for row in rows] == [
        ("authed / shop", 7.5, 75.0),
        ("authed / mail", 2.5, 25.0),
    ]
    assert {(row["running"], row["share"]) for row in rows} == {(0, None)}
    gate.now += 2
    assert [row["rate"] for row in panel.source()] == [5.0, 1.67]
    gate.now += 6
    panel.source()
    gate.now += 1
    assert panel.source() == []


def test_a_stranger_is_named_by_its_address() -> None:
    gate = Gate()
    panel = gateway_tenants(SimpleNamespace(gate=gate))
    panel.source()
    gate.serve(("127.0.0.1",), 10)
    gate.now += 2

    assert [row["who"] for row in panel.source()] == ["authed / 127.0.0.1"]


def test_what_came_while_nobody_looked_is_not_spread_over_that_time() -> None:
    gate = Gate()
    panel = gateway_tenants(SimpleNamespace(gate=gate))
    panel.source()
    gate.now += 3600
    gate.serve("shop", 100)
    assert panel.source() == []
    gate.serve("shop", 6)
    gate.now += 2

    assert [row["rate"] for row in panel.source()] == [3.0]

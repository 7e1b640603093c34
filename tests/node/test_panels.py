"""What single services add to the operator's page: the gateway's classes and what it sheds, the issuer's audit."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.admin.node_panels import services
from penstock.admin.view import _service
from penstock.node.panels import audit, gateway_brownout, traffic_classes
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

"""What the gateway adds to the operator's page: its classes, and what it sheds with the figures that decide it."""

from __future__ import annotations

from penstock.admin.node_panels import services
from penstock.admin.view import _service
from penstock.node.panels import gateway_brownout, traffic_classes
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

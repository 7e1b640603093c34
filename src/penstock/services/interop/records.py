"""What is told about each decision: the audit, the events, the inbox and the counters, in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.kernel.channel import Full
from penstock.services.interop.attacks import EndpointAttack
from penstock.services.interop.audit import BridgeAct
from penstock.services.interop.inbox import InboxDelivery, WebhookInbox

if TYPE_CHECKING:
    from penstock.contracts.interop import DeliveryShown
    from penstock.kernel.broadcast import Broadcast
    from penstock.kernel.channel import Channel
    from penstock.kernel.inventory import Inventory
    from penstock.kernel.metrics import Counter
    from penstock.services.interop.config import InteropOptions
    from penstock.services.interop.endpoints import WebhookEndpoint

VERIFY_HELP: Final = "Webhooks by what became of them."


class BridgeEvent:
    """Something that consumers of `events` may want to know; the truth is in the mailbox and the audit."""

    __slots__ = ("endpoint", "kind", "reason")

    def __init__(self, kind: str, endpoint: str = "", reason: str = "") -> None:
        """Name what happened: `webhook.accepted`, `brownout.on`, `endpoint.attacked` and so on."""
        self.kind = kind
        self.endpoint = endpoint
        self.reason = reason


class BridgeRecords:
    """The one teller of decisions. Owns which endpoints are paused and which are under attack."""

    def __init__(self, inventory: Inventory, options: InteropOptions) -> None:
        """Declare the broadcast and the audit's ring."""
        self._options = options
        self._clock = inventory.clock
        self._metrics = inventory.metrics
        self.inbox = WebhookInbox()
        # By endpoint; an endpoint that was removed from the settings keeps its few bytes until the restart.
        self.attacks: dict[str, EndpointAttack] = {}
        self.paused: set[str] = set()
        self.events: Broadcast[BridgeEvent] = inventory.broadcast(
            "events", BridgeEvent, producers="worker, sentinel", consumers="operator's page, log"
        )
        self.acts: Channel[BridgeAct] = inventory.channel(
            "audit",
            BridgeAct,
            capacity=options.audit_capacity,
            full=Full.DROP_OLDEST,
            producers="worker, sentinel",
            consumers="audit_writer",
        )
        dropped = inventory.metrics.watched("audit_drop_total", "Decisions the full audit ring lost.")
        dropped.append(lambda: self.acts.dropped)
        inventory.metrics.declare("counter", "webhook_verify_total", VERIFY_HELP, "provider", "result")
        # As many as there are kinds and outcomes.
        self._verified: dict[tuple[str, str], Counter] = {}

    def now_ms(self) -> int:
        """Return the wall time in milliseconds."""
        return int(self._clock.wall() * 1000)  # lint: allow PK012 records and events keep wall times

    def _count(self, kind: str, outcome: str) -> None:
        counter = self._verified.get((kind, outcome))
        if counter is None:
            counter = self._metrics.counter("webhook_verify_total", provider=kind, result=outcome)
            self._verified[kind, outcome] = counter
        counter.value += 1

    # --- webhooks ----------------------------------------------------------------------------------------------------

    def delivered(self, endpoint: WebhookEndpoint, delivery: InboxDelivery, b3_hash: str = "") -> None:
        """Tell of a webhook that was accepted, was a duplicate, was a handshake or could not be passed on."""
        self._count(endpoint.kind, delivery.outcome)
        self.inbox.add(delivery)
        failed = delivery.outcome == "failed"
        self._act(
            BridgeAct(
                "webhook",
                delivery.at_ms,
                "deny" if failed else "allow",
                corr_id=delivery.corr_id,
                endpoint=endpoint.name,
                provider=endpoint.kind,
                reason=delivery.reason or delivery.outcome,
                b3_hash=b3_hash,
                msg_id=delivery.msg_id,
            )
        )
        if not failed:
            self.events.publish(BridgeEvent(f"webhook.{delivery.outcome}", endpoint.name))

    def refused(self, endpoint: WebhookEndpoint, corr_id: str, reason: str) -> None:
        """Tell of a webhook whose signature was not good; too many of them are an attack."""
        now = self._clock.monotonic()
        self._count(endpoint.kind, "refused")
        attack = self.attacks.get(endpoint.name)
        if attack is None:
            attack = self.attacks[endpoint.name] = EndpointAttack(self._options.bad_signatures_max, now)
        news = attack.bad(now)
        if news == "counted":
            self.inbox.note(endpoint.name, "refused")
            return
        at_ms = self.now_ms()
        self.inbox.add(
            InboxDelivery(corr_id=corr_id, endpoint=endpoint.name, at_ms=at_ms, outcome="refused", reason=reason)
        )
        self._act(
            BridgeAct(
                "webhook", at_ms, "deny", corr_id=corr_id, endpoint=endpoint.name, provider=endpoint.kind,
                reason=reason, status=401,
            )
        )  # fmt: skip
        self.events.publish(BridgeEvent("webhook.refused", endpoint.name, reason))
        if news == "attacked":
            self._attacked(endpoint, at_ms)

    def _attacked(self, endpoint: WebhookEndpoint, at_ms: int) -> None:
        self._act(BridgeAct("attacked", at_ms, "deny", endpoint=endpoint.name, provider=endpoint.kind))
        self.events.publish(BridgeEvent("endpoint.attacked", endpoint.name))
        if endpoint.pauses_on_attack:
            self.pause(endpoint.name)

    def look(self) -> None:
        """Write the counts of endpoints under attack; the sentinel calls this once a second."""
        now = self._clock.monotonic()
        for name, attack in self.attacks.items():
            counted = attack.look(now)
            if counted:
                self._act(
                    BridgeAct("webhook", self.now_ms(), "deny", endpoint=name, reason="bad_signatures", count=counted)
                )

    def replayed(self, delivery: DeliveryShown, msg_id: str, corr_id: str) -> None:
        """Tell that a person had an event sent again."""
        self._act(
            BridgeAct(
                "replayed", self.now_ms(), "allow", corr_id=corr_id, endpoint=delivery.endpoint, event_id=delivery.id,
                msg_id=msg_id,
            )
        )  # fmt: skip
        self.events.publish(BridgeEvent("webhook.replayed", delivery.endpoint))

    # --- puts and the state of the bridge ----------------------------------------------------------------------------

    def put(self, corr_id: str, address: str, reason: str = "") -> None:
        """Tell of a put."""
        self._act(
            BridgeAct(
                "put", self.now_ms(), "deny" if reason else "allow", corr_id=corr_id, b3_hash=address, reason=reason
            )
        )

    def brownout(self, *, active: bool, reasons: tuple[str, ...]) -> None:
        """Tell that brownout began or ended."""
        kind = "brownout.on" if active else "brownout.off"
        self._act(BridgeAct(kind, self.now_ms(), "deny" if active else "allow", reason=",".join(reasons)))
        self.events.publish(BridgeEvent(kind, reason=",".join(reasons)))

    def pause(self, name: str) -> None:
        """Pause an endpoint: its webhooks get 503 until it is resumed."""
        if name not in self.paused:
            self.paused.add(name)
            self._act(BridgeAct("paused", self.now_ms(), "deny", endpoint=name))
            self.events.publish(BridgeEvent("endpoint.paused", name))

    def resume(self, name: str) -> None:
        """Let an endpoint's webhooks in again."""
        if name in self.paused:
            self.paused.discard(name)
            self._act(BridgeAct("resumed", self.now_ms(), "allow", endpoint=name))

    def _act(self, act: BridgeAct) -> None:
        if not self.acts.closed:
            self.acts.try_send(act)

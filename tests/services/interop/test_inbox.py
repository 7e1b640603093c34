"""The inbox: what people see of deliveries, and what they may do about them."""

from __future__ import annotations

import json

import pytest

from penstock.contracts import interop as i
from penstock.contracts.call import Call, Origin
from penstock.contracts.mailbox import Send
from penstock.kernel.errors import BadOrigin, Conflict, NotFound, NotReady, OverLimit, RateLimited, Unauthenticated
from penstock.services.interop.inbox import InboxDelivery, WebhookInbox
from tests.services.interop.senders import SENDERS, Sent
from tests.services.interop.test_service import Failing, OneToken, live
from tests.services.interop.worlds import bridge, endpoints

pytestmark = pytest.mark.real_loop


# --- the ring --------------------------------------------------------------------------------------------------------


def _delivery(n: int, **changed) -> InboxDelivery:
    said = {"corr_id": f"c{n}", "endpoint": "a", "at_ms": 1000 + n, "outcome": "accepted", **changed}
    return InboxDelivery(**said)


def test_ring_is_bounded_by_number_and_by_bytes_and_counts_go_on():
    few, small = WebhookInbox(deliveries_max=3), WebhookInbox(bytes_max=10_000)
    for n in range(10):
        few.add(_delivery(n))
        small.add(_delivery(n, sent=Send("t", bytes(3000))))

    assert [each.corr_id for each in few.newest(9)] == ["c9", "c8", "c7"]
    assert [each.corr_id for each in small.newest(9)] == ["c9", "c8"]
    assert few.count("a", "accepted") == 10


def test_id_names_one_delivery_for_good():
    inbox = WebhookInbox(deliveries_max=3)
    names = []
    for n in range(9):
        inbox.add(_delivery(n, at_ms=5))
        names.append(inbox.newest(1)[0].id)

    assert len(set(names)) == 9
    assert [inbox.find(name) is not None for name in names] == [False] * 6 + [True] * 3
    assert [inbox.find(name)[0].corr_id for name in names[6:]] == ["c6", "c7", "c8"]


def test_refused_delivery_cannot_hide_an_accepted_one_by_its_corr_id_or_id():
    inbox = WebhookInbox()
    inbox.add(_delivery(1, corr_id="same"))
    accepted = inbox.newest(1)[0].id
    inbox.add(_delivery(2, corr_id="same", outcome="refused"))
    inbox.add(_delivery(3, corr_id=accepted, outcome="refused"))

    assert inbox.find("same")[0].id == accepted
    assert inbox.find(accepted)[0].id == accepted


def test_deliveries_are_filtered_by_endpoint_and_outcome():
    inbox = WebhookInbox()
    for n in range(6):
        inbox.add(_delivery(n, endpoint="ab"[n % 2], outcome=("accepted", "failed")[n % 3 == 0]))

    assert [each.corr_id for each in inbox.newest(9, "a")] == ["c4", "c2", "c0"]
    assert [each.corr_id for each in inbox.newest(9, "", "failed")] == ["c3", "c0"]
    assert [each.corr_id for each in inbox.newest(1, "b")] == ["c5"]


# --- over HTTP -------------------------------------------------------------------------------------------------------


async def test_endpoints_and_deliveries_are_listed_and_shown():
    async with bridge() as world:
        await world.http.hook("github", live("github", b'{"n":1}'))
        await world.http.hook("github", live("github", b'{"n":1}'))
        await world.http.hook("github", live("github", secret="wrong-fake"))
        found = await world.http.ask("GET", "/v1/webhooks")
        listed = (await world.http.ask("GET", "/v1/webhooks/deliveries?endpoint=github&limit=2")).json()["deliveries"]
        accepted = await world.http.ask("GET", "/v1/webhooks/deliveries?outcome=accepted")
        (shown,) = accepted.json()["deliveries"]
        opened = (await world.http.ask("GET", f"/v1/webhooks/deliveries/{shown['id']}")).json()
        refused = (await world.http.ask("GET", f"/v1/webhooks/deliveries/{listed[0]['id']}")).json()

    github = next(each for each in found.json()["endpoints"] if each["name"] == "github")
    assert [each["name"] for each in found.json()["endpoints"]] == sorted(SENDERS)
    assert (github["accepted"], github["duplicate"], github["refused"], github["paused"]) == (1, 1, 1, False)
    assert [each["outcome"] for each in listed] == ["refused", "duplicate"]
    assert (opened["event"]["body"], opened["delivery"]["topic"]) == ('{"n":1}', "webhooks/github")
    assert (refused["event"], refused["delivery"]["reason"]) == (None, "wrong_signature")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/webhooks/deliveries?limit=0", 400),
        ("GET", "/v1/webhooks/deliveries?limit=x", 400),
        ("GET", "/v1/webhooks/deliveries?who=1", 400),
        ("GET", "/v1/webhooks/deliveries?outcome=good", 400),
        ("GET", "/v1/webhooks/deliveries/none", 404),
        ("GET", f"/v1/webhooks/deliveries/{'x' * 65}", 400),
        ("POST", "/v1/webhooks/deliveries/none/replay", 404),
        ("POST", "/v1/webhooks/endpoints/nobody/pause", 404),
        ("POST", "/v1/webhooks/endpoints/No%20body/resume", 400),
    ],
)
async def test_senseless_question_is_refused_in_a_sentence(method, path, status):
    async with bridge() as world:
        answer = await world.http.ask(method, path)

    assert (answer.status, bool(answer.json()["detail"])) == (status, True)


async def test_replay_is_a_new_message_that_says_what_it_repeats():
    async with bridge() as world:
        first = (await world.http.hook("github", live("github"))).json()
        (shown,) = (await world.http.ask("GET", "/v1/webhooks/deliveries")).json()["deliveries"]
        again = [(await world.http.ask("POST", f"/v1/webhooks/deliveries/{shown['id']}/replay")) for _ in range(2)]
        events = world.messages("webhooks/github")

    ids = {first["msg_id"], *(each.json()["msg_id"] for each in again)}
    assert ([each.status for each in again], len(ids)) == ([200, 200], 3)
    assert [each.get("replayed_from") for each in events] == [None, shown["id"], shown["id"]]
    assert {each["body"] for each in events} == {live("github").body.decode()}


async def test_replay_of_a_failed_delivery_and_the_providers_retry_are_one_message():
    mailbox = Failing(3)
    async with bridge(mailbox=mailbox) as world:
        failed = await world.http.hook("github", live("github"))
        (shown,) = (await world.http.ask("GET", "/v1/webhooks/deliveries")).json()["deliveries"]
        replayed = (await world.http.ask("POST", f"/v1/webhooks/deliveries/{shown['id']}/replay")).json()
        retried = (await world.http.hook("github", live("github"))).json()

    assert (failed.status, shown["outcome"], shown["can_replay"]) == (503, "failed", True)
    assert (retried["duplicate"], retried["msg_id"]) == (True, replayed["msg_id"])
    assert len(mailbox.state.messages) == 1


async def test_refused_delivery_and_a_handshake_cannot_be_replayed():
    async with bridge() as world:
        await world.http.hook("github", live("github", secret="wrong-fake"))
        await world.http.hook("discord", live("discord", b'{"type":1}'))
        listed = (await world.http.ask("GET", "/v1/webhooks/deliveries")).json()["deliveries"]
        answers = [await world.http.ask("POST", f"/v1/webhooks/deliveries/{each['id']}/replay") for each in listed]

    assert [each["can_replay"] for each in listed] == [False, False]
    assert [(answer.status, answer.json()["reason"]) for answer in answers] == [(409, "no_event")] * 2


async def test_endpoint_is_paused_and_resumed_by_a_person():
    async with bridge() as world:
        paused = await world.http.ask("POST", "/v1/webhooks/endpoints/github/pause")
        during = await world.http.hook("github", live("github"))
        other = await world.http.hook("gitea", live("gitea"))
        resumed = await world.http.ask("POST", "/v1/webhooks/endpoints/github/resume")
        after = await world.http.hook("github", live("github"))

    assert (paused.json()["paused"], resumed.json()["paused"]) == (True, False)
    assert (during.status, during.json()["phase"], other.status, after.status) == (503, "paused", 202, 202)


async def test_inbox_is_for_admins_alone():
    paths = [
        ("GET", "/v1/webhooks"),
        ("GET", "/v1/webhooks/deliveries"),
        ("GET", "/v1/webhooks/deliveries/x"),
        ("POST", "/v1/webhooks/deliveries/x/replay"),
        ("POST", "/v1/webhooks/endpoints/github/pause"),
        ("POST", "/v1/webhooks/endpoints/github/resume"),
    ]
    async with bridge(around={"verifier": OneToken()}) as world:
        nobody = [(await world.http.ask(*path)).status for path in paths]
        no_admin = [
            (await world.http.ask(*path, fields=((b"Authorization", b"Bearer good"),))).status for path in paths
        ]
        count = world.service.records.paused

    assert (nobody, no_admin, count) == ([401] * 6, [403] * 6, set())


# --- the contract, as the gateway calls it ---------------------------------------------------------------------------


def _deliver(name: str, sent: Sent) -> i.DeliverWebhook:
    fields = tuple((field.lower(), value) for field, value in sent.fields)
    return i.DeliverWebhook(name, f"/webhooks/{name}".encode(), fields, sent.body)


async def test_contract_takes_webhooks_under_the_same_rules_as_the_listener():
    rows = {
        "github": {"secrets": ("fake-secret",)},
        "pinned": {"kind": "github", "secrets": ("fake-secret",), "allow_ips": ("192.0.2.7",)},
    }
    call = Call(corr_id="c1", origin=Origin("POST", "/webhooks/github", "192.0.2.7", charged=True))
    async with bridge(endpoints(rows)) as world:
        deliver = world.service.api.deliver
        good = await deliver(_deliver("github", live("github")), call)
        pinned = await deliver(_deliver("pinned", live("github")), call)
        for request, near, refusal in (
            (_deliver("github", live("github", secret="wrong-fake")), call, Unauthenticated),
            (_deliver("nobody", live("github")), call, NotFound),
            (_deliver("pinned", live("github")), Call(), BadOrigin),
            (_deliver("github", live("github", bytes((1 << 20) + 1))), call, OverLimit),
        ):
            with pytest.raises(refusal):
                await deliver(request, near)
        world.service.records.pause("github")
        with pytest.raises(NotReady):
            await deliver(_deliver("github", live("github")), call)
        world.service._intake.rate.depth = 0
        with pytest.raises(RateLimited):
            await deliver(_deliver("pinned", live("github")), call)

    answer = json.loads(good.body)
    assert (good.status, answer["corr_id"], pinned.status) == (202, "c1", 202)


async def test_contract_replays_and_refuses_what_it_does_not_hold():
    async with bridge() as world:
        api = world.service.api
        await api.deliver(_deliver("github", live("github")), Call(corr_id="mine"))
        replayed = await api.replay(i.ReplayDelivery("mine"), Call(corr_id="r1"))
        repeated = await api.replay(i.ReplayDelivery("mine"), Call(corr_id="r1"))
        with pytest.raises(NotFound):
            await api.replay(i.ReplayDelivery("none"))
        await world.http.hook("github", live("github", secret="wrong-fake"))
        refused = (await api.deliveries(i.ListDeliveries(outcome="refused"))).deliveries[0]
        with pytest.raises(Conflict):
            await api.replay(i.ReplayDelivery(refused.id))

    # A call that was made twice because its answer got lost is one replay.
    assert repeated.msg_id == replayed.msg_id

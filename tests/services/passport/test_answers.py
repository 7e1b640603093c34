"""What is said to whoever asks: names the fault, says what to do, and keeps to the forms others read."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.capability import ed25519
from penstock.capability.token import HYBRID, decode
from penstock.contracts import passport as p
from penstock.kernel.broadcast import Broadcast
from penstock.kernel.bus import ConfigUpdated
from penstock.kernel.channel import Channel, Full
from penstock.kernel.errors import Malformed, PenstockError
from penstock.kernel.worker import Job
from penstock.services.passport.config import RegistryOptions
from penstock.services.passport.policy import Descriptor, Limits, sign
from penstock.services.passport.revocation import OperatorOwed, RevokeJob
from penstock.services.passport.service import Around
from penstock.testing import until
from tests.services.passport.kit import options, running
from tests.services.passport.test_http import connected


@pytest.mark.parametrize(("field", "fields"), [("subject_ref", {}), ("tenant", {"tenant": "a\x00b"})])
async def test_a_name_that_cannot_be_taken_is_named(field: str, fields: dict[str, str]) -> None:
    async with running() as world:
        asked = p.Issue("ali\x07ce" if field == "subject_ref" else "alice", "svc-mailbox", **fields)
        with pytest.raises(Malformed) as caught:
            await world.api.issue(asked, world.operator)

    assert caught.value.detail == f"{field} is 1 to 256 printable characters."
    assert caught.value.facts["reason"] == "bad_name"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"epoch": 7}, "at most 1, which revokes everything up to now"),
        ({"subject_ref": "operator"}, "`force`"),
        ({"kid": "0123456789abcdef"}, "GET /v1/keys"),
    ],
)
async def test_a_revocation_that_is_refused_says_what_to_do_instead(fields: dict[str, object], says: str) -> None:
    async with running() as world:
        with pytest.raises(PenstockError) as caught:
            await world.api.revoke(p.Revoke(**fields), world.operator)
        feed = await world.api.revocations(p.GetRevocations())

    assert says in caught.value.detail
    assert (feed.seq, feed.current_epoch) == (0, 0)


@pytest.mark.real_loop
async def test_keys_say_what_they_are_for_and_any_form_of_their_etag_is_known() -> None:
    async with connected() as client:
        first = await client.ask("GET", "/v1/keys")
        etag = first.headers["etag"]
        forms = [etag, f"W/{etag}", f'"other", {etag}', "*", '"other"', etag.strip('"')]
        answers = [await client.ask("GET", "/v1/keys", If_None_Match=form) for form in forms]

    assert {key["use"] for key in first.body["keys"]} == {"sig"}
    assert [answer.status for answer in answers] == [304, 304, 304, 304, 200, 200]


async def test_an_issuer_without_a_policy_says_why_there_is_none(tmp_path: Path) -> None:
    anchor = ed25519.public_of(bytes(32))
    file = tmp_path / "policy.json"
    async with running(options(registry=RegistryOptions(endpoint=str(file), public_key=anchor.hex()))) as world:
        gates = {gate.name: gate for gate in world.inventory.health.gates()}
        world.service.sampler.sample()
        absent = [(gates[name].open, gates[name].why) for name in ("registry", "policy")]
        file.write_bytes(sign(Descriptor(version=1), seed=bytes(31) + b"x"))
        await world.service.registry.step()
        world.service.sampler.sample()
        foreign = gates["policy"].why
        file.write_bytes(sign(Descriptor(version=1), seed=bytes(32)))
        await world.service.registry.step()
        world.service.sampler.sample()

        assert absent == [(False, "no policy: unreachable")] * 2
        assert foreign == "no policy: unsigned"
        assert (gates["policy"].open, gates["policy"].why) == (True, "")


@pytest.mark.real_loop
@pytest.mark.parametrize("path", ["issue", "revoke", "rotate"])
async def test_who_shows_no_token_is_refused_before_the_body_is_asked_for(path: str) -> None:
    async with connected() as client:
        # An answer of 100 first, or a fault of this body, would mean that somebody wanted to read it.
        refused = await client.ask("POST", f"/v1/passport/{path}", "no object", Expect="100-continue")
        verified = await client.ask("POST", "/v1/passport/verify", {"token": "x"})

    assert (refused.status, refused.body["reason"]) == (401, "missing")
    assert refused.headers["www-authenticate"] == "Bearer"
    assert verified.body["ok"] is False


async def test_a_configuration_that_comes_while_the_line_of_changes_is_full_is_followed_all_the_same() -> None:
    bus, wanted = Broadcast("events"), [Limits()]
    async with running(around=Around(bus=bus, limits=lambda: wanted[0])) as world:
        world.service._watcher._revoke = full_line()
        for number, mode in enumerate(("mirror", "require")):
            wanted[0] = Limits(pq_mode=mode)
            bus.publish(ConfigUpdated(number))
            # The sampler, which asks on its own, has the missing key made.
            await until(lambda mode=mode: world.service.book.limits.pq_mode == mode)
            await until(lambda: not world.service.book.lacks_keys)

        assert decode(await world.issue()).root.alg == HYBRID


def full_line() -> Channel[RevokeJob]:
    line: Channel[RevokeJob] = Channel("revoke", capacity=1, full=Full.REFUSE)
    line.try_send(Job(OperatorOwed()))
    return line

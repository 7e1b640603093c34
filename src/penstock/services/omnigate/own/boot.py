"""Asks every service behind the gateway once at the start; under `strict_boot` before the gateway opens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from penstock.contracts import dht as d
from penstock.contracts import interop as i
from penstock.contracts import mailbox as m
from penstock.contracts import passport as p
from penstock.contracts import storage as s
from penstock.contracts.call import Call
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import DownstreamUnavailable, PenstockError
from penstock.services.omnigate.own.downstream import FAULTS, is_absent

if TYPE_CHECKING:
    from penstock.kernel.scope import Scope

BOOT_S: Final = 2.0
"""How long each of them has to answer; all are asked at once."""
Probe = Callable[[], Awaitable[object]]
# Nobody's call, for nothing in particular: being refused is an answer.
_NOBODY: Final = Call("", "strict-boot")
_NOTHING: Final = "b3:" + "0" * 64


def service_probes(
    mailbox: m.Mailbox | None,
    passport: p.Passport | None,
    storage: s.Storage | None,
    dht: d.Dht | None = None,
    interop: i.Interop | None = None,
) -> dict[str, Probe]:
    """Return a probe for each service that is set up."""
    probes: dict[str, Probe] = {}
    if mailbox is not None:
        probes["svc-mailbox"] = lambda: mailbox.topic(m.GetTopic("strict-boot"), _NOBODY)
    if passport is not None:
        probes["svc-passport"] = lambda: passport.keys(p.GetKeys())
    if storage is not None:
        probes["svc-storage"] = lambda: storage.head(s.Head(_NOTHING), _NOBODY)
    if dht is not None:
        probes["svc-dht"] = lambda: dht.status(d.DhtStatusAsk(), _NOBODY)
    if interop is not None:
        probes["svc-interop"] = lambda: interop.endpoints(i.ListEndpoints(), _NOBODY)
    return probes


async def unanswered(probes: Mapping[str, Probe], scope: Scope) -> list[str]:
    """Ask all services at once, and name those that did not answer."""
    asked = {name: scope.start(_answers(probe)) for name, probe in probes.items()}
    return sorted([name for name, answer in asked.items() if not await answer])


async def check_all(probes: Mapping[str, Probe], scope: Scope) -> None:
    """Ask all services at once, and raise with the names of those that did not answer."""
    ill = await unanswered(probes, scope)
    if ill:
        raise DownstreamUnavailable(f"omnigate.strict_boot: {', '.join(ill)} does not answer.")


async def _answers(probe: Probe) -> bool:
    try:
        async with timeout("rpc", BOOT_S):
            await probe()
    except FAULTS as error:
        # What was left out on purpose does not answer either.
        return is_absent(error)
    except PenstockError:
        # It said no, and that is an answer.
        return True
    return True

"""What svc-passport adds to the operator's page: narrowing and explaining tokens, which needs code and no issuer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from penstock.admin.concern import PagePart
from penstock.capability.caveats import Caveat, parse_all
from penstock.capability.explaining import judge_offline, read_question, unjudged
from penstock.capability.judging import make_ready, meant_for
from penstock.capability.making import attenuate
from penstock.capability.token import Token, decode
from penstock.kernel.clock import SYSTEM
from penstock.net.server.route import Route

if TYPE_CHECKING:
    from penstock.contracts.capability import RequestContext
    from penstock.net.message import Request


CaveatAnswer = Literal["allows", "refuses", "elsewhere", "unknown", ""]


class NarrowIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token and what else it shall be held to."""

    token: str
    caveats: tuple[str, ...]


class NarrowOut(msgspec.Struct, frozen=True):
    """The narrower token."""

    token: str
    caveats: tuple[str, ...]


class ExplainIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token, and a request to judge it against: `send images/x`, `get`, `svc-interop:put`; empty for none."""

    token: str
    against: str = ""


class CaveatSaid(msgspec.Struct, frozen=True):
    """One condition of a token, and what it says to the request.

    `elsewhere` is about another service; `unknown` depends on more than the request tells; empty: nothing was asked.
    """

    caveat: str
    says: CaveatAnswer


class ExplainOut(msgspec.Struct, frozen=True):
    """What the token says. `allowed` is null without a request; signature and revocation are not judged here.

    `conditions` are the services it is for and its caveats, in the order in which they are judged.
    """

    subject: str
    tenant: str
    traffic_class: str
    audience: tuple[str, ...]
    issued: int
    expires: int
    tid: str
    kid: str
    conditions: list[CaveatSaid]
    allowed: bool | None
    # Why it is refused, and what to do about it.
    why: str
    hint: str
    # What depends on more than the request says, as method= and ip=.
    if_also: list[str]


def passport_page() -> PagePart:
    """Describe what is added to the page."""
    narrow = Route(
        method="POST",
        path="/tokens/narrow",
        handler=_narrow,
        body=NarrowIn,
        answer=NarrowOut,
        summary="Narrow a token by further caveats.",
        errors=("malformed", "over_limit", "conflict"),
    )
    explain = Route(
        method="POST",
        path="/tokens/explain",
        handler=_explain,
        body=ExplainIn,
        answer=ExplainOut,
        summary="Say what a token is good for, and which caveat decides about a request.",
        errors=("malformed", "over_limit"),
    )
    return PagePart(routes=(narrow, explain))


def _narrow(_request: Request, asked: NarrowIn) -> NarrowOut:
    return NarrowOut(attenuate(asked.token, parse_all(list(asked.caveats))), asked.caveats)


def _explain(_request: Request, asked: ExplainIn) -> ExplainOut:
    return explained(decode(asked.token.strip()), asked.against.strip(), SYSTEM.wall())


def explained(token: Token, against: str, now: float) -> ExplainOut:
    """Return what a token says, and which of it decides about a request. Pure."""
    asked = read_question(against) if against else None
    verdict = None if asked is None else judge_offline(token, asked, now)
    root = token.root
    conditions = [CaveatSaid(f"aud={','.join(root.aud)}", _for_service(root.aud, asked))]
    conditions += [CaveatSaid(str(each), _says(each, asked, now)) for each in token.caveats]
    return ExplainOut(
        subject=root.sub,
        tenant=root.owner,
        traffic_class=root.class_,
        audience=root.aud,
        issued=root.iat,
        expires=min([root.exp, *(each.number for each in token.caveats if each.name == "exp")]),
        tid=root.tid.hex(),
        kid=root.kid,
        conditions=conditions,
        allowed=None if verdict is None else verdict.allowed,
        why="" if verdict is None else verdict.why,
        hint="" if verdict is None else verdict.hint,
        if_also=[] if asked is None else unjudged(token, asked),
    )


def _for_service(audience: tuple[str, ...], asked: RequestContext | None) -> CaveatAnswer:
    if asked is None:
        return ""
    return "allows" if "*" in audience or meant_for(audience)(asked.aud or "") else "refuses"


def _says(caveat: Caveat, asked: RequestContext | None, now: float) -> CaveatAnswer:
    """Judge one caveat alone, as the verdict judges it among all."""
    if asked is None:
        return ""
    if not caveat.counts_at(asked.service):
        return "elsewhere"
    if caveat.name == "exp":
        return "allows" if now < caveat.number else "refuses"
    for check in make_ready((caveat,), caveat.scope):
        value = getattr(asked, check.attribute)
        if value is None:
            return "refuses" if caveat.scope else "unknown"
        return "allows" if check.allows(value) else "refuses"
    return "unknown"

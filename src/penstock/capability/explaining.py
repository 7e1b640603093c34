"""What a token is good for, in words, without a node: nothing about it is proven here. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import msgspec

from penstock.capability.families import AUDIENCES, NAMED_OPS
from penstock.capability.judged_token import granted_ops
from penstock.capability.judging import AttributeCheck, ScopedChecks, judge, make_ready, meant_for
from penstock.capability.token import Token
from penstock.contracts.capability import RequestContext
from penstock.kernel.errors import Forbidden, Malformed

_SERVICE_OF: Final = {
    "send": "svc-mailbox",
    "recv": "svc-mailbox",
    "ack": "svc-mailbox",
    "nack": "svc-mailbox",
    "admin": "svc-mailbox",
    "put": "svc-storage",
    "get": "svc-storage",
    "provide": "svc-dht",
    "find": "svc-dht",
    "issue": "svc-passport",
    "revoke": "svc-passport",
}
# Requests of these kinds have a topic; if the question leaves it out, nobody knows which. All others have none.
_OF_A_TOPIC: Final = frozenset({"send", "recv", "ack", "nack", "admin"})
_ASKED: Final = re.compile(r"(?:(?P<service>[a-z-]+):)?(?P<op>[a-z]+)(?: +(?P<topic>\S+))?")


class TokenVerdict(msgspec.Struct, frozen=True):
    """What became of one question."""

    allowed: bool
    # Why not, and what to do about it.
    why: str = ""
    hint: str = ""


def read_question(text: str) -> RequestContext:
    """Read `send images/x`, `get` or `svc-interop:put` as the request it stands for."""
    found = _ASKED.fullmatch(text.strip())
    op = "" if found is None else found["op"]
    service = None if found is None else found["service"] or _SERVICE_OF.get(op)
    # A service or an op that there is not would pass every token that names none.
    if found is None or op not in _SERVICE_OF or service not in AUDIENCES:
        raise Malformed(
            f"{text[:80]!r} is no request: write an op and, for the mailbox, a topic, as in 'send images/x'.",
            hint=f"There are {', '.join(_SERVICE_OF)}; a service may stand before it, as in svc-interop:put.",
        )
    return RequestContext(aud=service, op=op, topic=found["topic"], service=service)


def judge_offline(token: Token, asked: RequestContext, now: float) -> TokenVerdict:
    """Judge a question on what the token says: its times, audience and caveats. Signatures and revocation are not."""
    exp = min([token.root.exp, *(caveat.number for caveat in token.caveats if caveat.name == "exp")])
    if now >= exp:
        return TokenVerdict(allowed=False, why="It has expired.", hint="Issue a new one.")
    root, caveats = token.root, token.caveats
    audience = AttributeCheck("aud", "aud", _meant(root.aud), f"aud={','.join(root.aud)}")
    checks = [check for check in make_ready(caveats) if _is_told(asked, check.attribute)]
    try:
        judge([audience, *checks, *_scoped(token).at(asked.at)], asked)
    except Forbidden as refused:
        return TokenVerdict(allowed=False, why=refused.detail, hint=str(refused.facts.get("hint", "")))
    if asked.op in NAMED_OPS and not {asked.op, "*"} & granted_ops(root, asked.at):
        return TokenVerdict(allowed=False, why=f"The op {asked.op} must be named in the token, and is not.")
    return TokenVerdict(allowed=True)


def unjudged(token: Token, asked: RequestContext) -> list[str]:
    """Name the caveats that a question says nothing about."""
    return [check.written for check in make_ready(token.caveats) if not _is_told(asked, check.attribute)]


def _is_told(asked: RequestContext, attribute: str) -> bool:
    """Tell whether a question says what a caveat is about. Method, route and address belong to a request alone."""
    return getattr(asked, attribute) is not None or (attribute == "topic" and asked.op not in _OF_A_TOPIC)


def _scoped(token: Token) -> ScopedChecks:
    return ScopedChecks((token.root.caveats, *(block.caveats for block in token.blocks)))


def _meant(audiences: tuple[str, ...]) -> Callable[[str], bool]:
    return (lambda _name: True) if "*" in audiences else meant_for(audiences)

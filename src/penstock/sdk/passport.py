"""svc-passport for users: issue, verify and revoke by the node; narrow and seal without it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import Final

from penstock.contracts import passport as p
from penstock.contracts.capability import RequestContext, TrafficClass
from penstock.kernel.deadline import timeout
from penstock.kernel.errors import Malformed
from penstock.sdk.token_text import clean_token
from penstock.sdk.values import a_text, checked, several

# Prefixes of topics; several are separated by commas.
# What a worker or a producer may do in the content store.
_STORE_OPS: Final = ("get", "put")
_PREFIXES: Final = re.compile(r"[A-Za-z0-9._:/*,-]+")


class PassportClient:
    """The tokens of a node."""

    def __init__(self, passport: p.Passport, *, timeout_s: float = 10.0) -> None:
        self._passport = passport
        self._timeout_s = timeout_s

    async def issue(  # noqa: PLR0913 - what the token says, each by its name
        self,
        subject: str,
        audience: str | Iterable[str],
        *,
        caveats: Iterable[str] = (),
        ttl_s: int = p.TTL_S_DEFAULT,
        tenant: str | None = None,
        traffic_class: TrafficClass = "authed",
        accept_algs: Iterable[str] = (),
    ) -> p.Issued:
        """Issue a token that the client's own capability covers.

        `audience` names the services that accept it. All `caveats` must hold, each as it is written: `op=recv,ack`,
        `svc-mailbox:topic=orders/`. The token's requests spend the quota of `tenant`, and queue in `traffic_class`.
        """
        asked = checked(
            p.Issue,
            subject_ref=subject,
            audience=audience if isinstance(audience, str) else several("audience", audience, "services"),
            caveats=_several("caveats", caveats),
            ttl_s=ttl_s,
            tenant=tenant,
            accept_algs=_several("accept_algs", accept_algs),
            **{"class": traffic_class},
        )
        async with timeout("issue", self._timeout_s):
            return await self._passport.issue(asked)

    async def worker_token(  # noqa: PLR0913 - what a worker does, each by its name
        self,
        subject: str,
        topic: str,
        *,
        send: bool = False,
        store: Iterable[str] = (),
        ttl_s: int = p.TTL_S_DEFAULT,
        tenant: str | None = None,
    ) -> p.Issued:
        """Issue a token for a worker: it takes and settles the messages of `topic`, and nothing else.

        With `send` it may also send there; `store` names what it may do in the content store: `get`, `put`.
        """
        audience, caveats = worker_caveats(topic, send=send, store=store)
        return await self.issue(subject, audience, caveats=caveats, ttl_s=ttl_s, tenant=tenant)

    async def producer_token(
        self,
        subject: str,
        topic: str,
        *,
        store: Iterable[str] = (),
        ttl_s: int = p.TTL_S_DEFAULT,
        tenant: str | None = None,
    ) -> p.Issued:
        """Issue a token for a producer: it sends to `topic`, and nothing else.

        `store` names what it may do in the content store: `put`, `get`.
        """
        audience, caveats = producer_caveats(topic, store=store)
        return await self.issue(subject, audience, caveats=caveats, ttl_s=ttl_s, tenant=tenant)

    async def verify(self, token: str, context: RequestContext | None = None) -> p.Verified:
        """Have the node verify a token; a bad token is an answer, not an error."""
        async with timeout("verify", self._timeout_s):
            asked = p.Verify(a_text("token", token).strip(), context or RequestContext())
            return await self._passport.verify(asked)

    async def verify_batch(self, tokens: Iterable[str]) -> tuple[p.Verified, ...]:
        """Have the node verify up to 512 tokens."""
        async with timeout("verify_batch", self._timeout_s):
            texts = several("verify_batch", tokens, "tokens")
            items = tuple(p.Verify(a_text("token", token).strip()) for token in texts)
            return (await self._passport.verify_batch(p.VerifyBatch(items))).results

    async def revoke(  # noqa: PLR0913 - exactly one target by its name, and why
        self,
        *,
        epoch: int | None = None,
        kid: str | None = None,
        tenant: str | None = None,
        subject_ref: str | None = None,
        tid: str | None = None,
        rid: str | None = None,
        reason: str = "",
        force: bool = False,
    ) -> int:
        """Revoke tokens by exactly one of epoch, kid, tenant, subject_ref, tid and rid; returns the epoch.

        `tid` is one token with all that came of it, `rid` one narrowing of it. The operator himself needs `force`.
        """
        asked = checked(
            p.Revoke,
            epoch=epoch,
            kid=kid,
            tenant=tenant,
            subject_ref=subject_ref,
            tid=tid,
            rid=rid,
            reason=reason,
            force=force,
        )
        async with timeout("revoke", self._timeout_s):
            return (await self._passport.revoke(asked)).current_epoch

    async def issued(self, *, include_ended: bool = False) -> AsyncIterator[p.IssuedToken]:
        """List the tokens that were issued, newest first, and that are still good.

        With `include_ended` those that have expired or were revoked, too. The node reads its audit: it keeps no token.
        """
        page = await self.issued_page(include_ended=include_ended)
        while True:
            for token in page.tokens:
                yield token
            if page.cursor is None:
                return
            page = await self.issued_page(include_ended=include_ended, cursor=page.cursor)

    async def issued_page(
        self, *, include_ended: bool = False, cursor: str | None = None, limit: int = p.ISSUED_MAX
    ) -> p.IssuedList:
        """List one page of what was issued; its cursor leads to the next, and is None on the last."""
        asked = checked(p.ListIssued, all=include_ended, cursor=cursor, limit=limit)
        async with timeout("issued", self._timeout_s):
            return await self._passport.issued(asked)

    async def rotate(self) -> p.Rotated:
        """Sign with a new key from now on."""
        async with timeout("rotate", self._timeout_s):
            return await self._passport.rotate(p.Rotate())

    async def keys(self) -> tuple[p.Jwk, ...]:
        """List the public keys, newest first."""
        async with timeout("keys", self._timeout_s):
            return (await self._passport.keys(p.GetKeys())).keys

    async def revocations(self, since: int = 0) -> p.Revocations:
        """Read what was revoked after `since`."""
        async with timeout("revocations", self._timeout_s):
            return await self._passport.revocations(p.GetRevocations(since))


def _several(name: str, texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts; a single one is meant as a list of one, not as its letters."""
    return (texts,) if isinstance(texts, str) else several(name, texts, "texts")


def worker_caveats(topic: str, *, send: bool, store: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the audiences and the caveats of a worker's token, each caveat scoped to the service it is about."""
    return _scoped(("recv", "ack", "nack", "send") if send else ("recv", "ack", "nack"), topic, store)


def producer_caveats(topic: str, *, store: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the same for a producer's token."""
    return _scoped(("send",), topic, store)


def _scoped(ops: tuple[str, ...], topic: str, store: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    stored = _several("store", store)
    if unknown := [word for word in stored if word not in _STORE_OPS]:
        raise Malformed(f"store takes {', '.join(_STORE_OPS)}, not {', '.join(map(repr, unknown))}.")
    if not _PREFIXES.fullmatch(a_text("topic", topic)):
        raise Malformed(f"topic is a topic, or the beginning of several that ends in /, not {topic!r}.")
    caveats = (f"svc-mailbox:op={','.join(ops)}", f"svc-mailbox:topic={topic}")
    if not stored:
        return ("svc-mailbox",), caveats
    return ("svc-mailbox", "svc-storage"), (*caveats, f"svc-storage:op={','.join(stored)}")


def narrow(token: str, *caveats: str, sealed: bool = False) -> str:
    """Narrow a token offline: the result allows less. `sealed` makes it the last narrowing."""
    # Here, because cryptography is slow to load and most clients never narrow anything.
    from penstock.capability.caveats import parse_all  # noqa: PLC0415
    from penstock.capability.making import attenuate, seal  # noqa: PLC0415

    held = clean_token(a_text("token", token))
    narrowed = attenuate(held, parse_all([a_text("a caveat", one) for one in caveats])) if caveats else held
    return seal(narrowed) if sealed else narrowed

"""The operator's routes for access keys, at the bridge and at the gateway; they need op=admin for svc-interop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta

from penstock.kernel.errors import Malformed, NotReady
from penstock.net.message import Response
from penstock.net.server.route import Route
from penstock.services.interop.sqs.face.access_keys import ALL_QUEUES, OPS, TENANT, AccessKey

if TYPE_CHECKING:
    from penstock.net.message import Request
    from penstock.services.interop.sqs.face.key_ring import KeyRing

REGION: Final = "us-east-1"
_ERRORS: Final = (
    "malformed", "unauthenticated", "expired", "forbidden", "not_found", "conflict", "over_limit", "busy", "not_ready",
    "timeout", "downstream_unavailable", "internal",
)  # fmt: skip
Allow = Callable[["Request", str], Awaitable[None]]


# What is more than msgspec checks here is only described: the handler says it in one sentence for both.
_Topics = Annotated[
    tuple[Annotated[str, Meta(min_length=1, max_length=200, pattern="^sqs/")], ...],
    Meta(extra_json_schema={"minItems": 1}),
]
_Ops = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"enum": list(OPS)})], ...],
    Meta(extra_json_schema={"minItems": 1}),
]


class AccessKeyIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a new key is for."""

    name: Annotated[str, Meta(max_length=64)] = ""
    topics: _Topics = ALL_QUEUES
    ops: _Ops = OPS
    # Whose share of the mailbox counts what is sent with it.
    tenant: Annotated[str, Meta(max_length=64, pattern=TENANT)] = ""


class AccessKeyShown(msgspec.Struct, frozen=True, omit_defaults=True):
    """A key; its secret only where it was just made, or asked for as the environment of a client."""

    access_key_id: str
    name: str
    topics: tuple[str, ...]
    ops: tuple[str, ...]
    made_at: int
    tenant: str = ""
    secret_access_key: str = ""


class AccessKeyList(msgspec.Struct, frozen=True):
    """The keys in force, oldest first."""

    keys: tuple[AccessKeyShown, ...]


class SqsEnvironment(msgspec.Struct, frozen=True):
    """What a client has to be told."""

    endpoint: str
    access_key_id: str
    secret_access_key: str
    region: str = REGION


def shown(key: AccessKey, *, with_secret: bool = False) -> AccessKeyShown:
    """Show a key."""
    secret = key.secret if with_secret else ""
    return AccessKeyShown(key.id, key.name, key.topics, key.ops, key.made_at, key.tenant, secret)


class KeyRoutes:
    """Lists, makes and revokes keys."""

    def __init__(
        self, keys: KeyRing, allow: Allow, endpoint: Callable[[], str], at_gateway: Callable[[Request], str]
    ) -> None:
        """Take who checks the operator's token, and where clients reach the face: at the bridge, and at a gateway."""
        self._keys = keys
        self._allow = allow
        self._endpoint = endpoint
        self._at_gateway = at_gateway

    def routes(self) -> list[Route]:
        """Describe the routes of the bridge's own listener."""
        return self._described(self._env)

    def gateway_routes(self) -> list[Route]:
        """Describe the routes for a gateway: a client is told the gateway's URL, as the operator reached it."""
        return self._described(self._gateway_env)

    def _described(self, env: Callable[[Request], Awaitable[SqsEnvironment]]) -> list[Route]:
        rows: tuple[tuple[str, str, Any, type | None, type | None, str], ...] = (
            (
                "GET",
                "/v1/sqs/keys",
                self._list,
                None,
                AccessKeyList,
                "List the access keys of the SQS face, without secrets.",
            ),
            (
                "POST",
                "/v1/sqs/keys",
                self._create,
                AccessKeyIn,
                AccessKeyShown,
                "Make an access key; its secret is told once.",
            ),
            ("DELETE", "/v1/sqs/keys/{id}", self._revoke, None, AccessKeyShown, "Revoke an access key at once."),
            ("GET", "/v1/sqs/env", env, None, SqsEnvironment, "Tell what an AWS client has to be set to."),
        )
        return [
            Route(
                method=method, path=path, handler=handler, body=body, answer=answer, op="admin", summary=summary,
                errors=_ERRORS,
            )
            for method, path, handler, body, answer, summary in rows
        ]  # fmt: skip

    async def _list(self, request: Request) -> AccessKeyList:
        await self._allow(request, "admin")
        return AccessKeyList(tuple(shown(key) for key in self._keys.all()))

    async def _create(self, request: Request, given: AccessKeyIn) -> Response:
        await self._allow(request, "admin")
        unknown = [op for op in given.ops if op not in OPS]
        if unknown or not given.ops or not given.topics:
            raise Malformed(f"`ops` is one or more of {', '.join(OPS)}, and `topics` one beginning or more.")
        key = await self._keys.create(given.name, ops=given.ops, topics=given.topics, tenant=given.tenant)
        return Response(201, msgspec.json.encode(shown(key, with_secret=True)))

    async def _revoke(self, request: Request) -> AccessKeyShown:
        await self._allow(request, "admin")
        return shown(await self._keys.revoke(request.params["id"]))

    async def _env(self, request: Request) -> SqsEnvironment:
        await self._allow(request, "admin")
        return self.environment()

    async def _gateway_env(self, request: Request) -> SqsEnvironment:
        await self._allow(request, "admin")
        return self._environment(self._at_gateway(request))

    def environment(self) -> SqsEnvironment:
        """Return what a client needs, with the first key."""
        return self._environment(self._endpoint())

    def _environment(self, endpoint: str) -> SqsEnvironment:
        key = self._keys.default()
        if key is None:
            raise NotReady("There is no default access key; make one with penstock sqs key create.", phase="opening")
        return SqsEnvironment(endpoint, key.id, key.secret)

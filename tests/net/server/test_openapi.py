"""The description of a service holds for OpenAPI 3.1, and says what the routes and the errors really are."""

from __future__ import annotations

from typing import Annotated

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from openapi_spec_validator.validation.exceptions import OpenAPIValidationError
from referencing.exceptions import Unresolvable

from penstock.kernel.errors import BY_CODE, Busy, OverLimit, Timeout
from penstock.net.problem import problem
from penstock.net.server.openapi import openapi
from penstock.net.server.route import Route


class Attribute(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    value: str | None = None


class Send(msgspec.Struct, forbid_unknown_fields=True):
    """What a sender hands in."""

    topic: Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
    payload_b64: bytes
    attributes: list[Attribute] = []
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0


class Sent(msgspec.Struct):
    msg_id: str
    at_ms: int


def handler(*_):
    return None


ROUTES = [
    Route(
        method="POST", path="/v1/send", handler=handler, body=Send, answer=Sent, op="mailbox.send", summary="Send.",
        errors=("busy", "conflict", "not_ready"),
    ),
    Route(method="GET", path="/v1/topics/{topic}/peek", handler=handler, answer=list[Sent], errors=("not_found",)),
    Route(method="DELETE", path="/v1/topics/{topic}/peek", handler=handler),
    Route(method="PUT", path="/v1/objects/{key*}", handler=handler, stream_body=True),
    Route(method="GET", path="/healthz", handler=handler, open=True),
    Route(method="GET", path="/", handler=handler, open=True),
]  # fmt: skip


@pytest.fixture
def described() -> dict:
    return openapi("svc-mailbox", "0.1.0", ROUTES)


def test_description_is_valid_openapi_31(described: dict) -> None:
    OpenAPIV31SpecValidator(described).validate()

    assert msgspec.json.decode(msgspec.json.encode(described)) == described
    assert (described["openapi"], described["info"]) == ("3.1.0", {"title": "svc-mailbox", "version": "0.1.0"})


def test_description_of_no_routes_is_valid() -> None:
    assert not list(OpenAPIV31SpecValidator(openapi("empty", "1", [])).iter_errors())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda spec: spec["paths"]["/v1/topics/{topic}/peek"]["get"].pop("parameters"),
        lambda spec: spec["paths"]["/v1/send"]["post"]["responses"]["400"].pop("description"),
        lambda spec: spec["components"]["schemas"].pop("Sent"),
        lambda spec: spec["paths"]["/healthz"]["get"].update(operationId="post_v1_send"),
    ],
)
def test_the_validator_sees_a_spoilt_description(described: dict, spoil) -> None:
    spoil(described)

    with pytest.raises((OpenAPIValidationError, Unresolvable)):
        OpenAPIV31SpecValidator(described).validate()


def test_every_route_is_described_under_its_own_operation_id(described: dict) -> None:
    operations = {
        (method.upper(), path): operation["operationId"]
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }

    assert set(operations) == {(route.method, route.path.replace("*", "")) for route in ROUTES}
    assert len(set(operations.values())) == len(ROUTES)


def test_path_templates_become_required_parameters(described: dict) -> None:
    (topic,) = described["paths"]["/v1/topics/{topic}/peek"]["get"]["parameters"]
    (key,) = described["paths"]["/v1/objects/{key}"]["put"]["parameters"]

    assert (topic["name"], topic["in"], topic["required"]) == ("topic", "path", True)
    assert (key["name"], "slashes" in key["description"]) == ("key", True)


def test_bodies_are_the_handlers_own_structs(described: dict) -> None:
    schemas = described["components"]["schemas"]
    body = described["paths"]["/v1/send"]["post"]["requestBody"]

    assert body["required"] is True
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Send"}
    assert schemas["Send"]["additionalProperties"] is False
    assert schemas["Send"]["required"] == ["topic", "payload_b64"]
    assert {"Attribute", "Sent"} <= set(schemas)
    upload = described["paths"]["/v1/objects/{key}"]["put"]["requestBody"]
    assert list(upload["content"]) == ["application/octet-stream"]


def test_only_open_routes_go_without_a_capability(described: dict) -> None:
    security = {
        (method, path): operation["security"]
        for path, item in described["paths"].items()
        for method, operation in item.items()
    }

    assert {key for key, needs in security.items() if not needs} == {("get", "/healthz"), ("get", "/")}
    assert all(needs in ([], [{"capability": []}]) for needs in security.values())


def test_named_and_implied_errors_stand_at_their_status(described: dict) -> None:
    send = described["paths"]["/v1/send"]["post"]["responses"]
    health = described["paths"]["/healthz"]["get"]["responses"]

    assert set(send) == {"2XX", "400", "401", "403", "409", "413", "429", "503", "default"}
    assert "`busy`" in send["429"]["description"]
    assert "`unauthenticated`" in send["401"]["description"]
    assert "`expired`" in send["401"]["description"]
    assert set(health) == {"2XX", "default"}


def test_retry_after_is_promised_on_429_and_503_and_nowhere_else(described: dict) -> None:
    responses = described["paths"]["/v1/send"]["post"]["responses"]

    assert {status for status, said in responses.items() if "Retry-After" in said["headers"]} == {"429", "503"}
    assert all("X-Corr-ID" in said["headers"] for said in responses.values())


@pytest.mark.parametrize(
    "error", [Busy(queue="work"), Timeout("read", budget_s=1), OverLimit(limit="body", status=507)]
)
def test_real_problems_fit_the_schema(described: dict, error) -> None:
    schema = described["components"]["schemas"]["Problem"]
    body = msgspec.json.decode(problem(error, "c-1").body)

    jsonschema.validate(body, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**body, "code": "surprise"}, schema)


def test_the_problem_schema_knows_the_whole_closed_set_of_codes(described: dict) -> None:
    assert described["components"]["schemas"]["Problem"]["properties"]["code"]["enum"] == sorted(BY_CODE)


def test_an_error_outside_the_closed_set_is_refused() -> None:
    with pytest.raises(ValueError, match="no problem code"):
        openapi("a", "1", [Route(method="GET", path="/", handler=handler, errors=("surprise",))])


def test_paths_that_differ_only_in_names_are_refused() -> None:
    routes = [Route(method=m, path=p, handler=handler) for m, p in (("GET", "/a/{x}"), ("PUT", "/a/{y}"))]

    with pytest.raises(ValueError, match="one path"):
        openapi("a", "1", routes)


def test_a_route_described_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        openapi("a", "1", [Route(method="GET", path="/a", handler=handler)] * 2)


def test_a_struct_named_like_the_problem_is_refused() -> None:
    shadow = msgspec.defstruct("Problem", [("x", int)])

    with pytest.raises(ValueError, match="Problem"):
        openapi("a", "1", [Route(method="GET", path="/a", handler=handler, answer=shadow)])


def test_operation_ids_of_alike_paths_differ() -> None:
    routes = [Route(method="GET", path=path, handler=handler) for path in ("/a/b", "/a_b", "/a/{b}")]

    found = {item["get"]["operationId"] for item in openapi("a", "1", routes)["paths"].values()}
    assert len(found) == 3

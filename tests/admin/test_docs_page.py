"""Every operation and shape of a description is on its page, and nothing in it can become markup."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock.admin.docs_example import example_of
from penstock.admin.docs_page import index_page, rendered, service_page
from penstock.config import Sources, load
from penstock.node.build import SERVICE_NAMES, Node, schema

EVIL = '<img src=x onerror="alert(1)">'


def described() -> dict[str, dict[str, Any]]:
    """Describe a node with every service, that never starts."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    return node._describe()


def test_every_operation_and_shape_of_every_service_is_shown() -> None:
    services = described()
    assert len(services) == len(SERVICE_NAMES) + 1
    index = index_page(services)
    for service, description in services.items():
        page = service_page(service, services)
        assert f'href="/docs/{service}"' in index
        assert all(f"<code>{path}</code>" in page for path in description["paths"])
        assert all(f'id="{name}"' in page for name in description["components"]["schemas"])
        assert page.count("<details") == sum(len(methods) for methods in description["paths"].values())
        dead = set(re.findall(r'href="#([^"]+)"', page)) - set(re.findall(r'id="([^"]+)"', page))
        assert dead == set()


def test_text_from_a_description_is_never_markup() -> None:
    operation = {
        "summary": EVIL,
        "requestBody": {"content": {"application/json": {"schema": {"enum": [EVIL]}}}},
        "responses": {"200": {"description": EVIL}},
    }
    shape = {"description": EVIL, "properties": {EVIL: {"type": EVIL, "description": EVIL}}}
    description = {
        "openapi": "3.1.0", "info": {"version": EVIL}, "paths": {EVIL: {"get": operation}},
        "components": {"schemas": {EVIL: shape}}
    }  # fmt: skip
    pages = index_page({EVIL: description}) + service_page(EVIL, {EVIL: description})

    assert "<img" not in pages
    assert 'onerror="' not in pages


def test_every_operation_has_an_example_and_can_be_tried_unless_it_streams() -> None:
    for service, description in described().items():
        page = service_page(service, {service: description})
        operations = [(path, method) for path, methods in description["paths"].items() for method in methods]
        streams = sum(path.endswith("/stream") for path, _ in operations)

        assert page.count(">Example</p>") == len(operations)
        assert page.count('class="try"') == len(operations) - streams
        assert page.count("It answers as a stream") == streams


def test_a_refusal_names_its_codes_and_the_problem_is_told_once() -> None:
    services = described()
    page = service_page("svc-mailbox", services)
    operations, _, shapes = page.partition("<h2>Shapes</h2>")

    assert operations.count('href="#Problem"') == 1
    assert "<li><code>busy</code>: " in operations
    assert "- `busy`" not in page
    assert 'id="Problem"' in shapes


def test_the_example_of_every_request_body_is_one_that_the_route_takes() -> None:
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    tried = 0
    for part in node.parts:
        schemas = node._describe()[part.supervisor.service]["components"]["schemas"] if part.listener else {}
        for route in part.routes:
            if route.body is None:
                continue
            (shape,), components = msgspec.json.schema_components([route.body], ref_template="#/x/{name}")
            example = example_of(shape, {**schemas, **components})
            msgspec.json.decode(msgspec.json.encode(example), type=route.body)
            tried += 1

    assert tried >= 15


def test_the_example_of_a_send_is_the_form_without_base64() -> None:
    for service in ("svc-mailbox", "omnigate"):
        description = described()[service]
        shape = description["paths"]["/v1/send"]["post"]["requestBody"]["content"]["application/json"]["schema"]

        assert example_of(shape, description["components"]["schemas"]) == {"topic": "orders", "payload": "hello"}


def test_the_example_of_an_object_with_two_forms_is_the_one_without_base64() -> None:
    coded = {"type": "string", "contentEncoding": "base64"}
    shape = {
        "type": "object", "properties": {"topic": {"type": "string"}, "payload_b64": coded, "payload": {}},
        "required": ["topic"], "oneOf": [{"required": ["payload_b64"]}, {"required": ["payload"]}],
    }  # fmt: skip

    assert example_of(shape, {}) == {"topic": "orders", "payload": "hello"}


def test_descriptions_are_drawn_as_paragraphs_lists_and_code() -> None:
    assert rendered("One\nline.\n\n- `a`: x\n- b <i>") == (
        "<p>One line.</p><ul class=plain><li><code>a</code>: x</li><li>b &lt;i&gt;</li></ul>"
    )

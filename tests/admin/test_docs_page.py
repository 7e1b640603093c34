"""Every operation and shape of a description is on its page, and nothing in it can become markup."""

from __future__ import annotations

import re
from typing import Any

from penstock.admin.docs_page import index_page, service_page
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

"""No route of a whole node drops a misspelt field in silence, however deep in a body it stands."""

from __future__ import annotations

import pytest

from penstock.config import Sources, load
from penstock.net.server.endpoint import check_strict_within
from penstock.net.server.route import Route
from penstock.node.build import Node
from penstock.node.services import SERVICE_NAMES, schema


def bodies() -> dict[str, Route]:
    """Name every route that takes a JSON body, of a node with every service."""
    sources = Sources(sets=tuple(f"node.{name}=true" for name in SERVICE_NAMES))
    node = Node(load(schema(), sources), sources, token="psp1_not-a-real-token")
    node.forget()
    routes = ((part.name, route) for part in node.parts for route in part.routes if route.body is not None)
    return {f"{name} {route.method} {route.path}": route for name, route in routes}


BODIES = bodies()


def test_a_node_has_routes_with_bodies():
    assert len(BODIES) > 40


@pytest.mark.parametrize("name", BODIES)
def test_the_body_forbids_unknown_fields_all_the_way_down(name):
    check_strict_within(BODIES[name].body)

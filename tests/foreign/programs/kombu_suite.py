"""kombu's own tests of a transport, from its source, over `penstock://`; the node is found as by a user's program.

Those of priorities, of messages that expire, of event loops and of fanout are not among them: the transport has none of
these, and says so.
"""

from __future__ import annotations

import os
import uuid

import kombu
import pytest
from t.integration.common import BaseExchangeTypes, BaseFailover, BaseMessage, BasicFunctionality

import penstock.transports.kombu  # noqa: F401 - makes penstock:// a broker URL
from penstock.client import NoToken


@pytest.fixture
def connection():
    """Connect with topics of this test's own, so that no test finds what another one left."""
    prefix = f"kombu-suite/{uuid.uuid4().hex}/"
    return kombu.Connection("penstock://", transport_options={"topic_prefix": prefix})


@pytest.fixture
def invalid_connection():
    """Name a node that is not there."""
    return kombu.Connection("penstock:///no/such/directory")


def test_an_empty_token_is_refused_and_the_nodes_own_is_not_used():
    """A token that is given and empty must not make the worker the operator."""
    with pytest.raises(NoToken):
        kombu.Connection("penstock://", transport_options={"token": ""}).connect()


class TestBasicFunctionality(BasicFunctionality):
    """Connecting, publishing, consuming."""


class TestExchangeTypes(BaseExchangeTypes):
    """Direct and topic exchanges."""

    test_fanout = None


class TestMessage(BaseMessage):
    """Acknowledging, rejecting and requeueing."""


class TestFailover(BaseFailover):
    """More than one address; the one test whose addresses differ by their ports is not about this transport."""

    test_failover_switches_to_alternate_url = None

    @pytest.fixture
    def failover_connection(self):
        """Name an address that is not there, and one that is."""
        live = f"penstock://{os.environ['PENSTOCK_DATA_DIR']}"
        return kombu.Connection(f"penstock:///no/such/directory;{live}", connect_timeout=10)

"""A port that somebody else has: who that is, and what can be done."""

from __future__ import annotations

import os
import socket

from penstock.node.port_owner import owner_of
from tests.acceptance.node_process import free_port, penstock


def test_the_owner_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        said = owner_of(mine.getsockname()[1])

    assert said.endswith(f"(process {os.getpid()})")
    assert owner_of(free_port()) == ""


def test_a_node_that_cannot_listen_says_who_does_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        port = mine.getsockname()[1]
        done = penstock("up", "--amnesia", "--ephemeral-ports", "--set", f"mailbox.bind_addr=127.0.0.1:{port}")

    [last] = done.stderr.splitlines()  # the sentence alone, for a program that reads the log too
    assert (done.returncode, done.stdout) == (3, "")
    assert last.startswith(f"penstock: cannot listen on 127.0.0.1:{port}: Address already in use: ")
    assert f"(process {os.getpid()}) listens there. " in last
    assert last.endswith("--ephemeral-ports.")

"""The mailbox's contract suite through the SDK and the gateway, and a whole node behind one URL with TLS."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.client import Client, connect, narrow
from penstock.kernel.clock import LoopClock
from penstock.kernel.errors import Forbidden, Malformed, NotFound, Unauthenticated
from penstock.kernel.inventory import Inventory
from penstock.kernel.supervisor import Supervisor
from penstock.sdk.calling import SdkOptions
from penstock.services.omnigate.config import OmnigateOptions, QuotaOptions
from penstock.services.omnigate.own.mounted import MountedService
from penstock.services.omnigate.service import GatewayBackends, OmnigateService
from penstock.testing import until
from tests.acceptance.node_process import NodeProcess, penstock
from tests.contracts.suite_mailbox import LongPollSuite
from tests.contracts.worlds import World
from tests.net.server.certificates import make_certificate
from tests.sdk.kit import started
from tests.sdk.test_contracts import PatientMailbox, caller_of
from tests.services.mailbox.test_http import LISTENER
from tests.services.mailbox.worlds import WALL, mailbox_options, make_engine
from tests.services.mailbox.worlds import running as running_mailbox

# The suites ask as fast as they can.
NO_QUOTAS = QuotaOptions(default_rps=0, per_ip_rps=0, per_cap_rps=0)


@asynccontextmanager
async def gateway(mailbox) -> AsyncIterator[OmnigateService]:
    """Run a gateway before a mailbox of the same process, as a node does."""
    inventory = Inventory("omnigate", LoopClock(WALL))
    mounted = MountedService(name="svc-mailbox", routes=mailbox.routes)
    options = OmnigateOptions(listener=replace(LISTENER, host=None), quotas=NO_QUOTAS)
    service = OmnigateService(inventory, options, behind=GatewayBackends(mailbox=mailbox.api, mounted=(mounted,)))
    supervisor = Supervisor(inventory, service.children(), service.supervision())
    await supervisor.start()
    try:
        yield service
    finally:
        await supervisor.drain(3.0)
        await service.close()


class TestMailboxThroughTheGateway(LongPollSuite):
    @asynccontextmanager
    async def world(self, **wishes: object) -> AsyncIterator[World]:
        with tempfile.TemporaryDirectory() as directory:
            chosen = mailbox_options(wishes, listener=replace(LISTENER, host=None))
            async with (
                running_mailbox(make_engine("memory", Path(directory)), chosen) as service,
                gateway(service) as gate,
                caller_of("mailbox", gate.listener) as caller,
            ):
                yield World(PatientMailbox(caller, service.reprocessor), service, asyncio.sleep)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory):
    """A node whose gateway speaks TLS, the file of its authority, and the operator's token in a file."""
    home = tmp_path_factory.mktemp("secured")
    certificate = make_certificate(home)
    settings = [f"omnigate.tls.{name}={certificate[f'tls_{name}']}" for name in ("cert_path", "key_path")]
    with NodeProcess("--set", settings[0], "--set", settings[1], data_dir=home / "node") as node:
        (home / "token").write_text(node.ready["token"])
        yield f"https://localhost:{node.port('omnigate')}", certificate["tls_cert_path"], home / "token", node


@asynccontextmanager
async def reached(secured, token: str | None = None) -> AsyncIterator[Client]:
    url, ca, file, _ = secured
    async with connect(url, token=token or file.read_text(), ca=ca, options=SdkOptions(timeout_s=60.0)) as client:
        yield client


@pytest.mark.real_loop(watchdog_s=170)
async def test_one_url_reaches_every_service(secured) -> None:
    data = os.urandom(3 << 20)
    async with reached(secured) as client:
        sent = await client.mailbox.send("reach/one", "x", key="k")
        [got] = await client.mailbox.recv("reach/one", wait_ms=20_000, visibility_ms=60_000)
        await client.mailbox.extend(got, 60_000)
        await client.mailbox.ack(got)
        stored = await client.storage.put(data)
        issued = await client.passport.issue("ada", "svc-mailbox", caveats=["op=send"])

        assert got.msg_id == sent.msg_id
        # Larger than anything the gateway may hold: it goes through in pieces, both ways.
        assert await client.storage.get(stored.address) == data
        assert (await client.passport.verify(issued.token)).ok
        assert (await client.passport.keys())[0].kid == issued.kid
        assert (await client.dht.status()).ready
        assert [letter async for letter in client.mailbox.dead_letters("reach/one")] == []


@pytest.mark.real_loop(watchdog_s=170)
async def test_a_worker_may_have_its_own_token_judged(secured) -> None:
    """The route is open to anyone; the worker's token, which is for other services, does not shut it."""
    async with reached(secured) as operator:
        worker = await operator.passport.worker_token("resizer", "images/", store=("get",))
    async with reached(secured, worker.token) as client:
        judged = await client.passport.verify(worker.token)

        assert judged.ok
        assert await client.passport.keys()
        with pytest.raises(Forbidden):
            await client.passport.issue("eve", "svc-mailbox")


@pytest.mark.real_loop(watchdog_s=170)
async def test_a_consumer_works_through_the_gateway(secured) -> None:
    async with reached(secured) as client:
        done: list[bytes] = []

        async def handle(delivery) -> None:
            done.append(delivery.payload)

        async with started(client.mailbox.run("reach/work", handle, concurrency=4)):
            for n in range(20):
                await client.mailbox.send("reach/work", str(n))
            await until(lambda: len(done) == 20)

        assert sorted(done) == sorted(str(n).encode() for n in range(20))


@pytest.mark.real_loop(watchdog_s=170)
async def test_the_topic_in_a_body_is_judged_by_the_service_behind(secured) -> None:
    """The gate cannot see it: whoever forgets to ask the service opens every topic."""
    async with reached(secured) as operator:
        token = (await operator.passport.issue("ada", "svc-mailbox", caveats=["op=send,recv", "topic=mine/"])).token
    async with reached(secured, token) as client:
        assert (await client.mailbox.send("mine/a", "x")).msg_id
        for refused in (
            client.mailbox.send("yours/a", "x"),
            client.mailbox.recv("yours/a"),
            client.mailbox.topic("yours/a"),
            client.mailbox.purge("mine/a"),
            client.storage.put(b"x"),
        ):
            with pytest.raises(Forbidden):
                await refused
        assert [stats.topic for stats in await client.mailbox.topics()] == ["mine/a"]
    async with reached(secured, narrow(token, "budget.reqs=2")) as counted:
        # Counted once, at the gate: a service that counted again would refuse the second.
        for _ in range(2):
            await counted.mailbox.send("mine/b", "x")


@pytest.mark.real_loop(watchdog_s=170)
async def test_a_services_own_url_works_and_lacks_the_others(secured) -> None:
    node = secured[3]
    async with connect(f"http://127.0.0.1:{node.port('mailbox')}", token=node.ready["token"]) as client:
        assert (await client.mailbox.send("reach/own", "x")).msg_id
        with pytest.raises(NotFound):
            await client.storage.put(b"x")
    async with connect(f"http://127.0.0.1:{node.port('storage')}", token=node.ready["token"]) as client:
        assert await client.storage.get((await client.storage.put(b"x")).address) == b"x"
    async with connect(f"http://127.0.0.1:{node.port('mailbox')}", token="psp1_nobody") as client:
        with pytest.raises(Unauthenticated):
            await client.mailbox.send("reach/own", "x")


def test_the_command_line_reaches_a_node_by_url_and_by_context(secured, tmp_path: Path) -> None:
    url, ca, file, node = secured
    env = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)}
    env.pop("PENSTOCK_DATA_DIR", None)
    where = ("--url", url, "--token-file", str(file), "--ca", str(ca))

    status = penstock("status", "--json", *where, env=env)
    assert (status.returncode, '"ready": true' in status.stdout) == (0, True), status.stderr
    assert penstock("context", "add", "lab", *where, "--use", env=env).returncode == 0
    sent = penstock("send", "reach/cli", "--data", "hello", env=env)
    assert penstock("recv", "reach/cli", "--raw", "--ack", env=env).stdout == "hello", sent.stderr
    # The admin listener itself answers under the same paths.
    admin = ("--url", f"http://127.0.0.1:{node.port('admin')}", "--token-file", str(file))
    assert (
        penstock("config", "reload", *admin, env=env).stdout == "no setting has changed; certificates were read again\n"
    )


def test_only_the_operator_asks_about_the_node(secured) -> None:
    url, ca, file, node = secured
    token = node.ask(
        "passport", "POST", "/v1/passport/issue",
        {"subject_ref": "ada", "audience": ["omnigate"], "caveats": ["op=admin"]}, token=True,
    ).json()["token"]  # fmt: skip
    narrowed = file.with_name("narrowed")
    narrowed.write_text(token)

    refused = penstock("status", "--url", url, "--token-file", str(narrowed), "--ca", str(ca))

    assert (refused.returncode, refused.stdout) == (1, "")
    assert "only the operator's token will do" in refused.stderr


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (("--url", "https://localhost:{gate}"), "Give its CA file"),
        (("--url", "http://localhost:{gate}"), "write https://"),
        (("--url", "https://localhost:{mailbox}", "--ca", "{ca}"), "does not speak TLS"),
        (("--url", "localhost:{gate}"), "begins with http:// or https://"),
        (("--url", "https://localhost:{gate}", "--ca", "nowhere.pem"), "The CA file nowhere.pem cannot be used"),
        (("--url", "https://localhost:{gate}", "--ca", "{ca}"), "No capability was given"),
    ],
)
@pytest.mark.parametrize("command", ["status", "topics"])
def test_a_node_that_cannot_be_spoken_to_says_what_to_do(
    secured, command: str, said: tuple[str, ...], told: str
) -> None:
    _, ca, _, node = secured
    words = [word.format(gate=node.port("omnigate"), mailbox=node.port("mailbox"), ca=ca) for word in said]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}

    refused = penstock(command, *words, env=env)

    assert refused.returncode in (1, 2)
    assert told in refused.stderr


async def test_a_url_without_its_scheme_is_no_directory() -> None:
    with pytest.raises(Malformed, match="http:// or https://"):
        connect("localhost:5306")

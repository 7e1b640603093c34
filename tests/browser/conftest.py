"""One browser and one node for all tests of the page that do not end the node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.node_process import NodeProcess
from tests.browser.chromium import Chromium
from tests.browser.hands import WEBHOOK_SECRET


@pytest.fixture(scope="package")
def browser() -> Iterator[Chromium]:
    with Chromium() as running:
        yield running


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = tmp_path_factory.mktemp("settings")
    (settings / "secret").write_text(WEBHOOK_SECRET)
    (settings / "secret").chmod(0o600)
    config = settings / "penstock.toml"
    config.write_text(f'[interop.providers.github]\nsecrets = ["file:{settings / "secret"}"]\n')
    options = (
        "--config",
        str(config),
        "--set",
        "node.echo=true",
        "--set",
        "node.chaos=true",
        "--set",
        "echo.channels.work=4",
        "--set",
        "echo.workers=1",
    )
    with NodeProcess(*options, data_dir=tmp_path_factory.mktemp("node")) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_tabs_left(browser: Chromium) -> Iterator[None]:
    """Close what a test opened."""
    yield
    browser.close_tabs()

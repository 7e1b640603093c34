"""The generated tables come from the declarations, and a change without a review is found."""

from __future__ import annotations

from pathlib import Path

from penstock.cli import main
from penstock.config import Sources, load
from penstock.node.concurrency import Review
from penstock.node.services import schema
from penstock.node.tables import pages


def written(**sets: str) -> dict[str, str]:
    """Make the pages for a node with these settings."""
    sources = Sources(sets=("node.echo=true", *(f"{key.replace('__', '.')}={value}" for key, value in sets.items())))
    return pages(load(schema(), sources), sources, {"svc-echo": Review("us", "2026-01-01", "")})


def test_every_table_has_its_page() -> None:
    assert {
        "channels.md", "tasks.md", "locks.md", "limits.md", "metrics.md", "errors.md", "routes.md", "config.md",
        "concurrency-svc-echo.md", "concurrency-node.md",
    } <= set(written())  # fmt: skip


def test_a_page_shows_capacity_policy_and_both_ends() -> None:
    page = written()["channels.md"]

    assert "| work | mpsc | Job | 512 | listener | worker | try_send, full: Busy |" in page


def test_the_digest_moves_when_a_declaration_does() -> None:
    def digest(page: str) -> str:
        return next(line for line in page.splitlines() if line.startswith("inventory-digest"))

    before, after = written(), written(echo__channels__work="513")

    assert digest(before["concurrency-svc-echo.md"]) != digest(after["concurrency-svc-echo.md"])
    assert digest(before["concurrency-node.md"]) == digest(after["concurrency-node.md"])


def test_the_concurrency_page_has_pictures_with_a_text_alternative() -> None:
    page = written()["concurrency-svc-echo.md"]

    assert page.count("```mermaid") == 2
    assert page.count("**Text:**") == 2
    assert "listener feeds worker through work (512)" in page
    assert page.startswith("---\nowner: us\n")


def test_check_tells_stale_pages_and_missing_reviews(tmp_path: Path, capsys) -> None:
    folder = str(tmp_path)
    unreviewed = main(["inventory", "docs", "--dir", folder])
    for service in (
        "svc-echo",
        "svc-mailbox",
        "svc-passport",
        "svc-storage",
        "svc-dht",
        "svc-interop",
        "omnigate",
        "node",
    ):
        main(["inventory", "docs", "--dir", folder, "--reviewed", service])
    fresh = main(["inventory", "docs", "--dir", folder, "--check"])
    (tmp_path / "_generated" / "channels.md").write_text("edited by hand")
    stale = main(["inventory", "docs", "--dir", folder, "--check"])

    assert (unreviewed, fresh, stale) == (1, 0, 1)
    assert "channels.md is stale" in capsys.readouterr().err

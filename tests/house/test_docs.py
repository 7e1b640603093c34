"""Whatever a user can name appears in the documentation: API, config key, route, metric, command and lint rule."""

from __future__ import annotations

import re

import pytest

from tests.house.documented import SUBJECTS
from tests.house.tree import Tree, repository


def _code(tree: Tree) -> str:
    """Join what the pages set as code or as a heading: prose that happens to use a word does not document it."""
    pages = [text for path, text in tree.markdown() if path == "README.md" or path.startswith("docs/")]
    spans = re.findall(r"```.*?```|`[^`\n]+`|^ {4}[^\n]+|^#+ [^\n]+", "\n".join(pages), re.DOTALL | re.MULTILINE)
    return "\n".join(spans)


def _undocumented(names: set[str], code: str) -> list[str]:
    return sorted(name for name in names if not re.search(rf"(?<![\w/]){re.escape(name)}(?!\w)", code))


@pytest.mark.parametrize("kind", SUBJECTS)
def test_there_is_something_of_every_kind(kind):
    assert SUBJECTS[kind](), f"no {kind} was found: tests/house/documented.py must learn where they are"


@pytest.mark.parametrize("kind", SUBJECTS)
def test_everything_of_a_kind_is_documented(kind):
    missing = _undocumented(SUBJECTS[kind](), _code(repository()))

    assert not missing, f"{len(missing)} of kind '{kind}' appear in no page: " + ", ".join(missing)


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("# X\n\nThe word Busy in prose.\n", "Busy"),
        ("# X\n\n`BusyBox`\n", "Busy"),
        ("# X\n\n    penstock up\n\nThe word Busy after an example.\n", "Busy"),
        ("# X\n\n`/v1/metrics`\n", "/metrics"),
        ("# X\n\n`queue_depth_max`\n", "queue_depth"),
    ],
)
def test_a_name_that_only_seems_to_be_there_is_missing(page, name):
    assert _undocumented({name}, _code(Tree({"docs/x.md": page}))) == [name]


@pytest.mark.parametrize(
    ("page", "name"),
    [
        ("# X\n\n`Busy` is raised.\n", "Busy"),
        ("# X\n\n## PK001: no lock across an await\n", "PK001"),
        ("# X\n\n| `Channel.try_send` |\n", "Channel"),
        ("# X\n\n    penstock up --json\n", "penstock up"),
        ("# X\n\n```\nGET /metrics\n```\n", "/metrics"),
        ("# X\n\n`queue_depth{queue}`\n", "queue_depth"),
    ],
)
def test_a_name_set_as_code_is_documented(page, name):
    assert _undocumented({name}, _code(Tree({"docs/x.md": page}))) == []

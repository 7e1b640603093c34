"""How a node is found: a URL, a data directory, the environment, a named context; and what wins over what."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from penstock.capability.token import PREFIX
from penstock.client import connect, connect_sync
from penstock.kernel.errors import Malformed, NotFound
from penstock.sdk.contexts import Contexts, NodeContext
from penstock.sdk.discovery import Discovery
from penstock.sdk.errors import NoNode, NoToken
from penstock.sdk.finding import Whereabouts, find
from penstock.sdk.remote_place import RemotePlace
from penstock.sdk.token_text import clean_token

URL = "https://queue.example.org:5306"


@pytest.fixture
def contexts(tmp_path: Path) -> Contexts:
    made = Contexts.of({"XDG_CONFIG_HOME": str(tmp_path)})
    made.put("prod", NodeContext(url=URL, token_file=str(tmp_path / "prod.token")))
    (tmp_path / "prod.token").write_text("psp1_prod\n")
    return made


def env(tmp_path: Path, **said: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path), **said}


def test_what_the_call_says_wins_over_the_environment_and_that_over_the_default(
    tmp_path: Path, contexts: Contexts
) -> None:
    everything = env(tmp_path, PENSTOCK_URL="http://a:1", PENSTOCK_DATA_DIR="/b", PENSTOCK_CONTEXT="prod")
    without_url = env(tmp_path, PENSTOCK_DATA_DIR="/b", PENSTOCK_CONTEXT="prod")
    only_context = env(tmp_path, PENSTOCK_CONTEXT="prod")

    assert find(Whereabouts(where="http://c:3/"), everything).url("mailbox") == "http://c:3"
    assert find(Whereabouts(), everything).url("storage") == "http://a:1"
    assert isinstance(find(Whereabouts(), without_url), Discovery)
    assert find(Whereabouts(), only_context).url("mailbox") == URL
    assert find(Whereabouts(context="prod"), everything).url("mailbox") == URL
    assert isinstance(find(Whereabouts(), env(tmp_path)), Discovery)


def test_the_token_is_the_given_one_else_the_variables_else_the_files(tmp_path: Path, contexts: Contexts) -> None:
    file = tmp_path / "worker.token"
    file.write_text("psp1_file\n")
    variable = env(tmp_path, PENSTOCK_TOKEN="psp1_variable", PENSTOCK_TOKEN_FILE=str(file))
    by_file = env(tmp_path, PENSTOCK_TOKEN_FILE=str(file))

    assert find(Whereabouts(where=URL, token="psp1_given"), variable).token() == "psp1_given"
    assert find(Whereabouts(where=URL, token_file=file), variable).token() == "psp1_file"
    assert find(Whereabouts(where=URL), variable).token() == "psp1_variable"
    assert find(Whereabouts(where=URL), by_file).token() == "psp1_file"
    assert find(Whereabouts(context="prod"), env(tmp_path)).token() == "psp1_prod"
    assert find(Whereabouts(where=URL), env(tmp_path)).token() == ""


@pytest.mark.parametrize("text", ["", "psp1_one psp1_two", "\n"])
def test_a_file_without_one_token_is_named_before_any_call(tmp_path: Path, text: str) -> None:
    file = tmp_path / "empty"
    file.write_text(text)
    (tmp_path / "operator.token").write_text("psp1_operator")

    for where in (URL, tmp_path):
        for said, env in (({"token_file": file}, {}), ({}, {"PENSTOCK_TOKEN_FILE": str(file)})):
            with pytest.raises(NoToken, match=r"the token file .*empty is (empty|several words)"):
                find(Whereabouts(where=where, **said), env)
        with pytest.raises(NoToken, match=r"cannot be read: No such file"):
            find(Whereabouts(where=where, token_file=tmp_path / "nowhere"), {})


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_token_is_refused_and_no_other_is_used_in_its_place(
    tmp_path: Path, contexts: Contexts, monkeypatch, text: str
) -> None:
    """Each token further down the list may belong to somebody who may do more: the operator's is the last."""
    (tmp_path / "operator.token").write_text("psp1_operator")
    (tmp_path / "a.token").write_text("psp1_a")
    rest = env(tmp_path, PENSTOCK_TOKEN_FILE=str(tmp_path / "a.token"), PENSTOCK_CONTEXT="prod")
    monkeypatch.setenv("PENSTOCK_TOKEN_FILE", str(tmp_path / "a.token"))

    with pytest.raises(NoToken, match="The token is empty"):
        connect(tmp_path, token=text)
    with pytest.raises(NoToken, match="The token is empty"):
        connect_sync(tmp_path, token=text)
    for said in (Whereabouts(where=tmp_path), Whereabouts(where=URL), Whereabouts()):
        with pytest.raises(NoToken, match="The variable PENSTOCK_TOKEN is empty"):
            find(said, {**rest, "PENSTOCK_TOKEN": text})
        with pytest.raises(NoToken, match="The variable PENSTOCK_TOKEN_FILE is empty"):
            find(said, {**rest, "PENSTOCK_TOKEN_FILE": text})
    for place in (RemotePlace(URL), Discovery(tmp_path)):
        with pytest.raises(NoToken, match="The token is empty"):
            place.holding(text)
    with pytest.raises(NoToken, match="The variable PENSTOCK_TOKEN is empty"):
        Discovery.from_env({"PENSTOCK_DATA_DIR": str(tmp_path), "PENSTOCK_TOKEN": text})


@pytest.mark.parametrize("around", ["{}\n", "  {}\r\n", "\t{} "])
def test_the_white_space_around_a_token_is_no_part_of_it(tmp_path: Path, around: str) -> None:
    text = around.format("psp1_me")
    (tmp_path / "a.token").write_text(text)

    found = (
        find(Whereabouts(where=URL, token=text), {}),
        find(Whereabouts(where=URL), {"PENSTOCK_TOKEN": text}),
        find(Whereabouts(where=URL, token_file=tmp_path / "a.token"), {}),
        find(Whereabouts(where=tmp_path, token=text), {}),
        find(Whereabouts(where=tmp_path), {"PENSTOCK_TOKEN": text}),
        RemotePlace(URL).holding(text),
        Discovery(tmp_path).holding(text),
    )
    assert [place.token() for place in found] == ["psp1_me"] * len(found)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("psp1_o\x00ne", "a character that no token has"),
        ("psp1_ä", "a character that no token has"),
        ("psp1_one\npsp1_two", "several words"),
        ("Bearer psp1_one", "begins with the word Bearer"),
        (" \n", "is empty"),
        ("one.token", "does not begin with psp1_"),
        ("psp2_one", "does not begin with psp1_"),
    ],
)
def test_what_cannot_be_a_token_is_refused_before_any_call_and_not_repeated(
    tmp_path: Path, text: str, why: str
) -> None:
    for where in (URL, tmp_path):
        with pytest.raises(NoToken, match=why) as given:
            find(Whereabouts(where=where, token=text), {})
        with pytest.raises(NoToken, match="PENSTOCK_TOKEN"):
            find(Whereabouts(where=where), {"PENSTOCK_TOKEN": text})

        assert "one" not in f"{given.value}{given.value.facts}".replace("a token is one", "")


def test_what_the_sdk_takes_for_a_token_is_what_the_issuer_writes() -> None:
    with pytest.raises(NoToken):
        clean_token(PREFIX.removesuffix("_") + "AA")

    assert clean_token(PREFIX + "AA") == PREFIX + "AA"


@pytest.mark.parametrize(
    "text",
    ["ftp://a", "http://", "https://a:port", "http://a:0", "https://me:psp1_secret@a", "https://a?x=1", "https://a#x"],
)
def test_what_is_no_url_of_a_node_is_refused_without_its_secret(text: str) -> None:
    with pytest.raises(Malformed) as refused:
        RemotePlace(text)

    assert refused.value.facts["reason"] == "bad_url"
    assert "psp1_secret" not in refused.value.detail


def test_a_certificate_file_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    for file in (tmp_path / "ca.pem", tmp_path / "nowhere.pem"):
        with pytest.raises(Malformed, match="CA file"):
            RemotePlace(URL, ca=file).context("mailbox")


def test_contexts_are_kept_for_their_user_alone(contexts: Contexts) -> None:
    contexts.put("lab", NodeContext(data_dir="/srv/lab"))
    contexts.use("lab")
    contexts.remove("lab")

    assert list(contexts.all()) == ["prod"]
    assert contexts.current is None
    assert stat.S_IMODE(contexts.file.stat().st_mode) == 0o600
    assert list(contexts.file.parent.iterdir()) == [contexts.file]


def test_an_unknown_context_says_what_is_near(contexts: Contexts) -> None:
    for act in (contexts.get, contexts.use, contexts.remove):
        with pytest.raises(NotFound) as unknown:
            act("prodd")
        assert unknown.value.facts["hint"] == "Did you mean prod?"
    with pytest.raises(Malformed):
        contexts.put("../prod", NodeContext(url=URL))


def test_a_damaged_file_of_contexts_is_left_as_it_is(contexts: Contexts) -> None:
    contexts.file.write_text('{"contexts": 3}')

    for act in (lambda: contexts.get("prod"), lambda: contexts.put("new", NodeContext(url=URL))):
        with pytest.raises(Malformed, match="holds no contexts"):
            act()
    assert contexts.file.read_text() == '{"contexts": 3}'


async def test_connect_takes_a_url_and_dials_nothing() -> None:
    async with connect(URL, token="psp1_x") as client:
        assert client.place.url("mailbox") == client.place.url("storage") == URL


async def test_a_client_says_how_it_is_opened() -> None:
    client = connect(URL)

    with pytest.raises(TypeError, match=r"async with connect\(\.\.\.\).*with connect_sync"), client:
        pass
    await client.close()


def test_another_users_data_directory_is_told_apart_from_an_empty_one(tmp_path: Path, monkeypatch) -> None:
    """A directory that may not be entered; root may enter all, so the answer of the system is played."""

    def refuse(*_args: object, **_options: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)

    with pytest.raises(NoNode, match="belongs to another user"):
        Discovery(tmp_path).url("mailbox")

"""The shell completion: it knows every command and option, because it is made from the parsers themselves."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, main
from penstock.cli.commands.completion import places
from penstock.contracts.mailbox import TopicSettings
from penstock.node.services import schema

ASK = """
source '{script}'
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_penstock
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory):
    """Ask bash what it would offer for the last word."""
    script = tmp_path_factory.mktemp("completion") / "penstock.bash"
    with script.open("w") as out:
        subprocess.run(
            [sys.executable, "-m", "penstock.cli", "completion", "bash"], stdout=out, timeout=120, check=True
        )

    def ask(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("penstock", *words))
        asked = ASK.format(script=script, words=quoted)
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=120, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return ask


OFFERS = pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("d",), {"dht", "dlq", "doctor"}),
        (("dlq", ""), {"delete", "list", "peek", "redrive", "show", "-h", "--help"}),
        (("dlq", "redrive", "--d"), {"--dry-run", "--data-dir"}),
        (("dlq", "redrive", "orders", "--dry"), {"--dry-run"}),
        (("token", "issue", "--class", ""), {"anon", "authed", "internal"}),
        (("completion", ""), {"bash", "zsh", "fish", "-h", "--help"}),
        (("lint", "--st"), {"--statistics"}),
        (("get", "b3:x", "--r"), {"--range"}),
        (("nonsense", "--json"), set()),
        (("up", "--set", "node.log.l"), {f"node.log.level={level}" for level in ("debug", "info", "warn", "error")}),
        (("config", "show", "--set", "node.drain_d"), {"node.drain_deadline="}),
        (("topic", "set", "orders", "pau"), {"paused=true", "paused=false"}),
        (("topic", "set", "orders", "dedup.w"), {"dedup.window_s="}),
        (("topic", "unset", "orders", "max_a"), {"max_attempts"}),
    ],
    # In one order: the processes that run tests side by side must call them the same.
    ids=lambda words: " ".join(sorted(words)) if isinstance(words, set) else " ".join(words),
)


@OFFERS
def test_bash_offers_what_the_parser_takes(completed, words: tuple[str, ...], offered: set[str]) -> None:
    assert set(completed(*words)) == offered


def test_every_command_is_offered(completed) -> None:
    assert set(completed("")) == {*COMMANDS, "-h", "--help", "--version"}


def test_every_command_has_its_options() -> None:
    found = {place.at: {word for word, _ in place.options} for place in places()}

    assert {f" {name}" for name in COMMANDS} <= set(found)
    assert "--json" in found[" send"] & found[" dlq list"] & found[" tour"] & found[" lint"] & found[" up"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_the_same_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out

    for place in places():
        assert f"'{place.at}'" in script or f'"{place.at}"' in script
        for word, _ in (*place.commands, *place.options):
            assert word.lstrip("-") in script
    if shutil.which(shell):
        subprocess.run([shell, "-n", "/dev/stdin"], input=script, text=True, timeout=120, check=True)


# --- the other shells, run


def needs(shell: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


def written(shell: str, file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    with file.open("w") as out:
        subprocess.run([sys.executable, "-m", "penstock.cli", "completion", shell], stdout=out, timeout=120, check=True)
    return file


@pytest.fixture(scope="module")
def fish(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """Ask fish what it would offer, with what it says of each word."""
    home = tmp_path_factory.mktemp("fish")
    script = written("fish", home / "penstock.fish")

    def ask(*words: str) -> dict[str, str]:
        asked = ["fish", "--no-config", "-c", f"source {script}; complete -C 'penstock {' '.join(words)}'"]
        env = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, check=True, env=env, cwd=home)
        assert done.stderr == ""
        return dict(line.partition("\t")[::2] for line in done.stdout.splitlines())

    return ask


@needs("fish")
@OFFERS
def test_fish_offers_what_the_parser_takes(fish, words: tuple[str, ...], offered: set[str]) -> None:
    """Options only once a dash is there, as fish does for every command."""
    wanted = {word for word in offered if words[-1].startswith("-") or not word.startswith("-")}

    assert {word for word in fish(*words) if not word.endswith((".fish", "/"))} == wanted


@needs("fish")
def test_fish_says_what_each_word_does_as_the_help_does(fish) -> None:
    assert fish("dlq", "redrive", "--d")["--data-dir"] == "the node's data directory"


class Zsh:
    """An interactive zsh on its own terminal: a tab lists the choices, and the line is then run, which does nothing."""

    SETUP = (
        "PS1='' PS2='' LISTMAX=1000; unsetopt prompt_cr prompt_sp list_beep; penstock() {{ : }}\n"
        "autoload -Uz compinit; compinit -u -D; {load}; bindkey '^I' list-choices; print REA''DY\n"
    )

    def __init__(self, home: Path, load: str) -> None:
        self.terminal, inner = pty.openpty()
        env = {**os.environ, "HOME": str(home), "TERM": "dumb", "COLUMNS": "200", "LINES": "200", "LC_ALL": "C.UTF-8"}
        self._zsh = subprocess.Popen(
            ["zsh", "-f", "-i"], stdin=inner, stdout=inner, stderr=inner, env=env, cwd=home, start_new_session=True
        )
        os.close(inner)
        self._say(self.SETUP.format(load=load), until="READY")

    def offers(self, *words: str) -> set[str]:
        shown = self._say(f"penstock {' '.join(words)}\t\nprint DO''NE\n", until="DONE")
        lines = [line for line in re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", shown).splitlines() if "penstock" not in line]
        listed = [line for line in lines if line.strip() and "DO''NE" not in line and "DONE" not in line]
        return {word for line in listed for word in re.split(r" -- ", line)[0].split()}

    def _say(self, text: str, *, until: str) -> str:
        os.write(self.terminal, text.encode())
        shown = b""
        while until.encode() not in shown:
            assert select.select([self.terminal], [], [], 80)[0], f"zsh is silent after {shown!r}"
            shown += os.read(self.terminal, 1 << 16)
        return shown.decode()

    def close(self) -> None:
        self._zsh.kill()
        self._zsh.wait(80)
        os.close(self.terminal)


@pytest.fixture(scope="module", params=["sourced", "from fpath"])
def zsh(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    home = tmp_path_factory.mktemp("zsh")
    script = written("zsh", home / "functions" / "_penstock")
    load = f"source {script}" if request.param == "sourced" else f"fpath=({script.parent} $fpath); compinit -u -D"
    shell = Zsh(home, load)
    yield shell
    shell.close()


@needs("zsh")
def test_zsh_offers_every_command_at_the_first_tab(zsh) -> None:
    assert zsh.offers("") == {*COMMANDS, "-h", "--help", "--version"}


@needs("zsh")
@OFFERS
def test_zsh_offers_what_the_parser_takes(zsh, words: tuple[str, ...], offered: set[str]) -> None:
    assert zsh.offers(*words) == offered


@needs("bash")
def test_bash_offers_the_topics_of_the_node_where_one_may_stand(tmp_path: Path) -> None:
    """The node is asked by `penstock topics --names`; here a function stands for it."""
    script = written("bash", tmp_path / "completion.bash")
    asked = (
        f"source {script}; penstock() {{ [ \"$1 $2\" = 'topics --names' ] && printf 'orders/eu\\norders/us\\n'; }}; "
        "COMP_WORDS=(penstock recv orders/e); COMP_CWORD=2; _penstock; echo ${COMPREPLY[@]}; "
        "COMP_WORDS=(penstock token orders); COMP_CWORD=2; _penstock; echo none: ${COMPREPLY[@]}"
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout == "orders/eu\nnone:\n"


@needs("bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("up", "--set", "node.echo", "="), ["true", "false"]),
        (("up", "--set", "node.echo", "=", "t"), ["true"]),
        (("topic", "set", "orders", "on_expiry", "=", "d"), ["dlq", "drop"]),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else None,
)
def test_bash_completes_a_value_behind_the_sign_at_which_it_splits_words(
    completed, words: tuple[str, ...], offered: list[str]
) -> None:
    assert completed(*words) == offered


def test_every_setting_of_the_configuration_and_of_a_topic_is_offered() -> None:
    found = {place.at: place for place in places()}
    keys = {word.partition("=")[0] for word in dict(found[" up"].choices)["--set"]}
    settings = {word.partition("=")[0].partition(".")[0] for word in found[" topic set"].settings}

    assert keys == set(schema().keys)
    assert settings == set(TopicSettings.__struct_fields__) == set(found[" topic unset"].settings)

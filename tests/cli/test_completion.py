"""The shell completion: it knows every command and option, because it is made from the parsers themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from penstock.cli import COMMANDS, main
from penstock.cli.completion import places

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
        subprocess.run([sys.executable, "-m", "penstock.cli", "completion", "bash"], stdout=out, timeout=60, check=True)

    def ask(*words: str) -> list[str]:
        quoted = " ".join(f"'{word}'" for word in ("penstock", *words))
        asked = ASK.format(script=script, words=quoted)
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return ask


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("d",), {"dlq"}),
        (("dlq", ""), {"list", "peek", "redrive", "-h", "--help"}),
        (("dlq", "redrive", "--d"), {"--dry-run", "--data-dir"}),
        (("dlq", "redrive", "orders", "--dry"), {"--dry-run"}),
        (("token", "issue", "--class", ""), {"anon", "authed", "internal"}),
        (("completion", ""), {"bash", "zsh", "fish", "-h", "--help"}),
        (("lint", "--st"), {"--statistics"}),
        (("get", "b3:x", "--r"), {"--range"}),
        (("nonsense", "--json"), set()),
    ],
    # In one order: the processes that run tests side by side must call them the same.
    ids=lambda words: " ".join(sorted(words)) if isinstance(words, set) else " ".join(words),
)
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
        subprocess.run([shell, "--no-execute", "/dev/stdin"], input=script, text=True, timeout=60, check=True)

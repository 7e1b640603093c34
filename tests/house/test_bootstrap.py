"""`scripts/environment` makes its environment on a Debian with python3 and nothing else, or says what is missing."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.house.bare_debian import BareDebian

INSTALL = "install -y --no-install-recommends python3-venv"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Start the script twice at once on a bare Debian, as root."""
    debian = BareDebian(tmp_path_factory.mktemp("debian"))
    both = [debian.start(), debian.start()]
    said = [process.communicate(timeout=300)[1] for process in both]
    return debian, [process.returncode for process in both], said


def test_missing_modules_are_installed_after_fetching_the_lists(made):
    debian, codes, said = made

    assert codes == [0, 0], said
    assert debian.log("apt") == [INSTALL, "update", INSTALL]


def test_two_at_once_make_one_environment(made):
    _, _, said = made

    assert "".join(said).count("Making .venv") == 1
    assert "".join(said).count("The environment is ready") == 1


def test_the_environment_holds_the_project_itself(made):
    debian, _, _ = made

    done = subprocess.run(
        [debian.checkout / ".venv/bin/python", "-c", "import penstock; print(penstock.__file__)"],
        env={}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.strip() == str(debian.checkout / "src/penstock/__init__.py")


def test_a_second_run_does_nothing_and_says_nothing(made):
    debian, _, _ = made
    stamp = next(debian.checkout.glob(".venv/.made-from-*"))
    before = stamp.stat().st_mtime_ns

    assert debian.run() == (0, "")
    assert stamp.stat().st_mtime_ns == before


def test_sources_are_compiled_and_again_after_a_change(made):
    debian, _, _ = made
    source = debian.checkout / "src/penstock/__init__.py"
    compiled = next((source.parent / "__pycache__").glob("__init__.*.pyc"))
    compiled.unlink()

    debian.run()
    untouched = compiled.exists()
    changed = (debian.checkout / ".venv/.compiled").stat().st_mtime + 2
    os.utime(source, (changed, changed))
    debian.run()

    assert not untouched
    assert compiled.exists()


def test_a_changed_lock_is_installed_again_into_the_same_environment(made):
    debian, _, _ = made
    lock = debian.checkout / "requirements.lock"
    lock.write_text(lock.read_text() + "# changed\n")

    code, said = debian.run()

    assert code == 0
    assert "Installing" in said
    assert "Making .venv" not in said


def test_without_rights_it_says_in_one_sentence_what_to_install(tmp_path):
    debian = BareDebian(tmp_path, uid=1000)

    code, said = debian.run()

    assert code == 1
    assert said.splitlines()[-1] == (
        "penstock: python3 has no venv module; install it with 'apt-get install python3-venv' and run this again."
    )
    assert debian.log("apt") == []


def test_without_apt_it_says_in_one_sentence_what_to_install(tmp_path):
    code, said = BareDebian(tmp_path, apt=False).run()

    assert code == 1
    assert "install it with 'apt-get install python3-venv'" in said.splitlines()[-1]


def test_sudo_is_used_where_it_asks_no_password(tmp_path):
    debian = BareDebian(tmp_path, uid=1000, sudo=True)
    debian.command("apt-get", "#!/bin/sh\nexit 100\n")

    code, said = debian.run()

    assert code == 1
    assert said.splitlines()[-1] == "penstock: apt-get could not install python3-venv; the lines above say why."
    assert debian.log("sudo")[:2] == ["-n true", f"-n env DEBIAN_FRONTEND=noninteractive apt-get {INSTALL}"]


def test_an_old_python_is_named_in_one_sentence(tmp_path):
    debian = BareDebian(tmp_path)
    debian.command("python3", "#!/bin/sh\nexit 1\n")

    code, said = debian.run()

    assert code == 1
    assert said.startswith("penstock: Python 3.11 or newer is needed")
    assert said.count("\n") == 1


def test_a_broken_environment_is_made_again(tmp_path):
    debian = BareDebian(tmp_path)
    python = debian.checkout / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/nowhere/python3")

    code, said = debian.run()

    assert code == 0, said
    assert python.exists()

"""The pytest mark explores a test, prints the token of a failure, and replays it."""

from __future__ import annotations

import asyncio

import pytest

ARGS = ("-p", "no:cacheprovider", "-p", "penstock.weave.plugin")

WRONG = """
    import asyncio
    import pytest

    @pytest.mark.weave(mode="any")
    async def test_order(tmp_path):
        seen = []

        async def note(name):
            seen.append(name)

        await asyncio.gather(note(1), note(2))
        assert seen == [1, 2]
"""


@pytest.mark.weave(strategy="hash")
async def test_a_marked_test_is_explored() -> None:
    seen: list[int] = []

    async def note(number: int) -> None:
        seen.append(number)

    await asyncio.gather(note(1), note(2))
    assert sorted(seen) == [1, 2]


def test_a_failure_prints_its_token_which_replays(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WRONG)
    result = pytester.runpytest_inprocess(*ARGS)
    result.assert_outcomes(failed=1)
    token = next(line for line in result.outlines if "--schedule=" in line).partition("--schedule=")[2].split()[0]

    again = pytester.runpytest_inprocess(*ARGS, f"--schedule={token}")
    again.assert_outcomes(failed=1)
    again.stdout.fnmatch_lines(["*one schedule*"])

    right = pytester.runpytest_inprocess(*ARGS, "--schedule=any.da8a")
    right.assert_outcomes(passed=1)


def test_the_mark_belongs_on_an_async_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.weave
        def test_plain():
            pass
        """
    )
    result = pytester.runpytest_inprocess(*ARGS)

    assert result.ret == pytest.ExitCode.USAGE_ERROR

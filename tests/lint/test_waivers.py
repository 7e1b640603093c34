"""A waiver lifts one finding for a reason; without a reason or a finding it is a fault itself."""

from __future__ import annotations

from penstock.lint.config import Allowance, LintSettings
from penstock.lint.waivers import read_waivers
from tests.lint.sources import check, codes


def test_a_waiver_is_kept_with_its_reason_and_counted():
    report = check("loop.call_soon(step)  # lint: allow PK006 the scheduler is made of callbacks\n")

    assert report.findings == []
    assert [waiver.reason for _, waiver in report.waived] == ["the scheduler is made of callbacks"]


def test_a_waiver_lifts_only_the_rule_it_names():
    assert codes("loop.call_soon(step)  # lint: allow PK005 wrong rule\n") == ["PK006", "PK902"]


def test_a_reason_ends_where_another_comment_begins():
    [waiver] = read_waivers("x = 1  # lint: allow PK006 because  # noqa: E1\n")

    assert waiver.reason == "because"


def test_a_waiver_behind_another_comment_counts():
    [waiver] = read_waivers("x = 1  # noqa: E1  # lint: allow PK006 because\n")

    assert waiver.codes == ("PK006",)


def test_text_in_a_string_is_no_waiver():
    assert read_waivers('x = "# lint: allow PK006 because"\n') == []


def test_a_waiver_on_its_own_line_is_about_the_next_line_of_code():
    [waiver] = read_waivers("# lint: allow PK006 because\n# more\n\nx = 1\n")

    assert waiver.target == 4


def test_a_waiver_in_the_body_does_not_lift_a_finding_of_the_head():
    source = """
        import threading
        lock = threading.Lock()
        async def f(work):
            with lock:
                await work()  # lint: allow PK001 in the wrong place
    """

    assert codes(source) == ["PK001", "PK902"]


def test_a_waiver_of_a_rule_that_did_not_run_is_not_stale():
    settings = LintSettings(select=("PK001", "PK9"))

    assert codes("x = 1  # lint: allow PK006 because\n", settings) == []


def test_a_waiver_beside_an_allowance_is_stale():
    allowance = Allowance(codes=("PK006",), paths=("src",), reason="built of callbacks")
    source = "loop.call_soon(step)  # lint: allow PK006 because\n"

    assert codes(source, LintSettings(allow=(allowance,))) == ["PK902"]


def test_a_waiver_cannot_lift_the_rules_about_waivers():
    assert codes("x = 1  # lint: allow PK006, PK902 because\n") == ["PK902", "PK901"]

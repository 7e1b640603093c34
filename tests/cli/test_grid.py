"""Tables on a terminal: they fit its width, no word is broken, and nothing is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from penstock.cli.grid import grid

ID = "01a1ecb7-06df-7000-8000-0000516fcdab"
LETTERS = [[ID, "orders/eu", "03:33:00", "rejected:ValueError", "2", "invalid literal for int()"]]
HEADS = ["msg_id", "topic", "died", "reason", "tries", "error"]
TO_RIGHT = [False, False, False, False, True, False]


def test_a_table_that_fits_is_one_line_a_row() -> None:
    made = grid(HEADS, LETTERS, 200, TO_RIGHT)

    assert made.heading.split() == HEADS
    assert len(made.lines) == 1
    assert made.lines[0] == f"{ID}   orders/eu   03:33:00   rejected:ValueError       2   {LETTERS[0][-1]}"


def test_what_has_no_room_follows_its_row_by_name() -> None:
    made = grid(HEADS, LETTERS, 80, TO_RIGHT)

    assert made.heading.split() == HEADS[:4]
    assert made.lines == [
        f"{ID}  orders/eu  03:33:00  rejected:ValueError",
        "    tries 2   error invalid literal for int()",
    ]


@pytest.mark.parametrize("word", [ID, "f" * 64, "abcdef-ghijkl-mnopqr-stuvwx-yzabcd-efgh"])
def test_an_id_stays_in_one_piece(word: str) -> None:
    made = grid(["delivery", "message"], [["1a1ecd92c96-735" + "x" * 20, word]], 40, [False, False])

    assert [line.strip() for line in made.lines[1:]] == ["message", word]


def test_columns_move_together_before_one_has_to_go() -> None:
    made = grid(["a", "b", "c"], [["x" * 20, "y" * 20, "z" * 20]], 64, [False] * 3)

    assert made.lines == ["  ".join(["x" * 20, "y" * 20, "z" * 20])]


def test_a_long_name_gets_a_line_of_its_own_and_the_figures_stay_under_their_headings() -> None:
    made = grid(["topic", "ready"], [["t" * 90, "7"], ["short", "12345"]], 40, [False, True])

    assert made.lines[0] == "t" * 90
    assert [len(line) for line in made.lines[1:]] == [40, 40]
    assert made.lines[1].split() == ["7"]


@given(
    rows=st.lists(st.lists(st.text("aé漢/ ", max_size=70), min_size=4, max_size=4), min_size=1, max_size=4),
    width=st.integers(40, 220),
)
def test_nothing_is_cut_whatever_the_width(rows: list[list[str]], width: int) -> None:
    made = grid(["one", "two", "three", "four"], rows, width, [False, True, False, True])
    said = [word for line in made.lines for word in line.split()]

    for row in rows:
        for cell in row:
            assert [word for word in cell.split() if word not in said] == []


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_figures_of_topics_fit_a_terminal(width: int) -> None:
    heads = ["topic", "ready", "inflight", "delayed", "dead", "size", "oldest", "sent/s", "acked/s"]
    rows = [["webhooks/github", "12345", "0", "0", "6372", "872.3 KiB", "33m 28s", "14.9", "0.0"]]
    made = grid(heads, rows, width, [False] + [True] * 8)

    assert max(map(cell_len, [made.heading, *made.lines])) <= width

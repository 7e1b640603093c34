"""The errors of the SDK: every one that a program may want to catch has its name in `penstock.client`."""

from __future__ import annotations

from penstock import client as sdk
from penstock.kernel.errors import BY_CODE, PenstockError
from penstock.net.calls.answer import AnswerTooLarge
from penstock.sdk import errors


def raised_by_the_sdk() -> set[type[Exception]]:
    """Return what a node can answer, and what only a client says."""
    own = {each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, Exception)}
    return {PenstockError, AnswerTooLarge, *BY_CODE.values(), *own}


def test_every_error_is_imported_from_one_place() -> None:
    wanted = raised_by_the_sdk()

    assert {each.__name__ for each in wanted} - set(sdk.__all__) == set()
    assert [each for each in wanted if getattr(sdk, each.__name__) is not each] == []

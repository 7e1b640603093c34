"""The late dataclass behaves as the standard library's does; every rule is tried on both."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from dataclasses import KW_ONLY, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from penstock.kernel.dataclass import dataclass as late


def shapes(dataclass: Any) -> SimpleNamespace:
    """Define the same classes with either decorator."""

    @dataclass(frozen=True, slots=True)
    class Point:
        """A value."""

        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list)
        ORIGIN: ClassVar[int] = 0

        def far(self) -> int:
            return self.x + self.y

    @dataclass(frozen=True, slots=True)
    class Point3(Point):
        z: int = 3

    @dataclass(slots=True)
    class Counter:
        name: str
        _: KW_ONLY
        step: int = 1
        hidden: bytes = field(default=b"", repr=False)
        total: int = field(init=False, default=0)

        def __post_init__(self) -> None:
            self.total += self.step

    @dataclass(frozen=True, kw_only=True)
    class Options:
        limit_s: float
        name: str = "it"

    @dataclass(eq=False)
    class Thing:
        at: int = field(default=7)

    @dataclass
    class Named:
        at: int

        def __repr__(self) -> str:
            return "a name of its own"

        def __hash__(self) -> int:
            return 5

    return SimpleNamespace(Point=Point, Point3=Point3, Counter=Counter, Options=Options, Thing=Thing, Named=Named)


@pytest.fixture(params=[late, dataclasses.dataclass], ids=["late", "standard"])
def of(request):
    """Give classes by either decorator; none of them is used yet."""
    return shapes(request.param)


def test_values_come_from_arguments_defaults_and_factories(of):
    one, two = of.Point(1), of.Point(1, y=5, tags=["a"])

    assert (one.x, one.y, one.tags, one.far()) == (1, 2, [], 3)
    assert (two.y, two.tags, of.Point.ORIGIN) == (5, ["a"], 0)
    assert of.Point(1).tags is not of.Point(1).tags
    assert (of.Point3(1).z, of.Point3(1, 2, [], 9).z, of.Point3(4).far()) == (3, 9, 6)


def test_keyword_only_fields_and_what_follows_the_constructor(of):
    counter = of.Counter("a", step=4)

    assert (counter.step, counter.total) == (4, 4)
    with pytest.raises(TypeError):
        of.Counter("a", 4)
    with pytest.raises(TypeError):
        of.Options(1.0)
    assert of.Options(limit_s=1.0).name == "it"


@pytest.mark.parametrize("arguments", [((), {}), ((1, 2, [], 4), {}), ((1,), {"w": 1}), ((1,), {"x": 1})])
def test_wrong_arguments_are_refused_by_name(of, arguments):
    positional, named = arguments

    with pytest.raises(TypeError, match=r"__init__\(\)"):
        of.Point(*positional, **named)


def test_equality_hash_and_repr(of):
    assert of.Point(1, 2, ()) == of.Point(1, 2, ())
    assert of.Point(1, 2, ()) != of.Point(1, 3, ())
    assert of.Point(1) != of.Point3(1)
    assert hash(of.Point(1, 2, ())) == hash(of.Point(1, 2, ()))
    assert repr(of.Counter("a", hidden=b"secret")).endswith("Counter(name='a', step=1, total=1)")
    assert repr(of.Point(1)).endswith("Point(x=1, y=2, tags=[])")


def test_without_eq_objects_are_equal_to_themselves_alone(of):
    thing = of.Thing()

    assert thing != of.Thing()
    assert len({thing, of.Thing(), thing}) == 2
    assert of.Thing.at == 7


def test_what_can_change_has_no_hash(of):
    with pytest.raises(TypeError, match="unhashable"):
        hash(of.Counter("a"))


def test_methods_of_the_class_itself_stay(of):
    assert repr(of.Named(1)) == "a name of its own"
    assert hash(of.Named(1)) == 5
    assert of.Named(1) == of.Named(1)


@pytest.mark.parametrize("name", ["name", "new"])
def test_frozen_objects_refuse_every_change(of, name):
    options = of.Options(limit_s=1.0)

    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(options, name, 3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(options, name)
    assert options.name == "it"


def test_slots_leave_no_room_for_more(of):
    assert not hasattr(of.Point(1), "__dict__")
    assert of.Point3.__slots__ == ("z",)
    with pytest.raises(AttributeError):
        of.Counter("a").other = 1


def test_a_subclass_that_is_no_dataclass_keeps_the_fields_guarded(of):
    class Wider(of.Options):
        pass

    wider = Wider(limit_s=1.0)
    wider.more = 1

    with pytest.raises(dataclasses.FrozenInstanceError):
        wider.name = "other"
    assert wider.more == 1


def test_fields_replace_and_asdict(of):
    assert dataclasses.is_dataclass(of.Point)
    assert [each.name for each in dataclasses.fields(of.Point3)] == ["x", "y", "tags", "z"]
    assert dataclasses.replace(of.Point(1), y=9).y == 9
    assert dataclasses.asdict(of.Point(1)) == {"x": 1, "y": 2, "tags": []}


def test_the_signature_is_that_of_the_fields(of):
    assert list(inspect.signature(of.Counter).parameters) == ["name", "step", "hidden"]
    assert inspect.signature(of.Point3).parameters["z"].default == 3


def test_patterns_match_by_position(of):
    match of.Point(1, 2):
        case of.Point(x, y):
            assert (x, y) == (1, 2)
        case _:
            raise AssertionError("no match")
    assert of.Options.__match_args__ == ()


def test_objects_can_be_copied(of):
    point = of.Point(1, 5, ["a"])

    assert copy.copy(point) == point
    assert copy.deepcopy(point).tags is not point.tags


@late(frozen=True, slots=True)
class Stored:
    """One that pickle finds by its name."""

    x: int


def test_frozen_objects_with_slots_can_be_pickled():
    assert pickle.loads(pickle.dumps(Stored(3))) == Stored(3)


def test_a_standard_dataclass_may_extend_a_late_one():
    unused = shapes(late)

    @dataclasses.dataclass(frozen=True, slots=True)
    class Wider(unused.Point):
        w: int = 4

    assert repr(Wider(1)).endswith("Wider(x=1, y=2, tags=[], w=4)")


def test_nothing_is_compiled_before_the_first_use():
    unused = shapes(late)
    before = unused.Point.__init__

    unused.Point(1)

    assert unused.Point.__init__ is not before
    assert unused.Point.__init__.__code__.co_varnames[:3] == ("_self", "x", "y")


def test_threads_that_meet_at_the_first_use_all_get_an_object():
    for _ in range(50):
        unused = shapes(late)
        gate, made = threading.Barrier(4), []

        def make(gate: Any = gate, made: Any = made, unused: Any = unused) -> None:
            gate.wait(10)
            made.append(unused.Point(1) == unused.Point(1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

        assert made == [True] * 4


def test_mutable_defaults_and_unknown_options_are_refused():
    with pytest.raises(ValueError, match="mutable default"):
        late(type("Bad", (), {"__annotations__": {"x": "list"}, "x": []}))
    with pytest.raises(TypeError, match="does not take order"):
        late(order=True)(type("Bad", (), {"__annotations__": {"x": "int"}}))

"""The checks of the codec and the stream rules can fail: a small wrong twin for each, and the test that catches it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.kernel.errors import PenstockError
from penstock.wire.oap import frame as oap
from penstock.wire.oap.frame import Frame, FrameDecoder
from penstock.wire.oap.stream import StreamTable
from tests.wire.oap import test_frame, test_stream


class TrustingDecoder(FrameDecoder):
    """Looks at a length only when the whole header is there."""

    def feed(self, data):
        self._buffer += data
        if len(self._buffer) < oap.HEADER_BYTES:
            return []
        held, self._buffer = bytes(self._buffer), bytearray()
        return super().feed(held)


class ForgetfulDecoder(FrameDecoder):
    """Loses the good frames before a fault."""

    def feed(self, data):
        frames = super().feed(data)
        if self._fault is not None:
            raise self._fault
        return frames


class RisingDecoder(FrameDecoder):
    """Lets a limit be raised again."""

    def lower(self, frame_bytes_max):
        self.frame_bytes_max = frame_bytes_max


class EagerDecoder(FrameDecoder):
    """Returns a frame before all of it is there."""

    def feed(self, data):
        frames = super().feed(data)
        if not frames and len(self._buffer) >= oap.HEADER_BYTES:
            frames = [Frame(oap.REQ, 0)]
        return frames


class EndlessTable(StreamTable):
    """Has no window."""

    def __init__(self, **options):
        super().__init__(**{**options, "max_inflight": 1 << 30})


class DeafTable(StreamTable):
    """Does not notice a second START."""

    def receive(self, frame):
        self._inbound.pop(frame.corr_id, None) if frame.flags & oap.START else None
        return super().receive(frame)


class QuarrelsomeTable(StreamTable):
    """Answers refusals with refusals."""

    def _refuse(self, frame, error):
        return type(super()._refuse(frame, error))(frame.corr_id, error, answer=True)


class LeakyTable(StreamTable):
    """Keeps the bytes of what it settled."""

    def settle(self, corr_id):
        return self._inbound.pop(corr_id, None) is not None


DECODERS = [
    (TrustingDecoder, test_frame.test_length_is_refused_as_soon_as_its_four_bytes_are_known),
    (ForgetfulDecoder, test_frame.test_frames_before_a_fault_are_returned_and_the_fault_stays),
    (RisingDecoder, test_frame.test_negotiated_limit_only_goes_down),
    (EagerDecoder, test_frame.test_memory_held_for_a_frame_is_what_arrived_not_what_was_announced),
    (EagerDecoder, test_frame.test_split_at_every_byte_gives_the_same_frames),
]
TABLES = [
    (EndlessTable, test_stream.test_window_is_64_and_more_is_busy),
    (DeafTable, test_stream.test_second_start_is_400_and_closes_the_stream),
    (QuarrelsomeTable, test_stream.test_resp_before_req_is_400_and_refusals_are_not_refused_in_turn),
    (LeakyTable, test_stream.test_budget_is_taken_as_bytes_arrive_and_given_back_when_settled),
]
CAUGHT = (AssertionError, PenstockError, pytest.fail.Exception)


@pytest.mark.parametrize(("twin", "check"), DECODERS, ids=lambda v: v.__name__)
def test_wrong_decoder_is_caught(twin: type, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_frame, "FrameDecoder", twin)

    with pytest.raises(CAUGHT):
        check()


@pytest.mark.parametrize(("twin", "check"), TABLES, ids=lambda v: v.__name__)
def test_wrong_table_is_caught(twin: type, check: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_stream, "StreamTable", twin)

    with pytest.raises(CAUGHT):
        check()

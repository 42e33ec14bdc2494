"""Frames between container and workers survive any cutting of the stream."""

from __future__ import annotations

import socket

from hypothesis import given
from hypothesis import strategies as st

from local_aws.lmi.workers.connection import Frame, FrameReader, receive

CONTENTS = st.lists(st.tuples(st.none() | st.text(max_size=8), st.binary(max_size=64)), max_size=4)
FRAMES = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=3), CONTENTS), max_size=4
)


@given(FRAMES, st.integers(1, 40))
def test_frames_come_out_as_they_went_in(
    messages: list[tuple[dict[str, str], list[tuple[str | None, bytes]]]], step: int
) -> None:
    """However the bytes are cut, each frame arrives once, whole and in order."""
    stream = b"".join(Frame(head, contents).pack() for head, contents in messages)
    reader = FrameReader()
    frames = [frame for start in range(0, len(stream), step) for frame in reader.feed(stream[start : start + step])]
    assert [(frame.head, list(frame.contents)) for frame in frames] == messages


def test_receiving_ends_when_the_other_end_closes() -> None:
    """A worker's loop ends when the container closes the connection."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.sendall(Frame({"id": 1}).pack())
        ours.close()
        assert [frame.head for frame in receive(theirs, FrameReader())] == [{"id": 1}]

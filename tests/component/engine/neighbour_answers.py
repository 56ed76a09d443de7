"""Neighbour's answers to the sessions and links that the router begins for streams."""

from tests.peer.frames import Frame, source, target
from tests.peer.talk import MANY, say

FIRST = 100  # channel of the first answer, above the channels that the neighbour begins itself
CREDIT = 250


class NeighbourAnswers:
    """Answers on one connection."""

    def __init__(self) -> None:
        self.channels: dict[int, int] = {}  # local channel by the router's channel, for sessions that the router began

    def to(self, frame: Frame) -> bytes:
        """Return the answer to a frame; empty if none is needed."""
        performative = frame.performative
        if frame.name == "begin" and performative is not None and performative.remote_channel is None:
            ours = self.channels[frame.channel] = FIRST + len(self.channels)
            return say(
                "begin",
                channel=ours,
                remote_channel=frame.channel,
                next_outgoing_id=0,
                incoming_window=MANY,
                outgoing_window=MANY,
            )
        ours = self.channels.get(frame.channel, 0)
        if not ours or performative is None:
            return b""
        if frame.name == "attach":
            return say(
                "attach",
                channel=ours,
                name=performative.name,
                handle=performative.handle,
                role=True,
                source=source(capabilities="qd.router-data"),
                target=target(capabilities="qd.router-data"),
            ) + say(
                "flow",
                channel=ours,
                next_incoming_id=0,
                incoming_window=MANY,
                next_outgoing_id=0,
                outgoing_window=MANY,
                handle=performative.handle,
                delivery_count=0,
                link_credit=CREDIT,
            )
        if frame.name == "detach":
            return say("detach", channel=ours, handle=performative.handle, closed=True)
        return b""

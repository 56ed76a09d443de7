"""Channels of a connection: its sessions by the channel numbers of both sides (AMQP 1.0 part 2, 2.5.1)."""
from sluice.router.amqp.object_table cimport number_get

from sluice.router.amqp import codec
from sluice.router.amqp.errors import FRAMING_ERROR, RESOURCE_LIMIT, RemoteError


cdef class ConnectionChannels(ConnectionOutput):
    def __cinit__(self):
        self.channels = ObjectTable()
        self.local_channels = ObjectTable()
        self.remote_channel_max = CHANNEL_MAX_LIMIT

    cdef Channel channel_of(self, uint16_t number):
        return <Channel>number_get(self.channels, number)

    cdef bint begun(self, uint16_t number, bytes ours, list items) except *:
        """Match the peer's begin on channel `number` with this side's begin on channel `ours` (encoded). False: it
        answers none."""
        cdef Channel channel = None
        value = codec.decode_one(ours)
        if isinstance(value, int) and 0 <= value <= 0xFFFF:
            channel = number_get(self.local_channels, value)
        if channel is None or not channel.unanswered:
            return False
        channel.unanswered = False
        channel.remote_channel = number
        self.channels.put(number, channel)
        channel.answered(number, items)
        return True

    def assign_channel(self, Channel channel not None, remote_channel):
        """Give a session a local channel: the peer's number if that is free. remote_channel None: the peer has not
        begun yet."""
        cdef uint32_t number = remote_channel or 0
        cdef uint32_t most = self.remote_channel_max
        if remote_channel is None and self.local_channel_max < most:
            most = self.local_channel_max  # the peer has to answer on a channel, too
        if number > most or number_get(self.local_channels, number) is not None:
            number = self.local_channels.lowest_free()
        if number > most:
            raise RemoteError("connection", RESOURCE_LIMIT, "no channel is left for another session")
        self.local_channels.put(number, channel)
        self.open_channels += 1
        channel.local_channel = number
        channel.remote_channel = remote_channel or 0

    cdef int forget_channel(self, Channel channel) except -1:
        self.open_channels -= 1
        return self.local_channels.remove(channel.local_channel)

    def channels_open(self):
        """Return the number of sessions begun and not ended. For a lost connection, the number it had."""
        return self.open_channels

    def channels_left(self):
        """Return the number of sessions that either side may still begin."""
        return min(self.local_channel_max, self.remote_channel_max) + 1 - self.open_channels


cdef object above_channel_max(number, limit):
    # routing-semantics.md 1.5; brokers-and-edge.md W-7.
    return RemoteError("connection", FRAMING_ERROR, f"remote channel {number} is above negotiated channel_max {limit}.")

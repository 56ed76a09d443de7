"""Transport over WebSocket (RFC 6455; brokers-and-edge.md H-5), above TCP or TLS.

This end is a server that answers the request of a client, or a client. A client of an HTTPS listener may request a
page instead. The supervisor answers such a request, and the octets pass through this transport, since the worker has
the TLS connection.
"""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from sluice.router.websocket.frames cimport (
    BINARY, CLOSE, HEADER_MOST, NO_CODE, NORMAL, PONG, FrameReader, apply_mask, write_header,
)
from sluice.workers.poller cimport READABLE, WRITABLE
from sluice.workers.transport.base cimport (
    HANDSHAKE_DONE, HANDSHAKE_FAILED, HANDSHAKE_GOES_ON, HANDSHAKE_WAITS, Handshake, Transport,
)

import os

from sluice.router.websocket.handshake import (
    answer_upgrade, requests_websocket, check_upgrade_response, make_key, request,
)
from sluice.router.websocket.http import END, MAX_HEAD, HeadError

cdef extern from "sys/socket.h" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    int MSG_DONTWAIT

cdef extern from "sys/random.h" nogil:
    ssize_t getrandom(void* data, size_t size, unsigned int flags)

cdef extern from *:
    """
    #include <errno.h>
    #define errno_set(value) (errno = (value))
    """
    void errno_set(int value) noexcept nogil

cdef enum:
    PIECE = 65536              # largest payload of a frame that this router sends
    KEYS = 1024                # octets of masks that are drawn at once
    PAGE_READS_PER_WAKE = 4           # largest number of reads of a page in one wake
    HANDSHAKE_MS = 10000       # time for the handshake of a client
    # Time for a page, from its request until the client has taken the last octet. The supervisor ends its part after
    # ANSWER_TIME (supervisor/web/connection_limits.py), which is less, and counts that.
    PAGE_MS = 35000

# Buffer for encoded frames, which are sent at once as far as the socket takes them. One buffer serves the whole
# process: its loop has one thread.
cdef uint8_t[PIECE + HEADER_MOST] staged
cdef uint8_t[KEYS] keys
cdef size_t keys_used = KEYS


cdef int random_mask(uint8_t* mask) except -1:
    """Write a mask of four unpredictable octets, twice, to the eight octets at `mask`."""
    global keys_used
    if keys_used == KEYS:
        if getrandom(keys, KEYS, 0) != KEYS:
            raise OSError(errno, "getrandom")
        keys_used = 0
    memcpy(mask, keys + keys_used, 4)
    memcpy(mask + 4, keys + keys_used, 4)
    keys_used += 4
    return 0


class ServerSide:
    """Server end of a WebSocket handshake.

    site: the listener. encrypted: the client must use TLS. pages(octets): called with the octets of a client that
    requests a page; returns the descriptor that the answer comes from. None: the request is already known to be one
    for WebSocket.
    """

    def __init__(self, site, encrypted=False, pages=None):
        self.site = site
        self.encrypted = encrypted
        self.pages = pages


class ClientSide:
    """Client end of a WebSocket handshake that requests `path`. encrypted: over TLS."""

    def __init__(self, host, port, path, encrypted=False):
        self.encrypted = encrypted
        self.key = make_key()
        self.request = request(host, port, path, self.key)


cdef class WebSocketTransport(Transport):
    """Transport over WebSocket.

    below: a transport of the same descriptor and connection, which was not begun. side: ServerSide or ClientSide.
    """

    def __cinit__(self, loop, fd, connection, Transport below not None, side not None):
        self.below = below
        self.side = side
        self.client = isinstance(side, ClientSide)
        self.encrypted = side.encrypted
        self.reader = FrameReader(not self.client)
        self.head = bytearray()
        self.page = -1

    def __dealloc__(self):
        free(self.left)

    def begin(self, bytes octets not None=b""):
        self.head += octets
        Transport.begin(self)
        if not self.client and self.fd >= 0 and not self.established:
            self.loop.call_at(self.loop.scheduler.now + HANDSHAKE_MS, self.too_slow)

    def channel_binding(self):
        return self.below.channel_binding()

    def revoked(self, context):
        return self.below.revoked(context)

    def too_slow(self):
        """Close the connection if its handshake, or the page that it requested, is not complete in time."""
        if self.fd < 0 or self.established:
            return
        if self.page >= 0 and self.loop.scheduler.now < self.page_due:
            self.loop.call_at(self.page_due, self.too_slow)
        else:
            self.lost()

    # -- handshake --------------------------------------------------------------------------------------------------

    cdef Handshake handshake(self) except *:
        cdef Handshake state
        cdef ssize_t got
        cdef Py_ssize_t end
        if not self.secured:
            state = self.secure()
            if state != HANDSHAKE_DONE:
                return state
        if self.page >= 0:
            return self.forward_page()
        if not self.drain():
            return HANDSHAKE_GOES_ON if errno == EAGAIN else HANDSHAKE_FAILED
        if self.refused:
            return HANDSHAKE_FAILED
        if self.client and not self.asked:
            return self.ask()
        while True:
            end = self.head.find(END)
            if end >= 0 or len(self.head) >= MAX_HEAD:
                return self.take_head(end + len(END) if end >= 0 else len(self.head))
            got = self.below.read_some(staged, MAX_HEAD - len(self.head))
            if got == 0 or (got < 0 and errno != EAGAIN and errno != EINTR):
                return HANDSHAKE_FAILED
            if got < 0:
                return HANDSHAKE_GOES_ON
            self.head += staged[:got]

    cdef Handshake secure(self) except *:
        """Advance the handshake of the transport below, and check that TLS is used where it is required."""
        cdef Handshake state = HANDSHAKE_DONE if self.below.plain else self.below.handshake()
        if state == HANDSHAKE_DONE:
            self.below.established = self.secured = True
            self.tls = self.below.tls
            if self.encrypted and self.tls is None:
                self.connection.transport_failed("Client connection unencrypted - forbidden", "WebSocket")
                return HANDSHAKE_FAILED
        return state

    cdef Handshake ask(self) except *:
        cdef bytes octets = self.side.request
        self.asked = True
        self.put(<const uint8_t*>octets, len(octets))
        return HANDSHAKE_GOES_ON

    cdef Handshake take_head(self, Py_ssize_t size) except *:
        """Process the HTTP head, which is complete or too long to wait for."""
        cdef bytes octets
        if not self.client and not self.loop.scheduler.take_admission_step(1):
            return HANDSHAKE_WAITS
        head, self.early = bytes(self.head[:size]), bytes(self.head[size:]) or None
        side, self.side = self.side, None
        self.head = None
        if self.client:
            try:
                check_upgrade_response(head, side.key)
            except HeadError as error:
                self.connection.transport_failed(str(error), "WebSocket")
                return HANDSHAKE_FAILED
            return HANDSHAKE_DONE
        if side.pages is not None and not requests_websocket(head):
            self.page = side.pages(head + (self.early or b""))
            if self.page < 0:
                return HANDSHAKE_FAILED
            self.page_due = self.loop.scheduler.now + PAGE_MS
            self.connection.limit_handshake(0)  # the connection never opens, and has the time limit of a page instead
            self.loop.add(self.page, self.page_ready)
            return HANDSHAKE_GOES_ON
        answered = answer_upgrade(head, side.site)
        octets = answered.octets
        if not answered.accepted:
            self.refused = True
            self.connection.transport_failed(answered.refusal, "WebSocket")
        if octets and not self.put(<const uint8_t*>octets, len(octets)):
            return HANDSHAKE_GOES_ON if self.refused and errno == EAGAIN else HANDSHAKE_FAILED
        return HANDSHAKE_DONE if answered.accepted else HANDSHAKE_FAILED

    # -- a page -----------------------------------------------------------------------------------------------------

    def page_ready(self):
        """Forward a part of the page, or its end, from the supervisor."""
        if self.fd < 0:
            return
        try:
            self.shake()
        except Exception as fault:
            self.ended_by(fault)

    cdef Handshake forward_page(self) except *:
        """Forward the supervisor's answer in parts. Octets that the client sends meanwhile have no meaning and are not
        read."""
        cdef ssize_t got
        for _ in range(PAGE_READS_PER_WAKE):
            if not self.drain():
                if errno != EAGAIN:
                    return HANDSHAKE_FAILED
                break
            got = recv(self.page, staged, PIECE, MSG_DONTWAIT)
            if got == 0:
                return HANDSHAKE_FAILED    # complete
            if got < 0:
                if errno == EAGAIN or errno == EINTR:
                    break
                return HANDSHAKE_FAILED
            if not self.put(staged, got) and errno != EAGAIN:
                return HANDSHAKE_FAILED
        self.loop.poller.change(self.page, 0 if self.left_size else READABLE)
        return HANDSHAKE_GOES_ON

    # -- reading ----------------------------------------------------------------------------------------------------

    cdef ssize_t raw(self, uint8_t* data, size_t size) except? -2:
        """Read octets of the peer; those that were received with the head come first."""
        cdef size_t got
        if self.early is None:
            return self.below.read_some(data, size)
        got = min(size, <size_t>len(self.early) - self.early_at)
        memcpy(data, <const uint8_t*>self.early + self.early_at, got)
        self.early_at += got
        if self.early_at == <size_t>len(self.early):
            self.early = None
        return got if got else self.below.read_some(data, size)

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        cdef ssize_t got
        cdef Py_ssize_t payload
        if self.reader.closed:
            return 0
        if self.reader.fault:
            self.connection.transport_failed(
                f"the peer sent an invalid frame, answered with close code {self.reader.fault}", "WebSocket")
            return 0
        got = self.raw(data, size)
        if got <= 0:
            return got
        payload = self.reader.decode(data, got)
        if self.reader.ping_size >= 0:
            self.connection.mark_dirty()
        if payload == 0:
            errno_set(EAGAIN)
            return -1
        return payload

    cdef bint pending(self) except -1:
        return self.early is not None or self.reader.fault or self.reader.closed \
            or (not self.below.plain and self.below.pending())

    # -- writing ----------------------------------------------------------------------------------------------------

    cdef size_t frame(self, uint8_t opcode, const uint8_t* data, size_t size) except 0:
        """Encode a frame into `staged`; return its length."""
        cdef uint8_t[8] mask
        cdef int header
        if self.client:
            random_mask(mask)
            header = write_header(staged, opcode, size, mask)
            apply_mask(staged + header, data, size, mask)
        else:
            header = write_header(staged, opcode, size, NULL)
            memcpy(staged + header, data, size)
        return header + size

    cdef bint put(self, const uint8_t* data, size_t size) except -1:
        """Send encoded octets, and keep the rest if the socket does not take all. Nothing may be kept already. False:
        not all sent, see errno."""
        cdef ssize_t sent = self.below.write_some(data, size)
        cdef int failure = errno
        if sent == <ssize_t>size:
            return True
        if sent < 0:
            if failure != EAGAIN and failure != EINTR:
                return False
            sent = 0
        self.left_size = size - sent
        self.left_at = 0
        self.left = <uint8_t*>malloc(self.left_size)
        if self.left is NULL:
            self.left_size = 0
            raise MemoryError(f"{size} octets to send")
        memcpy(self.left, data + sent, self.left_size)
        errno_set(EAGAIN)
        return False

    cdef bint drain(self) except -1:
        """Send the octets that the socket did not take before. False: some are left, see errno."""
        cdef ssize_t sent
        while self.left_size:
            sent = self.below.write_some(self.left + self.left_at, self.left_size)
            if sent < 0:
                if errno == EINTR:
                    errno_set(EAGAIN)
                return False
            self.left_at += sent
            self.left_size -= sent
            if self.left_size == 0:
                free(self.left)
                self.left = NULL
        return True

    cdef bint pong(self) except -1:
        """Answer the last ping. False: the answer is kept."""
        cdef size_t size
        if self.reader.ping_size < 0:
            return True
        size = self.frame(PONG, self.reader.ping, self.reader.ping_size)
        self.reader.ping_size = -1
        return self.put(staged, size)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        """Send octets in frames; a part of the last frame may be kept."""
        cdef size_t taken = 0
        cdef size_t piece
        if not self.drain() or not self.pong():
            return -1
        while taken < size:
            piece = min(size - taken, <size_t>PIECE)
            taken += piece
            if not self.put(staged, self.frame(BINARY, data + taken - piece, piece)):
                return taken if errno == EAGAIN else -1
        return taken

    cdef bint unsent(self) except -1:
        return self.left_size > 0 or self.reader.ping_size >= 0

    cdef uint32_t wants(self) except? 0xFFFF:
        cdef uint32_t events = WRITABLE if self.left_size else 0
        if self.page >= 0:
            return events
        if not self.below.plain:
            events |= self.below.wants()
        return events if self.established else events | READABLE

    # -- the end ----------------------------------------------------------------------------------------------------

    cdef int shutdown(self) except -1:
        """Send a close frame, unless part of another frame is still to be sent."""
        cdef uint8_t[2] code
        cdef int number = self.reader.fault or self.reader.closed or NORMAL
        if self.established and self.left_size == 0:
            if number == NO_CODE:
                number = NORMAL
            code[0] = <uint8_t>(number >> 8)
            code[1] = <uint8_t>number
            self.below.write_some(staged, self.frame(CLOSE, code, 2))
        if not self.below.plain:
            self.below.shutdown()
        return 0

    cdef int close_descriptor(self) except -1:
        return self.below.close_descriptor()

    cdef int close(self) except -1:
        if self.page >= 0:
            self.loop.poller.remove(self.page)
            self.loop.transports[self.page] = None
            os.close(self.page)
            self.page = -1
        Transport.close(self)
        self.below.connection = None
        self.below.fd = -1
        return 0

"""Interface of a transport, and the code that all transports share.

A subclass reads and writes octets (`read_some`, `write_some`). A transport that is not `plain` may need a handshake
before AMQP, may keep octets in buffers of its own after a read or a write, and may need other events than the
connection:

    handshake()   advance the handshake; called at the beginning and on any event, until it is done or has failed
    pending()     True if read_some can return buffered octets without an event. The loop reads again before it sleeps.
    unsent()      True if octets that write_some took are not in the socket yet. write_some(NULL, 0) sends them, and the
                  descriptor stays open until they are sent.
    wants()       events that the handshake or the write in progress needs (READABLE, WRITABLE): a TLS library may
                  have to read before it can continue to write
    shutdown()    notify the peer, without waiting, that the descriptor is about to be closed
"""
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from sluice.router.amqp.block cimport BLOCK_LEAST, block_give, block_take
from sluice.router.amqp.buffer cimport buffer_release, buffer_used, read32
from sluice.router.amqp.connection cimport PAUSE_TURN
from sluice.router.amqp.spec cimport FRAME_HEADER
from sluice.router.stats.counters cimport totals
from sluice.workers.fairness cimport BULK_OCTETS, ESTABLISHED_MS, READ_BUFFER_OCTETS, WRITES_PER_TURN
from sluice.workers.poller cimport READABLE, WRITABLE

import os

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    int getsockopt(int fd, int level, int name, void* value, socklen_t* size)

cdef extern from "<netinet/in.h>" nogil:
    int IPPROTO_TCP

cdef extern from "<netinet/tcp.h>" nogil:
    int TCP_INFO
    struct tcp_info:
        uint32_t tcpi_rtt

cdef enum:
    # A peer with this many unread octets is not read until it reads. Clients that read only now and then leave far
    # fewer.
    UNREAD_OCTETS = 4194304
    UNREAD_MS = 5000           # time that the last octets of an ended connection wait for a peer that does not read
    LARGE_FRAME = 65536        # longer frames are read into a buffer of their own
    FRAME_ROOM = 65536         # least free octets for a read behind an incomplete frame


cdef class TransportHost:
    """Services of a loop that its transports use."""

    def __dealloc__(self):
        free(self.room)

    cdef int enlarge_read_buffer(self, size_t size) except -1:
        """Enlarge the buffer into which all sockets are read. It holds at least the largest frame received."""
        cdef uint8_t* room = <uint8_t*>malloc(size)
        if room is NULL:
            raise MemoryError(f"{size} octets to read into")
        free(self.room)
        self.room = room
        self.read_buffer_size = size
        if size > READ_BUFFER_OCTETS:
            self.note_memory_use()
        return 0

    cpdef void note_memory_use(self):
        """Note that much memory was used, or that a large object has ended."""

    def call_at(self, uint64_t due, what, connection=None):
        """Call `what` at `due` (ms of the scheduler's clock). An exception closes `connection`."""
        raise NotImplementedError

    def schedule_tick(self, Transport transport not None):
        """Schedule the next tick of a connection."""
        raise NotImplementedError


cdef class Transport:
    """Connection over a descriptor. Owner: the loop."""

    def __cinit__(self, TransportHost loop not None, int fd, Connection connection not None, *args, **kwargs):
        self.loop = loop
        self.fd = fd
        self.connection = connection
        connection.owner = self
        self.interest = READABLE

    def __dealloc__(self):
        free(self.rest)

    # -- implemented by subclasses ----------------------------------------------------------------------------------

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        """Return the number of octets read; 0: end of stream, -1: none now (errno EAGAIN) or an error."""
        raise NotImplementedError

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        """Return the number of octets taken; -1: none now (errno EAGAIN) or an error."""
        raise NotImplementedError

    cdef Handshake handshake(self) except *:
        return HANDSHAKE_DONE

    cdef bint pending(self) except -1:
        return False

    cdef bint unsent(self) except -1:
        return False

    cdef uint32_t wants(self) except? 0xFFFF:
        return 0

    cdef int shutdown(self) except -1:
        return 0

    cdef int close_descriptor(self) except -1:
        # Remove the descriptor from the poller first: closing it is not enough while another process has the socket.
        # The other process is the supervisor, if it has not run since the hand-over, or the connection's next worker.
        # Events of that socket would be reported for the next connection with this descriptor.
        self.loop.poller.remove(self.fd)
        if self.told():
            self.loop.lingering.take(self.fd)
        else:
            os.close(self.fd)
        return 0

    cdef bint told(self) noexcept:
        """True if the final output of the connection was sent and the peer may not have received it yet."""
        cdef Connection connection = self.connection
        return (connection.finished and not connection.silent and not connection.close_received
                and not buffer_used(&connection.out))

    def channel_binding(self):
        """Return the octets that a login may be bound to (`tls-exporter`), equal at both ends; None: there are none.
        """
        return None

    def revoked(self, context):
        """True if a revocation list of a `TlsContext` names a certificate that the peer has shown."""
        return False

    def round_trip(self):
        """Return the round-trip time in µs as measured by TCP; 0: unknown."""
        cdef tcp_info info
        cdef socklen_t size = sizeof(info)
        if self.fd < 0 or getsockopt(self.fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0:
            return 0
        return info.tcpi_rtt

    # -- start -----------------------------------------------------------------------------------------------------

    def begin(self, bytes octets not None=b""):
        """Start the transport. octets: read from the descriptor before."""
        if not self.plain and not self.established:
            self.shake()
        if octets and self.fd >= 0:
            self.preload(octets)
        if self.fd >= 0:
            self.schedule()

    def preload(self, bytes octets not None):
        """Process octets that were read before. A transport that decodes its input overrides this and buffers them."""
        cdef size_t size = len(octets)
        if self.loop.read_buffer_size < size:
            self.loop.enlarge_read_buffer(size)
        memcpy(self.loop.room, <const uint8_t*>octets, size)
        self.feed(size)

    cdef int wait_for_admission(self) except -1:
        """Queue this transport for admission and stop watching its socket. The sockets of a connection burst would
        fill each list of events, and delay the events of others."""
        if not self.waits:
            self.waits = True
            if not self.place:
                self.place = self.loop.scheduler.take_place()
                self.waits_since = self.loop.scheduler.now
            self.loop.scheduler.add_entering(self.place, self.waits_since, self)
            self.interest = 0
            self.loop.poller.change(self.fd, 0)
        return 0

    cdef int make_admission_step(self) except -1:
        """Make the admission step that this transport waited for."""
        self.waits = False
        if self.established:
            self.readable()
            return self.watch()
        return self.shake()

    cdef int shake(self) except -1:
        """Advance the handshake; when it is done, start the connection."""
        cdef Handshake state = self.handshake()
        if state == HANDSHAKE_FAILED:
            return self.lost()
        if state == HANDSHAKE_WAITS:
            return self.wait_for_admission()
        if state == HANDSHAKE_DONE:
            self.established = True
            self.connection.mark_dirty()
            self.read_on()
        return self.watch()

    # -- reading ----------------------------------------------------------------------------------------------------

    cdef int readable(self) except -1:
        cdef ssize_t got
        cdef TransportHost loop = self.loop
        if not self.plain:
            if not self.established:
                return self.shake()
            if self.unsent():
                self.connection.mark_dirty()      # the write in progress may have waited for this event
        if self.connection.paused:
            return self.watch(True)    # its socket must not wake the loop again and again
        if self.connection.remote_open is None and not loop.scheduler.take_admission_step(1):
            return self.wait_for_admission()
        if self.whole:
            return self.read_large_frame()
        if self.incomplete_size + FRAME_ROOM > loop.read_buffer_size:
            loop.enlarge_read_buffer(2 * (self.incomplete_size + FRAME_ROOM))
        got = self.read_some(loop.room + self.incomplete_size, loop.read_buffer_size - self.incomplete_size)
        self.reads_bulk = got >= BULK_OCTETS
        if got > 0:
            if self.incomplete_size:
                memcpy(loop.room, self.rest, self.incomplete_size)
            self.handle_input(got)
            return 0 if self.plain else self.read_on()
        return self.handle_no_input(got)

    cdef int handle_input(self, ssize_t got) except -1:
        """Process the octets that were read, and note whether an established client is active.

        Only a client that sends deliveries, outcomes or credit counts as active. A client that only sends empty frames
        does not, nor does one that begins sessions and attaches links.
        """
        cdef TransportHost loop = self.loop
        cdef uint64_t asked = loop.scheduler.frames
        self.feed(self.incomplete_size + got)
        if got > <ssize_t>FRAME_HEADER and loop.scheduler.frames == asked and self.connection is not None \
                and not self.connection.paused & PAUSE_TURN:
            self.note_activity()
        return 0

    cdef void note_activity(self) noexcept:
        """Note that a client is active if it is established: open for ESTABLISHED_MS.

        Clients that connect, send a message and leave would otherwise delay the admission of each other.
        """
        cdef uint64_t now = self.loop.scheduler.now
        if self.connection.opened_at and now >= self.connection.opened_at + ESTABLISHED_MS:
            self.loop.scheduler.active_at = now

    cdef int handle_no_input(self, ssize_t got) except -1:
        if got == 0 or (errno != EAGAIN and errno != EINTR):
            return self.lost()
        if self.plain:
            return 0
        self.read_on()                 # the octets read may have been without AMQP
        return self.watch()

    cdef int read_large_frame(self) except -1:
        """Read the rest of a large frame, up to its end and not beyond, straight into `rest`, so that its octets are
        not copied."""
        cdef TransportHost loop = self.loop
        cdef size_t size = min(self.whole - self.incomplete_size, loop.read_buffer_size)
        cdef size_t taken
        cdef ssize_t got
        if self.incomplete_size + size > self.incomplete_room:
            self.grow_incomplete(min(self.whole, max(2 * self.incomplete_room, self.incomplete_size + size)))
        got = self.read_some(self.rest + self.incomplete_size, size)
        if got <= 0:
            return self.handle_no_input(got)
        self.incomplete_size += got
        self.connection.last_received = loop.scheduler.now
        self.note_activity()
        if self.incomplete_size == self.whole:
            self.whole = 0
            taken = self.connection.receive(self.rest, self.incomplete_size)
            if taken:                  # takes everything: a single frame
                self.drop_incomplete()
            loop.fed.append(self.connection)
            if self.connection.paused:
                self.watch()
        return 0 if self.plain else self.read_on()

    cdef int grow_incomplete(self, size_t size) except -1:
        """Enlarge `rest` to at least `size` octets.

        A peer that announces more than it sends gets a block that another frame has used, or memory for what it has
        sent.
        """
        cdef uint8_t* rest = block_take(max(size, self.whole), &size) if size >= BLOCK_LEAST else NULL
        if rest is not NULL:
            memcpy(rest, self.rest, self.incomplete_size)
            self.free_incomplete()
        else:
            rest = <uint8_t*>realloc(self.rest, size)
            if rest is NULL:
                raise MemoryError(f"{size} octets of a frame")
        self.rest = rest
        self.incomplete_room = size
        return 0

    cdef void drop_incomplete(self) noexcept:
        self.free_incomplete()
        self.incomplete_size = self.whole = 0

    cdef void free_incomplete(self) noexcept:
        if self.incomplete_room >= BLOCK_LEAST:
            block_give(self.rest, self.incomplete_room)
        else:
            free(self.rest)
        self.rest = NULL
        self.incomplete_room = 0

    cdef int read_on(self) except -1:
        """List the transport for another read if it has buffered octets, which no event will announce."""
        if self.fd >= 0 and not self.connection.paused and self.pending():
            self.loop.inside.append(self)
        return 0

    cdef int feed(self, size_t size) except -1:
        """Pass `size` octets of the loop's buffer to the connection, and keep the octets that it does not take."""
        cdef Py_ssize_t taken = self.connection.receive(self.loop.room, size)
        cdef size_t left = size - taken
        cdef size_t length
        if left == 0:
            if self.rest is not NULL:
                self.drop_incomplete()
        else:
            if left > self.incomplete_room:
                self.grow_incomplete(left)
            memcpy(self.rest, self.loop.room + taken, left)
            self.incomplete_size = left
            length = read32(self.rest) if left >= FRAME_HEADER else 0
            # The connection has checked the length of an incomplete frame.
            if LARGE_FRAME < length <= self.connection.local_max_frame and left < length:
                self.whole = length
        self.loop.fed.append(self.connection)
        if self.connection.paused:
            self.watch()
        return 0

    def go_on(self):
        """Resume the connection after a pause, with the octets that were kept."""
        if self.fd < 0 or self.connection.paused or self.connection.finished:
            return
        if self.incomplete_size and not self.whole:
            if self.incomplete_size > self.loop.read_buffer_size:
                self.loop.enlarge_read_buffer(2 * self.incomplete_size)
            memcpy(self.loop.room, self.rest, self.incomplete_size)
            self.feed(self.incomplete_size)
        if not self.plain and self.established:
            self.read_on()
        self.watch()

    cdef int look(self) except -1:
        """Read pending input before the peer is declared silent; its event may not have arrived yet."""
        if buffer_used(&self.connection.out) >= UNREAD_OCTETS:
            self.flush()               # the peer may have read since
        if self.fd >= 0 and buffer_used(&self.connection.out) < UNREAD_OCTETS:
            self.loop.scheduler.allow_admission_step()      # the read cannot wait for one
            return self.readable()
        return 0

    # -- writing ----------------------------------------------------------------------------------------------------

    cdef int writable(self) except -1:
        """Let the connection write at the end of the wake, since the socket has room."""
        if not self.plain:
            if not self.established:
                return self.shake()
            if not self.connection.paused:
                self.readable()        # a read may have waited for this event
            if self.fd < 0:
                return 0
        self.connection.mark_dirty()
        return 0

    cdef int flush(self) except -1:
        """Send the output of the connection, as far as the socket takes it."""
        cdef Connection connection = self.connection
        cdef ssize_t sent
        cdef bint wrote = False
        connection.dirty = False
        if self.fd < 0:
            return 0
        if not self.plain and not self.flush_buffered():
            return 0
        for _ in range(WRITES_PER_TURN):
            if not connection.finished:
                connection.prepare()
            if connection.silent or not buffer_used(&connection.out):
                break
            if connection.traced:
                connection.trace_sent()
            sent = self.write_some(connection.out.data + connection.out.start, buffer_used(&connection.out))
            if sent < 0:
                if errno == EAGAIN or errno == EINTR:
                    break
                return self.lost()
            wrote = True
            connection.sent(sent)
            if buffer_used(&connection.out):
                break
            connection.out.start = connection.out.end = 0
            if not connection.wants_turn():
                break
        if wrote:
            connection.last_sent = self.loop.scheduler.now
        if connection.finished and (connection.silent or not buffer_used(&connection.out)) \
                and (self.plain or connection.silent or not self.unsent()):
            return self.close()
        if connection.finished and not self.ending:
            self.ending = True
            self.loop.call_at(self.loop.scheduler.now + UNREAD_MS, self.give_up, connection)
        if not buffer_used(&connection.out):
            buffer_release(&connection.out)
            if connection.wants_turn():
                connection.mark_dirty()
        return self.watch()

    cdef bint flush_buffered(self) except -1:
        """Send buffered octets. False: the connection cannot write now, or is closed."""
        if not self.established:
            if self.connection.finished:   # an end before the handshake: nothing can be sent to the peer
                self.close()
            return False
        if self.unsent() and self.write_some(NULL, 0) < 0 and errno != EAGAIN and errno != EINTR:
            self.lost()
            return False
        return True

    def give_up(self):
        """Close an ended connection whose last octets were not read in time. Flush once more before: the peer may have
        read while this process was held up."""
        if self.fd >= 0:
            self.flush()
        self.close()

    # -- events -----------------------------------------------------------------------------------------------------

    cdef int watch(self, bint signalled=False) except -1:
        """Set the events of interest.

        Changes that would be undone soon are left out. A paused connection is watched until an event is `signalled`,
        since most pauses end before the peer sends more. A dirty connection is about to write, and then watched again.
        """
        cdef uint32_t interest = 0
        if self.fd < 0 or self.waits:
            return 0
        if self.established:
            if not self.connection.paused and buffer_used(&self.connection.out) < UNREAD_OCTETS:
                interest = READABLE
            elif self.connection.paused and not signalled:
                interest = self.interest & READABLE
            if buffer_used(&self.connection.out) and not self.connection.dirty:
                interest |= WRITABLE
        if not self.plain:
            interest |= self.wants()
        if interest == self.interest:
            return 0
        self.interest = interest
        self.loop.poller.change(self.fd, interest)
        return 0

    # -- the end ----------------------------------------------------------------------------------------------------

    cdef int lost(self) except -1:
        """Close the connection after the peer's end of the socket was lost."""
        self.connection.transport_lost()
        return self.close()

    cdef int close(self) except -1:
        if self.fd >= 0:
            if not self.plain:
                self.shutdown()
            self.loop.transports[self.fd] = None
            self.close_descriptor()
            self.fd = -1
            buffer_release(&self.connection.out)
            self.drop_incomplete()
            self.connection.owner = None
            self.connection.release()
            # A timer may keep this object for a while; drop the objects that it refers to.
            self.connection = None
            totals.connections -= 1
            self.loop.note_memory_use()
        return 0

    cdef int ended_by(self, object fault) except -1:
        """End connection and socket, without a close frame, after an exception between them."""
        if self.connection is None:
            raise fault
        self.connection.drop_by(fault)
        return self.close()

    def schedule(self):
        """Schedule the next tick of the connection."""
        self.loop.schedule_tick(self)

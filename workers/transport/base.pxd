"""The interface of a transport, and what a transport needs of the loop that runs it."""
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

from router.amqp.connection cimport Connection
from router.amqp.scheduler cimport Scheduler
from workers.poller cimport Poller

# What handshake() returns.
cdef enum Handshake:
    HANDSHAKE_GOES_ON
    HANDSHAKE_WAITS            # for its turn: the loop goes on with it, no event of the socket
    HANDSHAKE_DONE
    HANDSHAKE_FAILED           # the peer is at fault: the connection ends

cdef enum:
    STEPS_A_WAKE = 4           # of clients that come in: frames before or with an open take a tenth of a millisecond
    HANDSHAKE_STEPS = 4        # that one of a handshake counts for: it may cost a signature, half a millisecond

# What a transport needs of its loop. Owner: the loop is one.
cdef class TransportHost:
    cdef readonly Scheduler scheduler
    cdef Poller poller
    cdef uint8_t* room                     # where sockets are read to, shared by all connections
    cdef size_t room_size
    cdef list transports                   # by descriptor: Transport, callable, or None
    cdef list fed                          # connections read in this wake
    cdef list inside                       # transports with octets inside that no event announces
    cdef readonly object lingering         # Lingering: sockets whose connections have ended
    cdef uint64_t went_on                  # ms: when this process last went on after it had been held up, 0: never was
    cdef uint64_t heard_at                 # ms: when a client was last read that has deliveries
    cdef readonly object entering          # deque of transports whose peers are not in yet and wait for their turn
    cdef int32_t steps_left                # of these, in this wake, when sockets are read
    cdef int32_t steps_kept                # for those that wait already
    cdef bint takes_step(self, int32_t cost) noexcept
    cdef int more_room(self, size_t size) except -1
    cpdef void used_memory(self)

# Moves octets between a descriptor and a connection; subclasses read and write them: TCP and TLS.
# Owner: the loop.
cdef class Transport:
    cdef readonly int fd                   # -1 when closed
    cdef readonly Connection connection    # None when closed
    cdef TransportHost loop
    cdef uint8_t* rest                     # octets of an incomplete frame, or of frames that wait
    cdef size_t rest_size
    cdef size_t rest_room
    cdef size_t whole                      # octets of the large frame that begins there, 0: none does
    cdef uint32_t interest                 # events asked for
    cdef bint ending                       # the connection has ended, its last octets are not yet sent
    cdef bint waits                        # among `entering`
    cdef uint64_t waits_since              # ms
    cdef uint64_t turn                     # number of the wake in which it had its turn to write
    cdef uint64_t due                      # ms: when the connection wants its tick, 0: never
    # Octets pass as they are: no handshake, nothing is kept inside. None of the methods below `write_some` is called.
    cdef bint plain
    cdef bint established                  # the handshake is done; always, where it is plain
    cdef readonly object tls               # what TLS has negotiated (`Tls`); None: nothing

    # -- what a subclass is: as recv(2) and send(2), never waiting ------------------------------------------------
    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2
    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2
    cdef Handshake handshake(self) except *
    cdef bint pending(self) except -1
    cdef bint unsent(self) except -1
    cdef uint32_t wants(self) except? 0xFFFF
    cdef int shutdown(self) except -1
    cdef int close_descriptor(self) except -1
    cdef bint told(self) noexcept

    # -- what the loop calls --------------------------------------------------------------------------------------
    cdef int readable(self) except -1
    cdef int writable(self) except -1
    cdef int flush(self) except -1
    cdef int lost(self) except -1
    cdef int look(self) except -1
    cdef int ended_by(self, object fault) except -1

    cdef int go_in(self) except -1
    cdef int wait_turn(self) except -1
    cdef int shake(self) except -1
    cdef bint flush_inside(self) except -1
    cdef int feed(self, size_t size) except -1
    cdef int read_on(self) except -1
    cdef int read_large(self) except -1
    cdef int take_read(self, ssize_t got) except -1
    cdef int nothing_read(self, ssize_t got) except -1
    cdef int grow_rest(self, size_t size) except -1
    cdef void drop_rest(self) noexcept
    cdef void drop_octets(self) noexcept
    cdef int watch(self) except -1
    cdef int close(self) except -1

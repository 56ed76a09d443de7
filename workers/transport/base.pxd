"""Interface of a transport, and of the loop that runs it."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.connection cimport Connection
from sluice.workers.fairness cimport LoopScheduler
from sluice.workers.poller cimport Poller

# Result of handshake().
cdef enum Handshake:
    HANDSHAKE_GOES_ON
    HANDSHAKE_WAITS            # for an admission step: the loop continues the handshake, no event of the socket
    HANDSHAKE_DONE
    HANDSHAKE_FAILED           # through the peer's fault: the connection ends

# Interface that a transport needs of its loop; a loop is a subclass. Owner: the loop.
cdef class TransportHost:
    cdef readonly LoopScheduler scheduler
    cdef Poller poller
    cdef uint8_t* room                     # read buffer for all sockets
    cdef size_t read_buffer_size
    cdef list transports                   # by descriptor: Transport, callable, or None
    cdef list fed                          # connections that were read in this wake
    cdef list inside                       # transports with buffered octets, which no event announces
    cdef readonly object lingering         # Lingering: sockets of ended connections
    cdef uint64_t went_on                  # time in ms when this process last resumed after being held up; 0: never
    cdef int enlarge_read_buffer(self, size_t size) except -1
    cpdef void note_memory_use(self)

# Base class of transports, which move octets between a descriptor and a connection. Subclasses read and write the
# octets (TCP, TLS, WebSocket). Owner: the loop.
cdef class Transport:
    cdef readonly int fd                   # -1 when closed
    cdef readonly Connection connection    # None when closed
    cdef TransportHost loop
    cdef uint8_t* rest                     # octets of an incomplete frame, or of frames that wait
    cdef size_t incomplete_size
    cdef size_t incomplete_room
    cdef size_t whole                      # length of the large frame that `rest` begins with; 0: none
    cdef uint32_t interest                 # events of interest
    cdef bint ending                       # the connection has ended and its last octets are not sent yet
    cdef bint waits                        # for an admission step, in `LoopScheduler.entering`
    cdef uint64_t place                    # in the order of admission; 0: it never waited for an admission step
    cdef uint64_t waits_since              # time in ms at which it got its place
    cdef bint reads_bulk                   # the last read returned BULK_OCTETS or more
    cdef uint64_t turn                     # number of the last wake in which the connection wrote
    cdef uint64_t due                      # when the connection needs its tick, in ms; 0: never
    # Octets pass unchanged: there is no handshake, and nothing is buffered here. None of the methods after
    # `write_some` is called.
    cdef bint plain
    cdef bint established                  # the handshake is done; always true if `plain`
    cdef readonly object tls               # result of TLS negotiation (`Tls`); None: no TLS

    # -- implemented by subclasses: as recv(2) and send(2), never waiting ------------------------------------------
    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2
    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2
    cdef Handshake handshake(self) except *
    cdef bint pending(self) except -1
    cdef bint unsent(self) except -1
    cdef uint32_t wants(self) except? 0xFFFF
    cdef int shutdown(self) except -1
    cdef int close_descriptor(self) except -1
    cdef bint told(self) noexcept

    # -- called by the loop -----------------------------------------------------------------------------------------
    cdef int readable(self) except -1
    cdef int writable(self) except -1
    cdef int flush(self) except -1
    cdef int lost(self) except -1
    cdef int look(self) except -1
    cdef int ended_by(self, object fault) except -1

    cdef int make_admission_step(self) except -1
    cdef int wait_for_admission(self) except -1
    cdef int shake(self) except -1
    cdef bint flush_buffered(self) except -1
    cdef int feed(self, size_t size) except -1
    cdef int read_on(self) except -1
    cdef int read_large_frame(self) except -1
    cdef int handle_input(self, ssize_t got) except -1
    cdef int handle_no_input(self, ssize_t got) except -1
    cdef int grow_incomplete(self, size_t size) except -1
    cdef void drop_incomplete(self) noexcept
    cdef void free_incomplete(self) noexcept
    cdef void note_activity(self) noexcept
    cdef int watch(self, bint signalled=*) except -1
    cdef int close(self) except -1

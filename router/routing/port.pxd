"""A port to another worker: deliveries, settlements and credit by two rings in shared memory."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from router.amqp.buffer cimport WriteBuffer
from router.amqp.codec cimport Slice
from router.amqp.delivery cimport IdMap, InDelivery, OutDelivery, Party
from router.amqp.message cimport Content, Message, Meter
from router.amqp.routed_link cimport FarEnd
from router.ipc.layout cimport Region, WorkerSlot
from router.ipc.ring cimport Ring

cdef enum:
    # Octets of one streamed delivery that may be with the other worker before it says that some have left it.
    STREAM_WINDOW = 262144
    # Payload of one record: several fit into the smallest ring, and none keeps the ring for itself.
    RECORD_OCTETS = 32768
    # Records taken from one ring before the loop looks at sockets again.
    RECORDS_A_TURN = 512

# A consumer of the receiving worker, as a record names it.
cdef struct Target:
    uint32_t slot
    uint32_t generation

cdef enum:
    R_LINK = 16                # records of routed links begin here: see far_end.pyx
    R_LINK_TOLD = 22

# Head of every record of a routed link.
cdef struct LinkHead:
    uint8_t type
    uint8_t flags
    uint8_t kind               # of a delivery state, or what is told
    uint8_t options            # of a transfer
    uint32_t slot              # the link that it is for …
    uint32_t generation        # … and its slot's generation
    uint32_t count             # keys; flow: credit; window: octets
    uint64_t key
    uint32_t format            # message-format; flow: delivery-count
    uint32_t state_size        # octets of a state, or of properties, behind the tag
    uint32_t tag_size          # octets of a tag behind the head
    uint32_t available         # flow

# A stream being received from the peer: what has left us is reported, so that more may come. Owner: the port.
cdef class Inflow:
    cdef WorkerPort port
    cdef uint64_t key
    cdef Meter* meter
    cdef uint64_t received                 # octets
    cdef uint64_t reported
    cdef bint due

# What one wake of the worker does with ports, by way of its loop. Owner: the worker.
cdef class WorkerPort(Party):
    cdef readonly int peer
    cdef readonly int worker
    cdef readonly bint alive
    cdef readonly uint32_t generation      # of the peer's process, while it is alive
    cdef Region region
    cdef Ring outbound
    cdef Ring inbound
    cdef WorkerSlot* peer_slot
    cdef int peer_eventfd
    cdef dict links                        # Table.links
    cdef public dict routed                # slot index -> RoutedLink of this worker
    cdef dict leaving                      # slot << 32 | generation -> FarEnd whose link is gone, but not all it sent
    cdef list due                          # FarEnds that have something to say at the end of this wake
    cdef object scheduler
    cdef uint64_t next_key                 # of the next delivery we send
    cdef IdMap sent                        # key -> OutDelivery*: given to the peer, not settled
    cdef IdMap received                    # key -> InDelivery*: of the peer, not settled
    cdef dict inflows                      # key -> Inflow: streams being received
    cdef WriteBuffer backlog               # records (length, octets) that found no room
    cdef list waiting                      # Connections paused until there is room
    cdef list windows                      # Inflows that have something to report
    cdef readonly bint dirty               # written to, or to be pumped, in this wake
    cdef bint signal
    cdef readonly bint waits               # the peer was asked to signal when it has made room
    # settlements being collected: keys first … first + count - 1
    cdef uint64_t pending_first
    cdef uint32_t pending_count
    cdef uint8_t pending_kind
    cdef uint8_t pending_type
    # targets of the delivery being offered
    cdef uint32_t* targets
    cdef uint32_t target_count
    cdef uint32_t target_room
    # of the record that is being taken
    cdef Content content                   # R_TRANSFER
    cdef uint32_t progress                 # targets, or keys, that have been dealt with
    cdef OutDelivery* failing              # R_SETTLED, R_RETURNED: the delivery whose turn it is …
    cdef void* concerned                   # … and where it came from, R_UPDATE: went to (borrowed); NULL: from nowhere
    cdef int add_target(self, uint32_t slot_index, uint32_t generation) except -1
    cdef int offer(self, InDelivery* d, Content* c, int overflow) except -1
    cdef int queue_first_part(self, OutDelivery* o, Message* m, uint8_t* head, size_t size, uint32_t sections) except -1
    cdef uint8_t* reserve(self, uint32_t size) noexcept
    cdef int give(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int post(self, const uint8_t* a, size_t a_size, const uint8_t* b, size_t b_size) except -1
    cdef int check_fits(self, size_t size) except -1
    cdef Slice fitting(self, uint8_t kind, const Slice* state) noexcept
    cdef int flush_backlog(self) except -1
    cdef int pump(self) except -1
    cdef int write_part(self, OutDelivery* o) except? -2
    cdef int keep_state(self, OutDelivery* o, const Slice* state) except -1
    cdef int forget(self, OutDelivery* o) except -1
    cdef int release_waiting(self) except -1
    cdef int report_window(self, Inflow inflow) except -1
    cdef bint stuck(self) noexcept
    cdef void take(self, const Target* target, uint32_t count) noexcept
    cdef int spread(self, InDelivery* d, Content* c, const Target* target, uint32_t count, int overflow) except -1
    cdef int flush(self) except -1
    cdef int flush_pending(self) except -1
    cdef int report(self, uint8_t kind_of_record, uint64_t key, uint8_t kind, const Slice* state) except -1
    cdef int receive(self) except -1
    cdef int take_records(self, int* taken) except -1
    cdef bint record_failed(self, object fault) except *
    cdef bint transfer_failed(self, const uint8_t* p, object fault) except *
    cdef bint settled_failed(self, const uint8_t* p, object fault) except *
    cdef bint content_failed(self, const uint8_t* p, object fault) except *
    cdef bint link_record_failed(self, const uint8_t* p, object fault) except *
    cdef int end_failed(self, FarEnd end, object fault) except -1
    cdef int no_target(self, InDelivery* d, Content* c) except -1
    cdef InDelivery* read_transfer(self, const uint8_t* p, uint32_t size, Content* c) except NULL
    cdef int on_record(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_transfer(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_continue(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_settled(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_update(self, const uint8_t* p, uint32_t size) except -1
    cdef int on_window(self, const uint8_t* p) except -1
    cdef int on_link_record(self, const uint8_t* p, uint32_t size) except -1
    cdef int finish(self, InDelivery* d) except -1
    cdef void mark(self) noexcept

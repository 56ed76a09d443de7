"""Deliveries from another worker: a port is their upstream."""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from sluice.router.amqp.scheduler cimport Scheduler
from sluice.router.amqp.meter cimport Meter
from sluice.router.delivery.delivery cimport DeliveryNode, InDelivery
from sluice.router.ring.link_table cimport LinkPlaces, LinkTable
from sluice.router.ring.outbox cimport Outbox
from sluice.router.ring.records cimport DeliveryRecord, DeliveryHead, RecordTarget, TransferRecord
from sluice.router.ring.reports cimport ReportingNode
from sluice.router.links.consumer_link cimport ConsumerLink
from sluice.router.message.content cimport Content

# Inflow: a stream being received from the peer. Octets that have left this worker are reported, to open its window.
# Owner: the port.
cdef class Inflow:
    cdef PortIn port
    cdef uint64_t key
    cdef Meter* meter                      # counts octets of the stream that are held here
    cdef uint64_t received                 # octets
    cdef uint64_t reported                 # octets reported as having left
    cdef bint due                          # listed in `windows`

# Upstream of deliveries from the peer's producers. Owner: the port.
cdef class PortIn(ReportingNode):
    cdef Outbox outbox
    cdef int peer
    cdef LinkTable links                   # keeps `places`
    cdef const LinkPlaces* places          # consumer links by slot
    cdef Scheduler scheduler
    cdef dict meters                       # PortOut.meters, if the peer is this worker; else None
    cdef dict inflows                      # key -> Inflow: streams being received
    cdef list windows                      # Inflows that have something to report
    # State of the record being processed.
    cdef Content content                   # of a TRANSFER
    cdef uint32_t progress                 # targets of a TRANSFER that are done
    cdef DeliveryNode* concerned           # downstream of an UPDATE's delivery (borrowed); NULL: it has none
    cdef int on_transfer(self, const uint8_t* p, uint32_t size) except -1
    cdef int receive_several(self, const TransferRecord* r) except -1
    cdef int refuse_key(self, const InDelivery* d) except -1
    cdef int receive_one(self, const TransferRecord* r) except -1
    cdef int offer_record(self, ConsumerLink link, InDelivery* d, const TransferRecord* r) except -1
    cdef ConsumerLink link_of(self, const RecordTarget* target)
    cdef InDelivery* read_transfer(self, const TransferRecord* r, Content* c) except NULL
    cdef void take(self, const RecordTarget* target, uint32_t count) noexcept
    cdef int spread(self, InDelivery* d, Content* c, const RecordTarget* target, uint32_t count, int overflow) except -1
    cdef int no_target(self, InDelivery* d) except -1
    cdef int on_continue(self, const DeliveryRecord* r) except -1
    cdef int on_update(self, const DeliveryRecord* r) except -1
    cdef int finish(self, InDelivery* d) except -1
    cdef bint transfer_failed(self, const uint8_t* p, object fault) except *
    cdef bint content_failed(self, const uint8_t* p, object fault) except *
    cdef int report_window(self, Inflow inflow) except -1
    cdef int flush(self) except -1
    cdef bint unreported(self) noexcept
    cdef int lost(self) except -1

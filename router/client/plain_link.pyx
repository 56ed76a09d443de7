"""Links whose deliveries are Python objects, for clients and for servers that are not routers."""
from libc.stdlib cimport free, malloc

from sluice.router.amqp.endpoint cimport is_detached
from sluice.router.amqp.id_map cimport map_put, map_take

from sluice.router.amqp.errors import delivery_id_in_use


cdef class PlainLink(Link):
    """Base class of Sender and Receiver. Owner: its session."""

    def __cinit__(self, handler, **options):
        self.handler = handler
        self.unsettled = {}
        self.entry_owner.link = <void*>self

    cdef int remember(self, IdMap* entries, uint32_t id, object delivery) except -1:
        cdef UnsettledEntry* entry = <UnsettledEntry*>malloc(sizeof(UnsettledEntry))
        if entry is NULL:
            raise MemoryError("delivery")
        entry.owner = &self.entry_owner
        entry.id = id
        try:
            if not map_put(entries, id, entry):
                raise delivery_id_in_use()
        except BaseException:
            free(entry)
            raise
        self.unsettled[id] = delivery
        return 0

    cdef int forget(self, IdMap* entries, uint32_t id) except -1:
        free(map_take(entries, id))
        self.unsettled.pop(id, None)
        return 0

    cdef int forget_all(self) except -1:
        cdef IdMap* entries = &self.session.received if self.incoming else &self.session.sent
        for id in self.unsettled:
            free(map_take(entries, id))
        return 0

    cdef bint has_deliveries(self) noexcept:
        return len(self.unsettled) > 0

    cdef int lost(self, uint8_t event) except -1:
        if is_detached(self):
            return 0
        self.live(event)
        self.forget_ready()
        self.forget_all()
        self.session.link_gone(self)       # before `unsettled` is cleared, which the handler may read
        self.unsettled.clear()
        return 0

    def detach(self, closed=True, condition=None, description=None):
        """Detach the link from this side. Frames for its handle are absorbed until the peer's detach."""
        if is_detached(self):
            return
        if condition is not None:
            self.reason = (condition, description or "")
        self.leave(closed)
        self.session.send_detach(self.handle, closed, condition, description)

    @property
    def ended(self):
        """True if the link was detached by either side, or lost with its session."""
        return is_detached(self)

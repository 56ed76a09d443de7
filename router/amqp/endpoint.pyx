"""Link as its session and its connection know it, and the order in which links get turns to write."""
from sluice.router.amqp.link_life cimport (
    LIFE_PENDING, ON_DECIDED, ON_OUR_ATTACH, ON_PEER_ATTACH, life_after,
)
from sluice.router.amqp.node_list cimport list_remove, node_dealloc


cdef class Endpoint:
    def __cinit__(self):
        self.output_high = OUTPUT_HIGH
        self.turn.object = <void*>self

    def __dealloc__(self):
        node_dealloc(&self.turn)

    cdef int join(self, object session) except -1:
        raise NotImplementedError

    cdef int live(self, uint8_t event) except -1:
        self.life = life_after(self.life, event, self.name)
        return 0

    cdef int begin_state(self) except -1:
        return self.live(ON_OUR_ATTACH) if self.initiated else self.on_peer_attach()

    cdef int on_peer_attach(self) except -1:
        self.live(ON_PEER_ATTACH)
        if self.life == LIFE_PENDING and not self.awaits_decision:
            self.live(ON_DECIDED)
        return 0

    cdef int pump(self, size_t budget) except -1:
        raise NotImplementedError

    cdef int on_transfer(self, const Transfer* t) except -1:
        raise NotImplementedError

    cdef int on_limited_transfer(self, Transfer* t) except -1:
        raise NotImplementedError

    cdef int on_flow(self, const Flow* f) except -1:
        raise NotImplementedError

    cdef int delivery_outcome(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int delivery_update(self, void* entry, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef uint32_t deliveries_settled(self, void* entry, uint32_t most, uint8_t kind, const Slice* state) except 0:
        self.delivery_outcome(entry, kind, state, True)
        return 1

    cdef int grant(self) except -1:
        raise NotImplementedError

    cdef int last_resort(self, size_t held) except -1:
        raise NotImplementedError

    cdef bint release_some_deliveries(self) except *:
        return True

    cdef int lost(self, uint8_t event) except -1:
        raise NotImplementedError

    cdef int confirm(self) except -1:
        raise NotImplementedError

    cdef int peer_detached(self) except -1:
        raise NotImplementedError

    cdef void grant_again(self) noexcept:
        pass

    cdef bint has_deliveries(self) noexcept:
        return False

    cdef bint goes_on(self) noexcept:
        return False

    cdef size_t octets_held(self) noexcept:
        return (self.streams.held if self.streams is not NULL else 0) \
            + (self.whole.held if self.whole is not NULL else 0)

    cdef size_t octets_unrouted(self) noexcept:
        return 0

    cdef size_t octets_awaited(self) noexcept:
        return 0

    cdef bint holds(self) noexcept:
        return self.octets_held() > 0

    cdef uint32_t progress(self) noexcept:
        return 0

    cdef size_t octets_queued(self, Survey* found) noexcept:
        return 0

    cdef int forget_ready(self) except -1:
        if self.turn.list is not NULL:
            list_remove(&self.turn)
        return 0

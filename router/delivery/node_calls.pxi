# Table of calls of a delivery node whose owner is a NodeObject: each entry calls the method of its name. The including
# file must define NodeObject before (`ctypedef ITS_CLASS NodeObject`). The table is not in a common base class, since
# a Cython class has one base, and that of links is in router/amqp.

cdef int node_outcome(void* owner, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
    return (<NodeObject>owner).outcome(d, kind, state, settled)


cdef bint node_settled(void* owner, OutDelivery** run, uint32_t n, uint8_t kind, const Slice* state) except -1:
    return (<NodeObject>owner).settled(run, n, kind, state)


cdef int node_returned(void* owner, InDelivery* d) except -1:
    return (<NodeObject>owner).returned(d)


cdef int node_more(void* owner, OutDelivery* o) except -1:
    return (<NodeObject>owner).more(o)


cdef int node_producer_update(void* owner, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    return (<NodeObject>owner).producer_update(o, kind, state, settled)


cdef int node_producer_lost(void* owner, OutDelivery* o) except -1:
    return (<NodeObject>owner).producer_lost(o)


cdef int node_abandon(void* owner, OutDelivery* o) except -1:
    return (<NodeObject>owner).abandon(o)


cdef void node_unstuck(void* owner) noexcept:
    (<NodeObject>owner).unstuck()


cdef NodeCalls NODE_CALLS
NODE_CALLS.outcome = node_outcome
NODE_CALLS.settled = node_settled
NODE_CALLS.returned = node_returned
NODE_CALLS.more = node_more
NODE_CALLS.producer_update = node_producer_update
NODE_CALLS.producer_lost = node_producer_lost
NODE_CALLS.abandon = node_abandon
NODE_CALLS.unstuck = node_unstuck

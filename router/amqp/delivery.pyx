"""A delivery on its way in, its copies on their way out, and how outcomes travel back (part 2, 2.6.12; part 3, 3.4).

An InDelivery lives until its producer needs no more news and its last octet is here; an OutDelivery until its
consumer has settled and its last octet is written. `peer` and `outs` tie them together and are cut from either side.
"""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from router.amqp.codec cimport open_described
from router.amqp.message cimport cursor_close, message_release
from router.amqp.spec cimport D_ACCEPTED, D_DECLARED, D_MODIFIED, D_RECEIVED, D_REJECTED, D_RELEASED

cdef enum:
    POOL_KEEP = 4096           # freed structs kept for the next delivery
    MAP_FIRST = 16             # slots of a new IdMap
    MAP_KEPT = 4096            # slots that an IdMap keeps, however few are used
    OTHER_STATE = 0xFF         # a state whose descriptor is not of part 3

cdef InDelivery* in_pool = NULL
cdef uint32_t in_pooled = 0
cdef uint64_t in_alive = 0
cdef OutDelivery* out_pool = NULL
cdef uint32_t out_pooled = 0
cdef uint64_t out_alive = 0

cdef uint8_t[4] ACCEPTED_OCTETS = [0x00, 0x53, 0x24, 0x45]
cdef uint8_t[4] REJECTED_OCTETS = [0x00, 0x53, 0x25, 0x45]
cdef uint8_t[4] RELEASED_OCTETS = [0x00, 0x53, 0x26, 0x45]
# delivery-failed=true, undeliverable-here=false: the state of what was sent to a consumer that went away
cdef uint8_t[8] MODIFIED_OCTETS = [0x00, 0x53, 0x27, 0xC0, 0x03, 0x02, 0x41, 0x42]


cdef uint64_t live_in() noexcept:
    return in_alive


cdef uint64_t live_out() noexcept:
    return out_alive


cdef class Party:
    cdef int outcome(self, InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int returned(self, InDelivery* d) except -1:
        raise NotImplementedError

    cdef int more(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef int producer_update(self, OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
        raise NotImplementedError

    cdef int abandon(self, OutDelivery* o) except -1:
        raise NotImplementedError

    cdef void unstuck(self) noexcept:
        pass


# ---------------------------------------------------------------------------------------------------------------------
# States

cdef uint8_t state_kind(const Slice* state) noexcept nogil:
    """The descriptor of an encoded state: 0 for none, OTHER_STATE for one this router only relays."""
    cdef uint64_t code
    if state.data is NULL or state.size == 0:
        return 0
    if open_described(state.data, state.data + state.size, &code) is NULL or code > 0xFE:
        return OTHER_STATE
    return <uint8_t>code


cdef bint terminal(uint8_t kind) noexcept nogil:
    return kind != 0 and kind != D_RECEIVED


cdef Slice plain_state(uint8_t kind) noexcept nogil:
    """Encoding of an outcome that the router itself reports."""
    cdef Slice s
    s.size = 4
    if kind == D_ACCEPTED:
        s.data = ACCEPTED_OCTETS
    elif kind == D_REJECTED:
        s.data = REJECTED_OCTETS
    elif kind == D_RELEASED:
        s.data = RELEASED_OCTETS
    elif kind == D_MODIFIED:
        s.data = MODIFIED_OCTETS
        s.size = 8
    else:
        s.data = NULL
        s.size = 0
    return s


cdef inline int rank(uint8_t kind) noexcept nogil:
    """Which of several outcomes the producer hears: rejected > accepted > modified > released."""
    if kind == D_REJECTED or kind == D_DECLARED:
        return 4
    if kind == D_ACCEPTED:
        return 3
    if kind == D_MODIFIED:
        return 2
    return 1 if kind == D_RELEASED else 0


# ---------------------------------------------------------------------------------------------------------------------
# Incoming

cdef InDelivery* in_new(Party upstream, uint64_t key, uint64_t now, uint16_t flags) except NULL:
    global in_pool, in_pooled, in_alive
    cdef InDelivery* d = in_pool
    if d is not NULL:
        in_pool = d.next
        in_pooled -= 1
    else:
        d = <InDelivery*>malloc(sizeof(InDelivery))
        if d is NULL:
            raise MemoryError("delivery")
    memset(d, 0, sizeof(InDelivery))
    in_alive += 1
    d.upstream = <void*>upstream
    d.key = key
    d.since = now
    d.flags = flags
    d.previous = upstream.in_last
    if upstream.in_last is not NULL:
        upstream.in_last.next = d
    else:
        upstream.in_first = d
    upstream.in_last = d
    upstream.in_count += 1
    return d


cdef void in_free(InDelivery* d) noexcept:
    """The upstream is done with it: out of its list, copies cut off, memory back."""
    global in_pool, in_pooled, in_alive
    cdef Party upstream
    in_detach_outs(d)
    if d.upstream is not NULL:
        upstream = <Party>d.upstream
        if d.previous is not NULL:
            d.previous.next = d.next
        else:
            upstream.in_first = d.next
        if d.next is not NULL:
            d.next.previous = d.previous
        else:
            upstream.in_last = d.previous
        upstream.in_count -= 1
        if d.flags & IN_STUCK:
            upstream.unstuck()
    if d.message is not NULL:
        message_release(d.message)
    if d.state is not NULL:
        free(d.state)
    in_alive -= 1
    if in_pooled < POOL_KEEP:
        d.next = in_pool
        in_pool = d
        in_pooled += 1
    else:
        free(d)


cdef void in_detach_outs(InDelivery* d) noexcept:
    cdef OutDelivery* o = d.outs
    while o is not NULL:
        o.peer = NULL
        o = o.sibling
    d.outs = NULL
    d.live = d.pending = 0


cdef bint in_waits(const InDelivery* d) noexcept nogil:
    cdef const OutDelivery* o = d.outs
    while o is not NULL:
        if o.message is not NULL:
            return True
        o = o.sibling
    return False


cdef bint in_abandon(InDelivery* d) except *:
    cdef OutDelivery* o = d.outs
    cdef OutDelivery* following
    cdef bint seen = False
    while o is not NULL:
        following = o.sibling
        if o.flags & OUT_STARTED:
            seen = True
        if o.message is not NULL:
            (<Party>o.downstream).abandon(o)
        o = following
    return seen


cdef int in_keep_state(InDelivery* d, uint8_t kind, const Slice* state) except -1:
    """Remember an outcome that will be reported later."""
    if d.state is not NULL:
        free(d.state)
        d.state = NULL
        d.state_size = 0
    d.kind = kind
    if state.size:
        d.state = <uint8_t*>malloc(state.size)
        if d.state is NULL:
            raise MemoryError("delivery state")
        memcpy(d.state, state.data, state.size)
        d.state_size = <uint32_t>state.size
    return 0


cdef int in_more(InDelivery* d) except -1:
    """More of the message came, it is complete, or it was aborted: tell every copy."""
    cdef OutDelivery* o = d.outs
    cdef OutDelivery* following
    while o is not NULL:
        following = o.sibling
        (<Party>o.downstream).more(o)
        o = following
    return 0


cdef int in_routed(InDelivery* d) except -1:
    """Forwarders have made all copies there will be: report what they already know. May free the delivery."""
    cdef Slice state
    d.flags |= IN_ROUTED
    if d.flags & (IN_PRESETTLED | IN_ACCEPT):
        return 0
    state.data = d.state
    state.size = d.state_size
    if d.flags & IN_FINAL or (d.flags & IN_MULTI and d.live == 0):
        (<Party>d.upstream).outcome(d, d.kind, &state, True)
    elif d.flags & IN_MULTI and d.pending == 0 and d.kind:
        d.flags |= IN_TOLD
        (<Party>d.upstream).outcome(d, d.kind, &state, False)
    return 0


cdef int in_update(InDelivery* d, uint8_t kind, const Slice* state, bint settled) except -1:
    """The producer set a state or settled; when it settled the caller finishes the delivery."""
    cdef OutDelivery* o = d.outs
    cdef OutDelivery* following
    while o is not NULL:
        following = o.sibling
        if settled:
            out_detach(o)
        (<Party>o.downstream).producer_update(o, kind, state, settled)
        o = d.outs if settled else following
    return 0


cdef int in_settled_late(InDelivery* d) except -1:
    """The producer settled before its last octet: from now on the delivery is as presettled, copies go on with it."""
    cdef OutDelivery* o = d.outs
    cdef OutDelivery* following
    cdef Slice none = plain_state(0)
    d.flags |= IN_PRESETTLED
    while o is not NULL:
        following = o.sibling
        (<Party>o.downstream).producer_update(o, 0, &none, True)
        o = following
    return 0


cdef int in_lost(InDelivery* d) except -1:
    """The producer is gone. Frees the delivery; copies that were complete go on without it."""
    cdef OutDelivery* o
    cdef Slice state
    if not d.flags & IN_COMPLETE and d.message is not NULL:
        d.message.aborted = True
        in_more(d)
    elif d.flags & IN_MULTI and not d.flags & IN_PRESETTLED:
        # Consumers of a multicast delivery learn that their settlement reaches nobody (9.5).
        state = plain_state(D_MODIFIED)
        while d.outs is not NULL:
            o = d.outs
            out_detach(o)
            if not o.flags & OUT_QUEUED:
                (<Party>o.downstream).producer_update(o, D_MODIFIED, &state, True)
    in_free(d)
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# Outgoing

cdef OutDelivery* out_new(Party downstream, InDelivery* d, Content* c, bint linked) except NULL:
    """A copy for `downstream`; linked: its delivery wants to hear of it."""
    global out_pool, out_pooled, out_alive
    cdef OutDelivery* o = out_pool
    if o is not NULL:
        out_pool = o.next
        out_pooled -= 1
    else:
        o = <OutDelivery*>malloc(sizeof(OutDelivery))
        if o is NULL:
            raise MemoryError("delivery")
    memset(o, 0, sizeof(OutDelivery))
    out_alive += 1
    o.downstream = <void*>downstream
    o.since = d.since
    if c.settled:
        o.flags = OUT_SETTLED
    elif c.outstanding is not NULL:
        o.outstanding = c.outstanding
        o.outstanding[0] += 1
    if c.checking:
        o.flags |= OUT_CHECK
    if linked:
        o.peer = d
        o.sibling = d.outs
        if d.outs is not NULL:
            d.outs.sibling_before = o
        d.outs = o
        d.live += 1
        d.pending += 1
    return o


cdef void out_free(OutDelivery* o) noexcept:
    """The downstream is done with it and has taken it out of its lists."""
    global out_pool, out_pooled, out_alive
    if o.peer is not NULL:
        out_detach(o)
    if o.flags & OUT_STUCK:
        (<Party>o.downstream).unstuck()
    if o.outstanding is not NULL and o.outstanding[0]:
        o.outstanding[0] -= 1
    if o.prefix is not NULL:
        free(o.prefix)
    cursor_close(&o.cursor)
    if o.message is not NULL:
        message_release(o.message)
    out_alive -= 1
    if out_pooled < POOL_KEEP:
        o.next = out_pool
        out_pool = o
        out_pooled += 1
    else:
        free(o)


cdef void out_detach(OutDelivery* o) noexcept:
    """Out of its delivery's list of copies."""
    cdef InDelivery* d = o.peer
    if o.sibling_before is not NULL:
        o.sibling_before.sibling = o.sibling
    else:
        d.outs = o.sibling
    if o.sibling is not NULL:
        o.sibling.sibling_before = o.sibling_before
    d.live -= 1
    if not o.kind and d.pending:
        d.pending -= 1
    o.sibling = o.sibling_before = NULL
    o.peer = NULL


cdef int out_update(OutDelivery* o, uint8_t kind, const Slice* state, bint settled) except -1:
    """The consumer of this copy set a state or settled. After `settled` the copy has no peer."""
    cdef InDelivery* d = o.peer
    cdef Slice combined
    if d is NULL:
        return 0
    if o.flags & OUT_CHECK and d.flags & IN_PRESETTLED:
        return out_left(o) if settled else 0
    if d.flags & IN_ACCEPT:
        if settled:
            out_detach(o)
        return 0
    if not d.flags & IN_MULTI:
        if not settled:
            if kind:
                in_keep_state(d, kind, state)
            return (<Party>d.upstream).outcome(d, kind, state, False)
        out_detach(o)
        if kind:
            combined = state[0]
        else:
            # Settling without a state keeps the one that was reported before.
            kind = d.kind
            combined.data = d.state
            combined.size = d.state_size
        if d.flags & IN_ROUTED:
            return (<Party>d.upstream).outcome(d, kind, &combined, True)
        d.flags |= IN_FINAL
        if combined.data is not d.state:
            in_keep_state(d, kind, &combined)
        return 0
    if terminal(kind) and rank(kind) > rank(d.kind):
        if kind == D_DECLARED:
            combined = plain_state(D_REJECTED)
            in_keep_state(d, D_REJECTED, &combined)
        else:
            in_keep_state(d, kind, state)
    if settled:
        out_detach(o)
        o.kind = kind
    elif terminal(kind) and not o.kind:
        o.kind = kind
        d.pending -= 1
    if not d.flags & IN_ROUTED or (d.live and (d.pending or d.flags & IN_TOLD)):
        return 0
    combined.data = d.state
    combined.size = d.state_size
    if d.live == 0:
        (<Party>d.upstream).outcome(d, d.kind, &combined, True)
    elif d.kind:
        d.flags |= IN_TOLD
        (<Party>d.upstream).outcome(d, d.kind, &combined, False)
    return 0


cdef int out_left(OutDelivery* o) except -1:
    """A presettled copy has left its queue (written or dropped): it holds nothing back any more."""
    cdef InDelivery* d = o.peer
    if d is NULL:
        return 0
    out_detach(o)
    if d.flags & IN_PRESETTLED and d.flags & IN_COMPLETE and d.live == 0 and d.flags & IN_ROUTED:
        (<Party>d.upstream).returned(d)
    return 0


cdef uint32_t own_charge(Party s, const Content* c, uint64_t most) noexcept:
    cdef uint64_t charge = OWN_STREAM
    if c.complete:
        charge = OWN_OVERHEAD + (c.stored.size if c.stored is not NULL else c.size)
        if charge > 0xFFFFFFFF:
            charge = 0xFFFFFFFF
    return <uint32_t>charge if s.own_octets == 0 or s.own_octets + charge <= most else 0


cdef void queue_append(Party s, OutDelivery* o) noexcept:
    o.flags |= OUT_QUEUED
    s.own_octets += o.charge
    o.next = NULL
    o.previous = s.queue_last
    if s.queue_last is not NULL:
        s.queue_last.next = o
    else:
        s.queue_first = o
    s.queue_last = o


cdef void queue_remove(Party s, OutDelivery* o) noexcept:
    o.flags &= ~OUT_QUEUED
    s.own_octets -= o.charge
    if o.previous is not NULL:
        o.previous.next = o.next
    else:
        s.queue_first = o.next
    if o.next is not NULL:
        o.next.previous = o.previous
    else:
        s.queue_last = o.previous
    o.previous = o.next = NULL


cdef void sent_append(Party s, OutDelivery* o) noexcept:
    o.next = NULL
    o.previous = s.sent_last
    if s.sent_last is not NULL:
        s.sent_last.next = o
    else:
        s.sent_first = o
    s.sent_last = o


cdef void sent_remove(Party s, OutDelivery* o) noexcept:
    if o.previous is not NULL:
        o.previous.next = o.next
    else:
        s.sent_first = o.next
    if o.next is not NULL:
        o.next.previous = o.previous
    else:
        s.sent_last = o.previous
    o.previous = o.next = NULL


# ---------------------------------------------------------------------------------------------------------------------
# Map of ids

cdef inline uint32_t slot_of(const IdMap* m, uint64_t key) noexcept nogil:
    # The multiplier spreads what is above a delivery-id (a link's number); ids alone stay consecutive.
    return (<uint32_t>key + <uint32_t>(key >> 32) * <uint32_t>2654435761) & (m.size - 1)


cdef bint map_resize(IdMap* m, uint32_t size) noexcept nogil:
    """False: there is no memory, and the map is as it was."""
    cdef IdMap other
    cdef uint32_t i
    other.size = size
    other.used = 0
    other.keys = <uint64_t*>malloc(size * sizeof(uint64_t))
    other.values = <void**>calloc(size, sizeof(void*))
    if other.keys is NULL or other.values is NULL:
        free(other.keys)
        free(other.values)
        return False
    for i in range(m.size):
        if m.values[i] is not NULL:
            map_insert(&other, m.keys[i], m.values[i])
    free(m.keys)
    free(m.values)
    m[0] = other
    return True


cdef inline uint32_t distance(const IdMap* m, uint32_t i) noexcept nogil:
    """How far the entry in slot i is from where its key belongs."""
    return (i - slot_of(m, m.keys[i])) & (m.size - 1)


cdef inline void map_insert(IdMap* m, uint64_t key, void* value) noexcept nogil:
    # Robin Hood: who is nearer to home makes room, so that a removal stops at the first entry that is at home.
    cdef uint32_t i = slot_of(m, key)
    cdef uint32_t far = 0
    cdef uint32_t other
    cdef uint64_t other_key
    cdef void* other_value
    m.used += 1
    while m.values[i] is not NULL:
        other = distance(m, i)
        if other < far:
            other_key = m.keys[i]
            other_value = m.values[i]
            m.keys[i] = key
            m.values[i] = value
            key = other_key
            value = other_value
            far = other
        i = (i + 1) & (m.size - 1)
        far += 1
    m.keys[i] = key
    m.values[i] = value


cdef int map_put(IdMap* m, uint64_t key, void* value) except -1:
    """The key is not in the map."""
    if m.used * 2 >= m.size and not map_resize(m, m.size * 2 if m.size else MAP_FIRST):
        raise MemoryError("map of deliveries")
    map_insert(m, key, value)
    return 0


cdef void* map_get(const IdMap* m, uint64_t key) noexcept nogil:
    cdef uint32_t i
    cdef uint32_t far = 0
    if m.used == 0:
        return NULL
    i = slot_of(m, key)
    while m.values[i] is not NULL:
        if m.keys[i] == key:
            return m.values[i]
        if distance(m, i) < far:
            break
        i = (i + 1) & (m.size - 1)
        far += 1
    return NULL


cdef void* map_take(IdMap* m, uint64_t key) noexcept nogil:
    cdef uint32_t i, following
    cdef uint32_t far = 0
    cdef void* value
    if m.used == 0:
        return NULL
    i = slot_of(m, key)
    while m.values[i] is not NULL and m.keys[i] != key:
        if distance(m, i) < far:
            return NULL
        i = (i + 1) & (m.size - 1)
        far += 1
    value = m.values[i]
    if value is NULL:
        return NULL
    m.used -= 1
    while True:
        following = (i + 1) & (m.size - 1)
        if m.values[following] is NULL or distance(m, following) == 0:
            break
        m.keys[i] = m.keys[following]
        m.values[i] = m.values[following]
        i = following
    m.values[i] = NULL
    if m.size > MAP_KEPT and m.used * 16 < m.size:
        # A range of ids that are not there walks through the slots.
        map_resize(m, m.size // 4)
    return value


cdef void map_free(IdMap* m) noexcept nogil:
    free(m.keys)
    free(m.values)
    m.keys = NULL
    m.values = NULL
    m.size = m.used = 0


class TestMap:
    """IdMap for property tests: keys to non-zero integers."""

    def __init__(self):
        self.map = _Map()

    def put(self, key, value):
        _map_put(self.map, key, value)

    def get(self, key):
        return _map_get(self.map, key)

    def take(self, key):
        return _map_take(self.map, key)

    def slots(self):
        return _map_slots(self.map)


cdef class _Map:
    cdef IdMap map

    def __dealloc__(self):
        map_free(&self.map)


def _map_put(_Map m, uint64_t key, size_t value):
    map_put(&m.map, key, <void*>value)


def _map_get(_Map m, uint64_t key):
    return <size_t>map_get(&m.map, key)


def _map_take(_Map m, uint64_t key):
    return <size_t>map_take(&m.map, key)


def _map_slots(_Map m):
    return m.map.size


cdef void pools_drop() noexcept:
    """Free the deliveries that nobody uses."""
    global in_pool, in_pooled, out_pool, out_pooled
    cdef InDelivery* d
    cdef OutDelivery* o
    while in_pool is not NULL:
        d = in_pool
        in_pool = d.next
        free(d)
    while out_pool is not NULL:
        o = out_pool
        out_pool = o.next
        free(o)
    in_pooled = out_pooled = 0

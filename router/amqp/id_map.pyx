"""Hash map from delivery-ids to deliveries.

The table has a power of two of slots and uses open addressing. Colliding entries are ordered by the distance from
their homes (Robin Hood hashing).
"""
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort

cdef enum:
    MAP_FIRST = 16             # slots of a new map


cdef bint map_resize(IdMap* m, uint32_t size) noexcept nogil:
    """Rehash the map into `size` slots. False: no memory, and the map is unchanged."""
    cdef IdMap other
    cdef uint32_t i
    other.size = size
    other.used = 0
    other.displaced = False
    other.slots = <IdSlot*>calloc(size, sizeof(IdSlot))
    if other.slots is NULL:
        return False
    for i in range(m.size):
        if m.slots[i].value is not NULL:
            map_insert(&other, m.slots[i].key, m.slots[i].value)
    free(m.slots)
    m[0] = other
    return True


cdef int map_grow(IdMap* m) except -1:
    if not map_resize(m, m.size * 2 if m.size else MAP_FIRST):
        raise MemoryError("map of deliveries")
    return 0


cdef inline uint32_t distance(const IdMap* m, uint32_t i) noexcept nogil:
    """Return the distance of the entry in slot i from its home."""
    return (i - <uint32_t>(home_of(m, m.slots[i].key) - m.slots)) & (m.size - 1)


cdef bint map_insert(IdMap* m, uint64_t key, void* value) noexcept nogil:
    # Robin Hood: the entry nearer to its home is moved on. So a removal stops at the first entry that is in its home.
    cdef uint32_t i = <uint32_t>(home_of(m, key) - m.slots)
    cdef uint32_t far = 0
    cdef uint32_t other
    cdef IdSlot displaced
    # An equal key has the same home, so it is found before the first entry that has to move.
    while m.slots[i].value is not NULL:
        if m.slots[i].key == key:
            return False
        m.displaced = True
        other = distance(m, i)
        if other < far:
            displaced = m.slots[i]
            m.slots[i].key = key
            m.slots[i].value = value
            key = displaced.key
            value = displaced.value
            far = other
        i = (i + 1) & (m.size - 1)
        far += 1
    m.slots[i].key = key
    m.slots[i].value = value
    m.used += 1
    return True


cdef uint32_t slot_of_key(const IdMap* m, uint64_t key) noexcept nogil:
    """Return the slot of a key, or `size`. The map must not be empty."""
    cdef uint32_t i = <uint32_t>(home_of(m, key) - m.slots)
    cdef uint32_t far = 0
    while m.slots[i].value is not NULL:
        if m.slots[i].key == key:
            return i
        if distance(m, i) < far:
            break
        i = (i + 1) & (m.size - 1)
        far += 1
    return m.size


cdef void* map_find(const IdMap* m, uint64_t key) noexcept nogil:
    cdef uint32_t i
    if m.used == 0:
        return NULL
    i = slot_of_key(m, key)
    return m.slots[i].value if i < m.size else NULL


cdef void* map_remove(IdMap* m, uint64_t key) noexcept nogil:
    cdef uint32_t i, following
    cdef void* value
    if m.used == 0:
        return NULL
    i = slot_of_key(m, key)
    if i == m.size:
        return NULL
    value = m.slots[i].value
    m.used -= 1
    while True:
        following = (i + 1) & (m.size - 1)
        if m.slots[following].value is NULL or distance(m, following) == 0:
            break
        m.slots[i] = m.slots[following]
        i = following
    m.slots[i].value = NULL
    if m.used == 0:
        m.displaced = False
    if m.size > MAP_KEPT:
        map_shrink(m)
    return value


cdef void map_shrink(IdMap* m) noexcept nogil:
    # Shrinking bounds the slots that a range of missing ids walks through.
    if m.used * 16 < m.size:
        map_resize(m, m.size // 4)


cdef void map_free(IdMap* m) noexcept nogil:
    free(m.slots)
    m.slots = NULL
    m.size = m.used = 0
    m.displaced = False


cdef int compare_keys(const void* a, const void* b) noexcept nogil:
    cdef uint32_t x = (<uint32_t*>a)[0]
    cdef uint32_t y = (<uint32_t*>b)[0]
    return -1 if x < y else x > y


cdef uint32_t* map_keys_within(const IdMap* m, uint32_t first, uint32_t* count) except NULL:
    cdef uint32_t* ids = <uint32_t*>malloc((m.used + 1) * sizeof(uint32_t))
    cdef uint32_t i, found = 0
    if ids is NULL:
        raise MemoryError("keys of a map")
    for i in range(m.size):
        if m.slots[i].value is not NULL and <uint32_t>m.slots[i].key - first < count[0]:
            ids[found] = <uint32_t>m.slots[i].key - first
            found += 1
    qsort(ids, found, sizeof(uint32_t), compare_keys)
    for i in range(found):
        ids[i] += first
    count[0] = found
    return ids

"""Hash map from delivery-ids to deliveries."""
from libc.stdint cimport uint32_t, uint64_t

# Entry of a map from delivery-ids, or other 64-bit keys, to deliveries. The table has a power of two of slots and
# keeps consecutive ids in order, so that a look-up is one comparison. Its size follows the number of entries, not the
# range of ids.
cdef struct IdSlot:
    uint64_t key
    void* value                # NULL: the slot is free

cdef struct IdMap:
    IdSlot* slots
    uint32_t size              # number of slots, a power of two or 0
    uint32_t used
    bint displaced             # an entry may be in another slot than its home

cdef enum:
    MAP_KEPT = 4096            # slots that a map keeps, however few are used

cdef int map_grow(IdMap* m) except -1
# Insert a key whose home is taken. False: the key is in use, and the map is unchanged.
cdef bint map_insert(IdMap* m, uint64_t key, void* value) noexcept nogil
cdef void* map_find(const IdMap* m, uint64_t key) noexcept nogil
cdef void* map_remove(IdMap* m, uint64_t key) noexcept nogil
# Reduce the slots of a map that has more than MAP_KEPT and uses few of them.
cdef void map_shrink(IdMap* m) noexcept nogil
cdef void map_free(IdMap* m) noexcept nogil
# Return the keys from `first` to `first + count - 1` (mod 2**32) in that order, and their number in `count`. For
# ranges much longer than the number of entries. The caller frees the array.
cdef uint32_t* map_keys_within(const IdMap* m, uint32_t first, uint32_t* count) except NULL


cdef inline IdSlot* home_of(const IdMap* m, uint64_t key) noexcept nogil:
    """Return the home slot of a key."""
    # The multiplier spreads the upper half, such as a link number. Delivery-ids alone stay consecutive.
    return &m.slots[(<uint32_t>key + <uint32_t>(key >> 32) * <uint32_t>2654435761) & (m.size - 1)]


cdef inline int map_reserve(IdMap* m) except -1:
    """Reserve room for one more key, so that the next map_put does not fail."""
    return map_grow(m) if m.used * 2 >= m.size else 0


cdef inline int map_put(IdMap* m, uint64_t key, void* value) except -1:
    """Insert a key and return 1. 0: the key is in use, and the map is unchanged.

    A map never holds a key twice: a look-up would return the wrong delivery, and the other one would never be removed.
    """
    map_reserve(m)
    return map_put_reserved(m, key, value)


cdef inline bint map_put_reserved(IdMap* m, uint64_t key, void* value) noexcept nogil:
    """Insert a key as map_put does, after map_reserve."""
    cdef IdSlot* home = home_of(m, key)
    if home.value is not NULL:
        return map_insert(m, key, value)   # only in this case can the key be in the map
    home.key = key
    home.value = value
    m.used += 1
    return True


cdef inline void* map_get(const IdMap* m, uint64_t key) noexcept nogil:
    cdef const IdSlot* home
    if m.used == 0:
        return NULL
    home = home_of(m, key)
    if home.value is not NULL and home.key == key:
        return home.value
    return map_find(m, key) if m.displaced else NULL


cdef inline void* map_take(IdMap* m, uint64_t key) noexcept nogil:
    cdef IdSlot* home
    cdef void* value
    if m.displaced:
        return map_remove(m, key)
    if m.used == 0:
        return NULL
    home = home_of(m, key)
    value = home.value
    if value is NULL or home.key != key:
        return NULL
    home.value = NULL
    m.used -= 1
    if m.size > MAP_KEPT:
        map_shrink(m)
    return value


cdef inline void map_take_known(IdMap* m, uint64_t first, uint32_t n) noexcept nogil:
    """Remove n consecutive keys that are in the map."""
    cdef IdSlot* slots = m.slots
    cdef uint32_t mask = m.size - 1
    cdef uint32_t at, i
    if m.displaced or <uint32_t>(first + n) < n:
        # Some entries are not in their homes, or the homes are not consecutive, since the upper halves of the keys
        # differ.
        for i in range(n):
            map_remove(m, first + i)
        return
    at = <uint32_t>(home_of(m, first) - slots)
    for i in range(n):
        slots[(at + i) & mask].value = NULL
    m.used -= n
    if m.size > MAP_KEPT:
        map_shrink(m)

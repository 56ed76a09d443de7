"""Cached prefixes: the leading sections of a link's recent messages with annotations, each with the
plan for it (docs/internals/life-of-a-message.md, "Between routers").

A prefix is the message up to and including its message-annotations. Equal prefixes lead to equal plans.
"""
from libc.stdint cimport uint8_t, uint64_t

from sluice.router.amqp.items cimport item_at
from sluice.router.delivery.plan cimport Plan
from sluice.router.table.table cimport ForwardingAddress
from sluice.router.message.scanned_prefix cimport ScannedPrefix, has_prefix
from sluice.router.message.sections cimport Sections

cdef enum:
    # Most prefixes cached for one link. On a link between routers, the interleaved messages of each producer need one.
    # With more producers than prefixes, messages of the others are scanned each time.
    CACHED_PREFIXES = 4
    # Every eighth message whose prefix is not cached replaces a cached prefix.
    PREFIX_CACHE_EVERY = 8

# Cached prefix of a link's messages. Owner: the handler of the link.
cdef class CachedPrefix:
    cdef ScannedPrefix last                # octets of the prefix, and the sections that `scan` found in them
    cdef Plan plan                         # for messages with this prefix
    # For a link from a router: address to which messages with this prefix go; None: this router does not know it.
    # Valid while `version` equals Table.recent.version.
    cdef ForwardingAddress address
    cdef uint64_t version

# Cache the prefix of a message, which must equal no cached one; the least recently used prefix makes room. found: the
# result of `scan` without properties. Returns the list, or None while nothing is cached.
cdef list keep_prefix(list cached_prefixes, const uint8_t* data, size_t size, const Sections* found)
# Search for a message's prefix behind the first entry of the list. NULL: not cached. Pointers are borrowed.
cdef void* find_further_prefix(void* cached_prefixes, const uint8_t* data, size_t size) noexcept


cdef inline void* find_prefix(void* cached_prefixes, const uint8_t* data, size_t size) noexcept:
    """Return the CachedPrefix that a message has, and move it to the front of the list; NULL: not cached.

    cached_prefixes: a list that is not empty, or None. The list and the result are borrowed.
    """
    cdef void* first
    if cached_prefixes is <void*>None:
        return NULL
    first = item_at(cached_prefixes, 0)
    if has_prefix(&(<CachedPrefix>first).last, data, size):
        return first
    return find_further_prefix(cached_prefixes, data, size)

"""Which addresses a group may send to or receive from, compiled: asked for each message of an anonymous sender."""
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef struct Node:
    uint32_t first              # of its edges, which are in order of their labels
    uint32_t edges
    int32_t user                # NameList: the node behind ${user}; NamePatterns: the one behind `*`; -1: none
    int32_t any                 # NamePatterns: the node behind `#`; -1: none
    uint8_t flags

cdef struct Token:
    uint32_t hash
    uint32_t start              # in the octets of all tokens
    uint32_t size
    int32_t label               # -1: a free place

cdef class NameRules:
    cdef Node* nodes
    cdef uint32_t* labels       # of all edges
    cdef int32_t* targets

    cdef bint allows(self, const uint8_t* address, size_t size, const uint8_t* user, size_t user_size) noexcept
    cdef int32_t child(self, const Node* node, uint32_t label) noexcept

cdef class NameList(NameRules):
    cdef readonly bint everything

    cdef bint walk(self, int32_t start, const uint8_t* rest, size_t size, bint whole) noexcept

cdef class NamePatterns(NameRules):
    cdef Token* tokens          # a hash table, open addressing
    cdef uint32_t token_mask
    cdef bytes octets           # of all tokens
    cdef const uint8_t* octet
    cdef int32_t* now           # nodes reached by the tokens so far, and by the next one
    cdef int32_t* then
    cdef uint32_t* marks        # by node: the stamp of the step that has reached it last
    cdef uint32_t stamp
    cdef uint32_t size

    cdef bint match(self, int32_t root, const uint8_t* text, size_t size, bint none) noexcept
    cdef int32_t label(self, const uint8_t* token, size_t size) noexcept
    cdef uint32_t reach(self, int32_t* nodes, uint32_t count, int32_t node) noexcept
    cdef bint step(self, uint32_t* count, const uint8_t* token, size_t size) noexcept

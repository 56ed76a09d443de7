"""Compiled rules about the addresses that a group may use. They are applied to each message of an anonymous sender."""
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef struct Node:
    uint32_t first              # index of its first edge; its edges are in order of their labels
    uint32_t edges
    int32_t user                # NameList: node after ${user}; NamePatterns: node after `*`; -1: none
    int32_t any                 # NamePatterns: node after `#`; -1: none
    uint8_t flags

cdef struct Token:
    uint32_t hash
    uint32_t start              # offset in the octets of all tokens
    uint32_t size
    int32_t label               # -1: free entry of the hash table

cdef class NameRules:
    cdef Node* nodes
    cdef uint32_t* labels       # label by edge
    cdef int32_t* targets       # node by edge

    cdef bint allows(self, const uint8_t* address, size_t size, const uint8_t* user, size_t user_size) noexcept
    cdef int32_t child(self, const Node* node, uint32_t label) noexcept

cdef class NameList(NameRules):
    cdef readonly bint everything

    cdef bint walk(self, int32_t start, const uint8_t* rest, size_t size, bint whole) noexcept

cdef class NamePatterns(NameRules):
    cdef Token* tokens          # hash table with open addressing
    cdef uint32_t token_mask
    cdef bytes octets           # octets of all tokens
    cdef const uint8_t* octet   # address of `octets`, which this object owns
    cdef int32_t* now           # nodes reached by the tokens so far
    cdef int32_t* then          # nodes reached by the next token
    cdef uint32_t* marks        # by node: stamp of the step that reached it last
    cdef uint32_t stamp
    cdef uint32_t size          # number of nodes

    cdef bint match(self, int32_t root, const uint8_t* text, size_t size, bint none) noexcept
    cdef int32_t label(self, const uint8_t* token, size_t size) noexcept
    cdef uint32_t reach(self, int32_t* nodes, uint32_t count, int32_t node) noexcept
    cdef bint step(self, uint32_t* count, const uint8_t* token, size_t size) noexcept

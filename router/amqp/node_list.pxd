"""Doubly linked lists of objects by borrowed pointers. An object leaves its list when it is deallocated."""

# Node of a list, embedded in its object. The object calls `node_dealloc` from its __dealloc__.
cdef struct ListNode:
    ListNode* next
    ListNode* previous
    NodeList* list             # list that contains the node, or NULL
    void* object               # borrowed: the object that contains the node

# List, embedded in the object that owns it. The owner calls `list_clear` from its __dealloc__.
cdef struct NodeList:
    ListNode* first
    ListNode* last


cdef extern from *:
    """
    #include <stdio.h>
    #include <stdlib.h>

    /* The debug flavour aborts if an object is deallocated while it is in a list. */
    #ifdef SLUICE_DEBUG
    static inline void died_in_list(void) { fputs("an object was deallocated within a list\\n", stderr); abort(); }
    #else
    static inline void died_in_list(void) { }
    #endif
    """
    void died_in_list() noexcept nogil


cdef inline void list_append(NodeList* l, ListNode* node) noexcept nogil:
    node.list = l
    node.next = NULL
    node.previous = l.last
    if l.last is not NULL:
        l.last.next = node
    else:
        l.first = node
    l.last = node


cdef inline void list_prepend(NodeList* l, ListNode* node) noexcept nogil:
    node.list = l
    node.previous = NULL
    node.next = l.first
    if l.first is not NULL:
        l.first.previous = node
    else:
        l.last = node
    l.first = node


cdef inline void list_remove(ListNode* node) noexcept nogil:
    """Remove the node from its list."""
    if node.previous is not NULL:
        node.previous.next = node.next
    else:
        node.list.first = node.next
    if node.next is not NULL:
        node.next.previous = node.previous
    else:
        node.list.last = node.previous
    node.next = node.previous = NULL
    node.list = NULL


cdef inline void list_clear(NodeList* l) noexcept nogil:
    """Remove all nodes."""
    while l.first is not NULL:
        list_remove(l.first)


cdef inline void node_dealloc(ListNode* node) noexcept nogil:
    """Remove the node of an object that is being deallocated."""
    if node.list is not NULL:
        died_in_list()
        list_remove(node)

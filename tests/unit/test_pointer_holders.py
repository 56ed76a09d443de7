"""List of untyped pointers and of the reason why each object outlives its pointer (principles.md, 18)."""

from pathlib import Path
from typing import Final

from tests.unit.pointer_fields import pointer_fields

ROOT = Path(__file__).parents[2]
FOLDERS = ("router", "workers", "supervisor", "pipeline")

#: The pointer refers into the object itself, or to something that the object frees before it ends.
PART_OF_IT: Final = "part of the object"
#: The object removes itself, or sets the pointer to NULL, when its memory is freed.
LEAVES: Final = "the object leaves when its memory is freed"
#: A generation is stored beside the pointer and compared before the pointer is followed.
GENERATION: Final = "compared with a generation first"
#: The pointer is compared with others, together with a delivery-id, and never followed.
COMPARED: Final = "never followed"
#: The pointer is a variable on the stack, used while no object can be freed.
ONE_CALL: Final = "lives for one call"
#: The field holds a reference, given back with the struct.
REFERENCE: Final = "a reference of the struct"

ALLOWED: Final = {
    ("pipeline/bulk_sender.pxd", "MessageRow", "messages"): PART_OF_IT,
    ("router/amqp/endpoint.pxd", "DeliveryEntryOwner", "link"): PART_OF_IT,
    ("router/amqp/id_map.pxd", "IdSlot", "value"): PART_OF_IT,
    ("router/amqp/meter.pxd", "Meter", "owner"): LEAVES,
    ("router/amqp/node_list.pxd", "ListNode", "object"): LEAVES,
    ("router/amqp/survey.pxd", "Survey", "awaited_by"): ONE_CALL,
    ("router/amqp/survey.pxd", "Survey", "most"): ONE_CALL,
    ("router/amqp/survey.pxd", "Survey", "unrouted_link"): ONE_CALL,
    ("router/delivery/delivery.pxd", "DeliveryNode", "owner"): PART_OF_IT,
    ("router/delivery/slab.pxd", "Pool", "next"): PART_OF_IT,
    ("router/delivery/slab.pxd", "Pool", "end"): PART_OF_IT,
    ("router/delivery/plan.pxd", "Leg", "link"): GENERATION,
    ("router/delivery/plan.pxd", "Plan", "address"): GENERATION,
    ("router/table/choice.pxd", "Choice", "consumer"): GENERATION,
    ("router/table/chooser.pyx", "BestConsumer", "consumer"): ONE_CALL,
    ("router/table/chooser.pyx", "BestEdgeConsumer", "consumer"): ONE_CALL,
    ("router/ring/link_table.pxd", "LinkPlace", "link"): LEAVES,
    ("router/links/consumer_link.pxd", "ConsumerLink", "place"): LEAVES,
    ("router/table/tap.pxd", "CopyRoom", "source"): REFERENCE,
    ("router/tracing/tracer.pyx", "PendingSpan", "key"): LEAVES,
}


def test_untyped_pointers_are_listed() -> None:
    found = {
        (str(path.relative_to(ROOT)), owner, field)
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*.p[xy][dx]")
        for owner, field in pointer_fields(path.read_text())
    }
    assert found - set(ALLOWED) == set(), "what keeps the object alive?"
    assert set(ALLOWED) - found == set(), "remove these fields from ALLOWED: they no longer exist"


def test_pointer_field_is_found() -> None:
    text = """
cdef struct Place:
    uint32_t number
    void* link                 # borrowed (for ever)
    PyObject*[4] near

cdef class Slots:
    cdef readonly int size
    cdef void** places         # of links
    cdef const void* last
    cdef int look(self, void* link) noexcept:
        cdef void* found = NULL
        return 0

cdef void* free_function(void* link)
cdef void* module_variable
"""
    assert list(pointer_fields(text)) == [("Place", "link"), ("Place", "near"), ("Slots", "places"), ("Slots", "last")]

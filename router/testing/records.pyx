"""Encoders and decoders of ring records for property tests.

A variable part of a decoded record is shown as (offset from the start of the record, octets), or None if absent.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from sluice.router.amqp.codec cimport Slice
from sluice.router.ring.records cimport (
    R_TRANSFER, DeliveryRecord, DeliveryHead, LinkHead, LinkRecord, RecordTarget, TransferRecord, decode_delivery,
    decode_link,
    decode_transfer, delivery_record, encode_link, encode_transfer, transfer_octets, window_record,
)


cdef Slice slice_of(const uint8_t[::1] octets):
    cdef Slice found
    found.size = octets.shape[0]
    found.data = &octets[0] if found.size else NULL
    return found


cdef object part(const uint8_t* begin, const Slice* found):
    return None if found.data is NULL else (found.data - begin, found.size)


def transfer(int flags, int kind, int phase, uint32_t message_format, uint64_t key, list targets not None,
             bytes to not None, bytes served not None, bytes state not None, bytes data not None):
    """Encode a TRANSFER record. `targets` are pairs (slot, generation)."""
    cdef TransferRecord r
    cdef DeliveryHead head
    cdef RecordTarget* places = <RecordTarget*>malloc((len(targets) + 1) * sizeof(RecordTarget))
    cdef uint64_t size = transfer_octets(<uint32_t>len(targets), len(to), len(served), len(state))
    cdef bytearray octets = bytearray(size)
    cdef uint8_t[::1] view = octets
    cdef uint8_t* end
    if places is NULL:
        raise MemoryError("targets")
    memset(&head, 0, sizeof(DeliveryHead))
    memset(&r, 0, sizeof(TransferRecord))
    head.type = R_TRANSFER
    head.flags = <uint8_t>flags
    head.kind = <uint8_t>kind
    head.phase = <uint8_t>phase
    head.format = message_format
    head.key = key
    head.count = <uint32_t>len(targets)
    for number, (slot, generation) in enumerate(targets):
        places[number].slot = slot
        places[number].generation = generation
    r.head = &head
    r.targets = places
    r.to = slice_of(to)
    r.served = slice_of(served)
    r.state = slice_of(state)
    end = encode_transfer(&view[0], &r)
    free(places)
    assert end - &view[0] == <ssize_t>size, "the encoder writes as many octets as `transfer_octets` says"
    return bytes(octets) + data


def read_transfer(const uint8_t[::1] octets not None):
    """Return the fields of a TRANSFER record by name, None if it is malformed."""
    cdef TransferRecord r
    cdef const uint8_t* begin = &octets[0] if octets.shape[0] else NULL
    if not decode_transfer(begin, octets.shape[0], &r):
        return None
    targets = (<const uint8_t*>r.targets - begin, r.head.count * sizeof(RecordTarget))
    return {
        "flags": r.head.flags, "kind": r.head.kind, "phase": r.head.phase, "format": r.head.format, "key": r.head.key,
        "targets": targets, "to": part(begin, &r.to), "served": part(begin, &r.served), "state": part(begin, &r.state),
        "data": part(begin, &r.data),
    }


def delivery(int code, int flags, int kind, uint64_t key, uint32_t count, bytes body not None, bint stated=True):
    """Encode another record of a delivery. `stated`: the body is a delivery state whose size is in the head."""
    cdef DeliveryHead head
    cdef Slice state = slice_of(body)
    delivery_record(&head, <uint8_t>code, <uint8_t>flags, <uint8_t>kind, key, count, &state if stated else NULL)
    return (<uint8_t*>&head)[:sizeof(DeliveryHead)] + body


def window(uint64_t key, uint32_t octets):
    cdef DeliveryHead head
    window_record(&head, key, octets)
    return (<uint8_t*>&head)[:sizeof(DeliveryHead)]


def read_delivery(const uint8_t[::1] octets not None):
    """Return the fields of another record of a delivery by name, None if it is malformed."""
    cdef DeliveryRecord r
    cdef const uint8_t* begin = &octets[0] if octets.shape[0] else NULL
    if not decode_delivery(begin, octets.shape[0], &r):
        return None
    return {
        "type": r.head.type, "flags": r.head.flags, "kind": r.head.kind, "key": r.head.key, "count": r.head.count,
        "format": r.head.format, "body": part(begin, &r.body),
    }


def link(int code, int flags, int kind, uint32_t slot, uint32_t generation, uint64_t key, bytes tag not None,
         bytes state not None, bytes data not None):
    """Encode a record of a routed link."""
    cdef LinkRecord r
    cdef LinkHead head
    cdef bytearray octets = bytearray(sizeof(LinkHead) + len(tag) + len(state))
    cdef uint8_t[::1] view = octets
    memset(&head, 0, sizeof(LinkHead))
    memset(&r, 0, sizeof(LinkRecord))
    head.type = <uint8_t>code
    head.flags = <uint8_t>flags
    head.kind = <uint8_t>kind
    head.slot = slot
    head.generation = generation
    head.key = key
    r.head = &head
    r.tag = slice_of(tag)
    r.state = slice_of(state)
    assert encode_link(&view[0], &r) - &view[0] == <ssize_t>len(octets)
    return bytes(octets) + data


def read_link(const uint8_t[::1] octets not None):
    """Return the fields of a record of a routed link by name, None if it is malformed."""
    cdef LinkRecord r
    cdef const uint8_t* begin = &octets[0] if octets.shape[0] else NULL
    if not decode_link(begin, octets.shape[0], &r):
        return None
    return {
        "type": r.head.type, "flags": r.head.flags, "kind": r.head.kind, "slot": r.head.slot,
        "generation": r.head.generation, "key": r.head.key, "tag": part(begin, &r.tag), "state": part(begin, &r.state),
        "data": part(begin, &r.data),
    }

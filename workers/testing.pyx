"""What tests need of the event loop that only compiled code can reach: transports that fail by a fault of ours."""
from libc.stdint cimport uint8_t

from router.amqp.counters cimport use_worker_slot
from workers.loop cimport Transport


class InjectedError(Exception):
    """The fault of a test."""


cdef class FaultyTransport(Transport):
    """A transport that raises InjectedError where `fails` says: "read", "write" or "go on"."""
    cdef public str fails

    cdef ssize_t read_some(self, uint8_t* data, size_t size) except? -2:
        if self.fails == "read":
            raise InjectedError("read")
        return Transport.read_some(self, data, size)

    cdef ssize_t write_some(self, const uint8_t* data, size_t size) except? -2:
        if self.fails == "write":
            raise InjectedError("write")
        return Transport.write_some(self, data, size)

    def go_on(self):
        if self.fails == "go on":
            raise InjectedError("go on")
        Transport.go_on(self)


def count_privately():
    """This process counts in no region any more: a loop of a test made it do so."""
    use_worker_slot(NULL)

"""Origin of a producer's messages: facts about its connection that hold for each of them."""


cdef class ProducerOrigin:
    """Origin of messages. Owner: the handler of a link."""

    def __cinit__(self, *, honour=False, tenant=None, container=False, MessageRules rules=None, edge=0, mark=None,
                  checks=False):
        """Parameters: see the fields in producer_origin.pxd."""
        self.honour = honour
        self.tenant = tenant
        self.container = container
        self.rules = rules
        self.edge = edge
        self.mark = mark
        self.checks = checks

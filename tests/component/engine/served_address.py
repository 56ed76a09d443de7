"""Router in this process that serves an address itself, as its management agent does."""

from sluice.supervisor.addresses.inprocess import LocalMessage
from tests.peer.talk import consumer, frames, messages, producer, start

KEY = "M0inner"


class ServedAddressRouter:
    """Router that serves the address "inner". Messages that it has received are in `taken`."""

    def __init__(self, router):
        self.router = router
        self.inner = router.core.in_process
        self.taken: list[LocalMessage] = []
        self.inner.serve(KEY, self.taken.append)
        router.settle()

    def sender(self, address: "str | None" = "inner", worker=0, listener="main", **more):
        peer = self.router.connect(worker, listener)
        peer.feed(start() + producer(0, address, **more))
        self.router.settle()
        frames(peer)
        return peer

    def consumer(self, address, credit=0x7FFFFFFF, worker=0, listener="main", **more):
        peer = self.router.connect(worker, listener)
        peer.feed(start(**more) + consumer(0, address, credit))
        self.router.settle()
        frames(peer)
        return peer

    def received(self, peer):
        self.router.settle()
        return messages(frames(peer))

    def counters(self, record_key):
        number = self.router.core.table.records[record_key].id
        return self.router.region.address_totals(number)

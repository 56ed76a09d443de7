"""Read-only table that a worker routes by: addresses, their consumers, exchanges. Changed only between two wakes."""
from cpython.list cimport PyList_GET_SIZE
from cpython.object cimport PyObject

from sluice.router.table.consumer cimport find_consumer
from sluice.router.table.network cimport RemoteDestination, Path

from enum import IntEnum

from sluice.router.amqp import codec
from sluice.router.links.consumer_link import Overflow
from sluice.router.control import ops as control
from sluice.router.addressing import address as addresses
from sluice.router.addressing.binding_keys import KeyMatcher
from sluice.router.addressing.pattern import PatternTree
from sluice.router.addressing.settings import UNAVAILABLE as UNAVAILABLE_TEXT
from sluice.router.addressing.settings import NETWORK, SERVICES, AddressSettings
from sluice.router.policy import management

cdef extern from "Python.h":
    PyObject* item_of "PyList_GET_ITEM"(list items, Py_ssize_t index) noexcept

cdef enum:
    LOOKUPS_KEPT = 16384       # cached look-ups: of addresses in anonymous messages, and of subjects of an exchange
    TEXT_KEPT = 1024           # octets of the longest text that is cached

# The treatments by name, for Python.
Treatment = IntEnum("Treatment", {
    "BALANCED": BALANCED, "CLOSEST": CLOSEST, "MULTICAST": MULTICAST, "UNAVAILABLE": UNAVAILABLE,
}, module=__name__)

cdef str UPLINK_KEY = addresses.key(addresses.LOCAL, addresses.UPLINK)
cdef dict TREATMENTS = {"balanced": BALANCED, "closest": CLOSEST, "multicast": MULTICAST, "unavailable": UNAVAILABLE}
cdef dict OVERFLOWS = {"throttle": Overflow.OVERFLOW_THROTTLE, "block": Overflow.OVERFLOW_BLOCK,
                       "dropOldest": Overflow.OVERFLOW_DROP_OLDEST}


class TableError(Exception):
    """Raised for a delta that does not fit the table; the worker then requests a snapshot."""


cdef class ForwardingAddress:
    def __repr__(self):
        return f"<Address {self.id} {self.key} consumers={len(self.consumers)}>"

    cdef bint suspended(self) noexcept:
        return len(self.consumers) == 1 and (<Consumer>self.consumers[0]).suspended

    cdef bint reachable(self, bint fallback) noexcept:
        """Return True if producers may have credit: the address has a destination, or its fallback has.

        fallback: the producer's deliveries may go to the fallback.
        """
        if self.special & SPECIAL_REQUIRED and not taps_reachable(self.taps):
            return False
        return (bool(self.consumers) and not self.suspended()) or self.inproc or self.uplink \
            or self.exchange is not None or self.announced() \
            or (fallback and self.fallback is not None
                and (bool(self.fallback.consumers) or self.fallback.announced()))

    cdef int wait(self, GrantingLink link) except -1:
        """List a producer of this worker that gets credit once the address is reachable."""
        if self.waiting is None:
            self.waiting = set()
        self.waiting.add(link)
        return 0

    cdef int give_credit(self, GrantingLink link, bint fallback) except -1:
        """Grant a producer its credit if the address is reachable, else let it wait. fallback: as of `reachable`."""
        if not link.keeps_credit and not self.reachable(fallback):
            if self.suspended():
                link.pause_credit()
            else:
                link.take_back()
            return self.wait(link)
        if self.waiting is not None:
            self.waiting.discard(link)
        if not link.flowing or link.draining:
            link.set_flowing(True)
        return 0

    cdef bint announced(self) noexcept:
        if self.remotes is None:
            return False
        if self.version != self.network.version:
            self.make_paths()
        return bool(self.ways)

    cdef int make_paths(self) except -1:
        """Make `ways` and `nearest` again: the network has changed."""
        cdef Path way
        cdef list nearest = []
        self.ways = self.network.ways(self.remotes)
        if (self.consumers or self.fallback is not None) and self.network.are_awaited(self.ways):
            self.ways = []                 # nothing waits for routers while something else gets the messages
        for way in self.ways:
            nearest += [(destination, way) for destination in way.destinations]
        nearest.sort(key=by_distance)
        self.nearest = nearest
        self.version = self.network.version
        return 0


def by_distance(tuple found not None):
    cdef RemoteDestination destination = found[0]
    return destination.router.cost, destination.index


cdef class Exchange:
    cdef list hops(self, bytes subject):
        """Return the next hops (ForwardingAddress) for a subject, each once; count the bindings that match."""
        cdef list hops, counters
        cdef uint32_t number
        cdef tuple found = self.cache.get(subject)
        if found is None:
            hops = []
            counters = []
            for binding in self.matcher.match(subject.decode("utf-8", "replace")):
                counters.append(self.counters[binding])
                hop = self.next_hops[binding]
                if hop not in hops:
                    hops.append(hop)
            found = hops, counters
            if len(subject) <= TEXT_KEPT:
                if len(self.cache) >= LOOKUPS_KEPT:
                    self.cache.clear()
                self.cache[subject] = found
        for number in <list>found[1]:
            self.region.address_slot(self.worker, number).ingress += 1
        return <list>found[0]


cdef class AddressTap(NodeOwner):
    """Base of Tap."""

    def __cinit__(self, uint32_t number, str key not None, str pattern not None, bint required, *rest):
        self.pattern = PatternTree()
        self.pattern.insert(pattern, True)
        self.id = number
        self.key = key
        self.required = required
        self.live = True

    cdef bint serves(self, str tenant) noexcept:
        """Return True if messages of a tenant's connections may be copied: the tap's address is the tenant's, too."""
        return tenant is None or self.key[2:].startswith(tenant)

    cdef bint reachable(self) noexcept:
        """Return True if copies have a destination now."""
        cdef ForwardingAddress address = self.address
        return address is not None and (
            (bool(address.consumers) and not address.suspended()) or address.announced())

    def matches(self, str name not None):
        """Return True if the tap copies messages to a mobile address with this name."""
        return self.pattern.match(name) is not None

    cdef int end(self, bint lost) except -1:
        raise NotImplementedError


cdef bint taps_reachable(tuple taps) noexcept:
    cdef AddressTap tap
    for tap in taps:
        if tap.required and tap.live and not tap.reachable():
            return False
    return True


cdef class Table:
    """The worker's copy of the replicated tables: addresses, consumers, exchanges, and the network."""

    def __cinit__(self, Region region not None, int worker, str router_id not None, ports, dict links not None,
                  on_local, str mode="standalone", make_tap=None):
        """ports: WorkerPort by worker. If the entry of this worker is None, multicast copies are not spread.

        links: slot index -> ConsumerLink, maintained by the worker. on_local: see the field. mode: of the router.
        make_tap: class of taps, Tap; None: the table gets no taps.
        """
        self.mode = mode
        self.make_tap = make_tap
        self.region = region
        self.worker = worker
        self.router_id = router_id
        self.ports = list(ports)
        self.links = links
        self.on_local = on_local
        self.network = Network(worker)
        self.network.own_port = self.ports[worker] if worker < len(self.ports) else None
        self.recent = AddressCache()
        self.taps = {}
        self.clear()

    def clear(self):
        """Forget everything: a snapshot follows."""
        cdef AddressTap tap
        for tap in self.taps.values():
            tap.end(True)
        self.taps = {}
        self.addresses = {}
        self.by_key = {}
        self.exchanges = {}
        self.consumers = {}
        self.bound = set()
        self.lookups = {}
        self.settings = AddressSettings()
        self.network.clear()
        self.epoch = 0

    def apply(self, epoch, ops):
        """Apply the ops of one epoch. Those of listeners and workers are the worker's own and are skipped here."""
        cdef ForwardingAddress address
        cdef uint64_t network = self.network.version
        self.recent.forget()               # first: if an op fails below, cached results may no longer exist
        touched = {}
        for op in ops:
            handler = OPS.get(type(op))
            if handler is not None:
                handler(self, op, touched)
        if self.taps:
            self.find_tap_addresses(touched)
        self.lookups.clear()
        self.lookups_key = object()
        self.epoch = epoch
        self.network.settle()
        if self.network.version != network:
            # Any address may have become reachable.
            touched = {address.id: address for address in self.bound}
        for address in touched.values():
            address_changed(address)

    def replace(self, epoch, ops):
        """Replace everything by a snapshot. Bound links follow their address by its key."""
        cdef ForwardingAddress old, new
        before = self.by_key
        self.clear()
        self.apply(epoch, ops)
        for key, old in before.items():
            new = self.by_key.get(key)
            if new is not None and old.producers:
                for link in old.producers:
                    link.context.rebind(new)

    def get(self, address_id):
        """Return the ForwardingAddress with this id, or None."""
        return self.addresses.get(address_id)

    def by_name(self, key):
        """Return the ForwardingAddress of a key (`M0orders`), or None."""
        return self.by_key.get(key)

    cdef ForwardingAddress find(self, bytes text, str tenant, int phase, NotFoundReason* why):
        """Return the address that an anonymous message goes to; None: none here, for the reason in `why`.

        phase: of the to-override annotation; -1: use the ingress phase of the address.
        """
        key = (text, tenant, phase)
        if key in self.lookups:
            found = self.lookups[key]
        else:
            found = self.look_up(text, tenant, phase)
            self.keep(key, len(text) + (0 if tenant is None else len(tenant)), found)
        why[0] = NOWHERE_UNAVAILABLE if found is False else NOWHERE_CONFINED if found is True else NOWHERE_UNKNOWN
        return found if found is not False and found is not True else None

    cdef tuple whole_address(self, bytes text, str tenant):
        """Return the address of a tenant's message as other routers know it: (encoded string, phase).

        None: the address is not mobile, so it has no tenant prefix. brokers-and-edge.md L-13.
        """
        key = (text, tenant)
        found = self.lookups.get(key)
        if found is None:
            cls, name = addresses.classify(
                addresses.normalise(text.decode("utf-8", "replace")), self.router_id, self.mode)
            if cls != "M":
                return None
            name = tenant + name
            found = codec.encode_string(name), self.settings.lookup(name).ingress_phase
            self.keep(key, len(text) + len(tenant), found)
        return found

    cdef tuple limited_address(self, bytes text, str rights):
        """Return the address to which a message for a management node is forwarded if its sender has these rights.

        Returns (octets, encoded string); the octets are `text` itself if nothing changes. None: access is forbidden.
        """
        key = (text, rights, "rights")
        found = self.lookups.get(key)
        if found is None:
            plain = text.decode("utf-8", "replace")
            limited = management.address_for(plain, management.rights_by_name(rights), self.router_id)
            if limited is None:
                return None
            found = text if limited == plain else limited.encode(), codec.encode_string(limited)
            self.keep(key, len(text), found)
        return found

    cdef int keep(self, tuple key, size_t octets, object found) except -1:
        """Cache the result of a look-up, unless its text is long. octets: length of the texts in `key`."""
        if octets <= TEXT_KEPT:
            if len(self.lookups) >= LOOKUPS_KEPT:
                self.lookups.clear()
            self.lookups[key] = found
        return 0

    cdef object look_up(self, bytes text, str tenant, int phase):
        """Return the ForwardingAddress, None (unknown), False (unavailable) or True (unknown, and confined to this
        router)."""
        plain = addresses.normalise(text.decode("utf-8", "replace"))
        cls, name = addresses.classify(plain, self.router_id, self.mode)
        if cls != "M":
            # A local record that exists, or nothing: settings do not apply to these classes (routing-semantics.md
            # N-6).
            return self.by_key.get(addresses.key(cls, name))
        if tenant is not None:
            if addresses.escapes_tenant_prefix(name):
                return False
            name = tenant + name
        setting = self.settings.lookup(name)
        instance = setting.ingress_phase if phase < 0 else phase
        if instance == addresses.FALLBACK_PHASE_NUMBER:
            instance = addresses.FALLBACK_PHASE
        found = self.by_key.get(addresses.key(cls, name, instance))
        if found is None and setting.distribution == UNAVAILABLE_TEXT:
            return False
        if found is None and setting.scope != NETWORK:
            return True
        return found

    # -- ops ----------------------------------------------------------------------------------------------------------

    def op_settings(self, op, touched):
        self.settings = AddressSettings(op.entries, op.default)

    def op_setting(self, op, touched):
        if op.setting is None:
            self.settings.drop(op.pattern)
        else:
            self.settings.put(op.pattern, op.setting)

    def op_default(self, op, touched):
        self.settings.set_default(op.distribution)

    def op_address(self, op, touched):
        cdef ForwardingAddress address = self.addresses.get(op.id)
        what = op.attributes
        if address is None:
            key = op.key
            address = ForwardingAddress()
            address.id = op.id
            address.key = key
            address.consumers = []
            address.by_edge = []
            address.producers = {}
            address.slot = self.region.address_slot(self.worker, address.id)
            address.network = self.network
            mobile = key[0] == "M"
            address.to = codec.encode_string(key[2:] if mobile else key[1:])
            address.phase = int(key[1]) if mobile and key[1].isdigit() else 0
            address.uplink = key == UPLINK_KEY and self.mode == addresses.EDGE_MODE
            if address.uplink:
                self.network.uplink = address
            elif key[0] == addresses.EDGE and self.mode == addresses.EDGE_MODE:
                self.network.edges[key[1:]] = address
            self.addresses[address.id] = address
            self.by_key[address.key] = address
        elif address.key != op.key:
            raise TableError(f"address {op.id} is {address.key}, not {op.key}")
        address.treatment = TREATMENTS[what.treatment]
        address.priority = -1 if what.priority is None else what.priority
        address.overflow = OVERFLOWS[what.overflow]
        address.inproc = what.inproc
        address.rejects = what.rejects
        address.confined = what.confined
        address.fallback = None if what.fallback is None else self.required(what.fallback)
        address.exchange = None if what.exchange is None else self.exchanges.get(what.exchange)
        address.taps = tuple([self.taps[tap] for tap in what.taps if tap in self.taps]) or None
        note_special(address)
        touched[address.id] = address

    def required(self, address_id):
        address = self.addresses.get(address_id)
        if address is None:
            raise TableError(f"address {address_id} is not known")
        return address

    def op_address_gone(self, op, touched):
        cdef Consumer consumer
        cdef ForwardingAddress address = self.addresses.pop(op.id, None)
        if address is None:
            return
        for consumer in address.consumers:
            self.unbind_consumer(slot_key(consumer.worker, consumer.slot_index), consumer.generation, address)
            consumer.address = None
        address.consumers = []
        limits_changed(address)
        address.by_edge = []
        address.served = None
        if self.by_key.get(address.key) is address:
            del self.by_key[address.key]
        if self.network.uplink is address:
            self.network.uplink = None
        elif self.network.edges.get(address.key[1:]) is address:
            del self.network.edges[address.key[1:]]
        for destination in address.remotes or ():
            self.network.drop_destination(destination)
        touched.pop(address.id, None)

    def op_consumer(self, op, touched):
        cdef ForwardingAddress address = self.required(op.address)
        cdef Consumer consumer = self.bound_consumer(slot_key(op.worker, op.slot), op.generation, address)
        if consumer is None:
            consumer = find_consumer(self.region, self.worker, self.ports, self.links, op.worker, op.slot,
                                     op.generation, op.capacity, op.edge, op.cost, op.peer)
            if consumer is None:
                return
            self.bind_consumer(address, consumer)
        consumer.suspended = op.suspended
        note_special(address)
        touched[address.id] = address
        self.touch_primary(address, touched)

    def touch_primary(self, ForwardingAddress address, touched):
        """Mark the primary address as changed: a consumer of its fallback makes it reachable."""
        cdef ForwardingAddress primary
        if address.key.startswith("MF"):
            primary = self.by_key.get("M0" + address.key[2:])
            if primary is not None:
                touched[primary.id] = primary

    def op_consumer_gone(self, op, touched):
        cdef ForwardingAddress address = self.addresses.get(op.address)
        if address is not None:
            remove_consumer(address, self.unbind_consumer(slot_key(op.worker, op.slot), op.generation, address))
            touched[address.id] = address
            self.touch_primary(address, touched)

    def op_exchange(self, op, touched):
        cdef Exchange exchange = Exchange()
        cdef ForwardingAddress address
        what = op.attributes
        exchange.id = op.id
        exchange.matcher = KeyMatcher(what.match)
        exchange.next_hops = {}
        exchange.counters = {}
        exchange.cache = {}
        exchange.region = self.region
        exchange.worker = self.worker
        exchange.slot = self.region.address_slot(self.worker, what.counters)
        exchange.alternate = None if what.alternate is None else self.required(what.alternate)
        exchange.alternate_phase = what.alternate_phase
        self.exchanges[exchange.id] = exchange
        address = self.required(what.address)
        address.exchange = exchange
        touched[address.id] = address

    def op_exchange_gone(self, op, touched):
        cdef ForwardingAddress address
        cdef Exchange exchange = self.exchanges.pop(op.id, None)
        for address in self.addresses.values():
            if address.exchange is exchange:
                address.exchange = None
                touched[address.id] = address

    def op_binding(self, op, touched):
        cdef Exchange exchange = self.exchanges.get(op.exchange)
        if exchange is None:
            raise TableError(f"exchange {op.exchange} is not known")
        exchange.matcher.bind(op.key, op.id)
        exchange.next_hops[op.id] = self.required(op.next_hop)
        exchange.counters[op.id] = op.counters
        exchange.cache.clear()

    def op_binding_gone(self, op, touched):
        cdef Exchange exchange = self.exchanges.get(op.exchange)
        if exchange is not None and op.id in exchange.next_hops:
            exchange.matcher.unbind(op.id)
            del exchange.next_hops[op.id]
            del exchange.counters[op.id]
            exchange.cache.clear()

    # -- taps ---------------------------------------------------------------------------------------------------------

    def op_tap(self, op, touched):
        if op.id not in self.taps:
            self.taps[op.id] = self.make_tap(
                op.id, op.key, op.pattern, op.required, self.region, self.worker, op.counters)

    def op_tap_gone(self, op, touched):
        cdef AddressTap tap = self.taps.pop(op.id, None)
        if tap is not None:
            tap.end(False)

    def taps_elsewhere(self, bytes text not None, str tenant):
        """Return the taps and the encoded whole name of a mobile address that this edge router has no record of.

        None: no tap copies its messages.
        """
        key = (text, tenant, "taps")
        if key in self.lookups:
            return self.lookups[key]
        found = None
        cls, name = addresses.classify(addresses.normalise(text.decode("utf-8", "replace")), self.router_id, self.mode)
        if cls == "M" and not name.startswith(SERVICES):
            name = (tenant or "") + name
            taps = tuple([tap for tap in self.taps.values() if tap.matches(name)])
            found = (taps, codec.encode_string(name)) if taps else None
        self.keep(key, len(text) + (0 if tenant is None else len(tenant)), found)
        return found

    def find_tap_addresses(self, touched):
        """Find the addresses that get the copies of taps, and mark those as changed whose credit depends on them."""
        cdef AddressTap tap
        cdef ForwardingAddress address
        cdef bint required = False
        for tap in self.taps.values():
            address = self.by_key.get(tap.key)
            if tap.required and (address is not tap.address or address is not None and address.id in touched):
                required = True
            tap.address = address
        if required:
            for address in self.bound:
                if address.special & SPECIAL_REQUIRED:
                    touched[address.id] = address

    # -- the network --------------------------------------------------------------------------------------------------

    def op_hop(self, op, touched):
        self.network.apply_next_hop(self.region, self.worker, self.ports, self.links, op)

    def op_hop_gone(self, op, touched):
        self.network.drop_hop(op.conn)

    def op_router(self, op, touched):
        self.network.apply_router(op)

    def op_router_gone(self, op, touched):
        self.network.drop_router(op.index)

    def op_radius(self, op, touched):
        self.network.apply_radius(op.hops)

    def op_remote(self, op, touched):
        cdef ForwardingAddress address = self.required(op.address)
        cdef RemoteDestination destination = self.network.destination(self.region, self.worker, op.index, op.counters)
        self.drop_remote(address, destination.index)
        address.remotes = sorted([*(address.remotes or ()), destination], key=by_index)
        address.version = 0
        touched[address.id] = address
        self.touch_primary(address, touched)

    def op_remote_gone(self, op, touched):
        cdef ForwardingAddress address = self.addresses.get(op.address)
        if address is not None:
            self.drop_remote(address, op.index)
            touched[address.id] = address
            self.touch_primary(address, touched)

    def drop_remote(self, ForwardingAddress address not None, int index):
        """Remove a router from those that announce the address."""
        cdef RemoteDestination destination
        for destination in address.remotes or ():
            if destination.index == index:
                self.network.drop_destination(destination)
        address.remotes = [destination for destination in address.remotes or () if destination.index != index] or None
        address.ways = address.nearest = None
        address.version = 0

    # -- changes by the worker itself ---------------------------------------------------------------------------------

    cdef int bind_consumer(self, ForwardingAddress address, Consumer consumer) except -1:
        # Insert at `start`, which is where the rotating list ends.
        if not address.consumers:
            address.version = 0            # routers may no longer be awaited, see `make_paths`
        address.consumers.insert(address.start, consumer)
        address.start = (address.start + 1) % len(address.consumers)
        if consumer.message_limit or address.limits:
            limits_changed(address)
        key = slot_key(consumer.worker, consumer.slot_index)
        consumer.address = address
        consumer.also = self.consumers.get(key)
        self.consumers[key] = consumer
        if on_edge(consumer):
            address.by_edge.append(consumer)
        if consumer.peer is not None:
            address.served = served_marks(address)
        return 0

    cdef Consumer bound_consumer(self, uint64_t key, uint32_t generation, ForwardingAddress address):
        """Return the consumer of a slot that is bound to an address (None: to any); None: there is none."""
        cdef Consumer consumer = self.consumers.get(key)
        while consumer is not None and (consumer.generation != generation
                                        or (address is not None and consumer.address is not address)):
            consumer = consumer.also
        return consumer

    def is_alone(self, uint32_t slot_index, uint32_t generation):
        """Return True if a link of this worker is the only consumer of its address, here and at other routers."""
        cdef ForwardingAddress address
        cdef Consumer consumer = self.bound_consumer(slot_key(self.worker, slot_index), generation, None)
        if consumer is None:
            return False
        address = consumer.address
        return len(address.consumers) == 1 and not address.announced() \
            and not (address.fallback is not None and address.fallback.reachable(False))

    cdef Consumer unbind_consumer(self, uint64_t key, uint32_t generation, object address):
        """Unbind a consumer from its slot and return it; its address still lists it.

        None: not bound. address: None for any.
        """
        cdef Consumer before = None
        cdef Consumer consumer = self.consumers.get(key)
        while consumer is not None and (consumer.generation != generation
                                        or (address is not None and consumer.address is not address)):
            before = consumer
            consumer = consumer.also
        if consumer is None:
            return None
        if before is not None:
            before.also = consumer.also
        elif consumer.also is not None:
            self.consumers[key] = consumer.also
        else:
            del self.consumers[key]
        consumer.also = None
        return consumer

    def drop_consumer(self, uint32_t slot_index, uint32_t generation):
        """Unbind a link of this worker that has ended, wherever it is bound: it gets no more deliveries.

        The supervisor reports the end later, and never reports that of a link that it has not bound yet.
        """
        cdef uint64_t key = slot_key(self.worker, slot_index)
        cdef Consumer consumer = self.unbind_consumer(key, generation, None)
        self.recent.forget()
        while consumer is not None:
            remove_consumer(consumer.address, consumer)
            consumer = self.unbind_consumer(key, generation, None)

    def bind_producer(self, ForwardingAddress address not None, GrantingLink link not None, bint fallback):
        """Bind a producer of this worker and grant it credit if the address is reachable.

        fallback: as of `reachable`.
        """
        address.producers[link] = fallback
        self.bound.add(address)
        if link.initiated:
            if address.called is None:
                address.called = set()
            address.called.add(link)
        address.give_credit(link, fallback)

    def unbind_producer(self, ForwardingAddress address not None, GrantingLink link not None):
        address.producers.pop(link, None)
        if address.waiting is not None:
            address.waiting.discard(link)
        if address.called is not None:
            address.called.discard(link)
        if not address.producers:
            self.bound.discard(address)


def by_index(RemoteDestination destination not None):
    return destination.index


cdef inline uint64_t slot_key(int worker, uint32_t slot_index) noexcept:
    return <uint64_t>worker << 32 | slot_index


cdef int remove_consumer(ForwardingAddress address, Consumer consumer) except -1:
    """Remove a consumer (None: nothing) from its address.

    Compares pointers only: an address may have 100,000 consumers.
    """
    cdef Py_ssize_t i
    cdef list consumers = address.consumers
    if consumer is None:
        return 0
    consumer.address = None
    for i in range(PyList_GET_SIZE(consumers)):
        if item_of(consumers, i) == <PyObject*>consumer:
            del consumers[i]
            if i < address.start:
                address.start -= 1
            if address.start >= len(consumers):
                address.start = 0
            if address.limits or consumer.suspended:
                limits_changed(address)
            if on_edge(consumer):
                address.by_edge.remove(consumer)
            if consumer.peer is not None:
                address.served = served_marks(address)
            if not consumers:
                address.version = 0        # routers may be awaited, see `make_paths`
            return 0
    return 0


cdef int limits_changed(ForwardingAddress address) except -1:
    """Recompute the limits of message length: the consumers have changed, and some have or had a limit."""
    cdef Consumer consumer
    address.limits = 0
    address.fitting = None
    for consumer in address.consumers:
        if not consumer.message_limit:
            continue
        if not address.limits or consumer.message_limit < address.least_limit:
            address.least_limit = consumer.message_limit
        address.limits += 1
    return note_special(address)


cdef int note_special(ForwardingAddress address) except -1:
    cdef AddressTap tap
    address.special = SPECIAL_UNPLANNED \
        if address.inproc or address.uplink or address.limits or address.suspended() else 0
    if address.taps is not None:
        for tap in address.taps:
            address.special |= SPECIAL_REQUIRED if tap.required else SPECIAL_TAPPED
    return 0


cdef inline bint on_edge(Consumer consumer) noexcept:
    return consumer.edge != 0 or consumer.peer is not None


cdef bytes served_marks(ForwardingAddress address):
    """Return the marks of the peers that get a copy of each multicast message, as an encoded list; None: none."""
    cdef Consumer consumer
    cdef set marks = {consumer.peer for consumer in address.by_edge if consumer.peer is not None}
    return codec.encode_list(sorted(marks)) if marks else None


cdef int address_changed(ForwardingAddress address) except -1:
    """Grant credit to the producers of an address whose reachability may have changed (routing-semantics.md 5, K-7).

    Loss of the last consumer alone sends nothing to clients (routing-semantics.md K-8). Only a peer to which the
    router initiated the connection loses its credit (brokers-and-edge.md AL-12).
    """
    cdef GrantingLink link
    cdef set waiting = address.waiting
    if waiting is not None and address.reachable(True):
        address.waiting = None
        for link in waiting:
            address.give_credit(link, address.producers[link])
    if address.called is not None:
        for link in address.called:
            address.give_credit(link, address.producers[link])
    if address.suspended():
        for link in address.producers:
            address.give_credit(link, address.producers[link])
    return 0


OPS = {
    control.SettingsOp: Table.op_settings, control.SettingOp: Table.op_setting,
    control.DefaultOp: Table.op_default, control.AddressOp: Table.op_address,
    control.AddressGone: Table.op_address_gone, control.ConsumerOp: Table.op_consumer,
    control.ConsumerGone: Table.op_consumer_gone, control.ExchangeOp: Table.op_exchange,
    control.ExchangeGone: Table.op_exchange_gone, control.TapOp: Table.op_tap, control.TapGone: Table.op_tap_gone,
    control.BindingOp: Table.op_binding,
    control.BindingGone: Table.op_binding_gone, control.NextHopOp: Table.op_hop,
    control.NextHopGone: Table.op_hop_gone, control.RouterOp: Table.op_router,
    control.RouterGone: Table.op_router_gone, control.RadiusOp: Table.op_radius,
    control.RemoteOp: Table.op_remote, control.RemoteGone: Table.op_remote_gone,
}

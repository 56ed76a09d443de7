"""Links of a session: handles and names, attach and detach, and their end with the session (AMQP 1.0 part 2, 2.6)."""
from sluice.router.amqp.channel cimport FRAME_TAKEN, FRAME_WAITS
from sluice.router.amqp.codec cimport split_fields
from sluice.router.amqp.connection cimport PAUSE_ATTACH
from sluice.router.amqp.endpoint cimport is_detached, is_over, is_pending
from sluice.router.amqp.link_life cimport LIFE_OWED, ON_NOTIFIED, ON_REPLACED, ON_ROUTE_ASKED, ON_SESSION_LOST
from sluice.router.amqp.object_table cimport number_get
from sluice.router.amqp.performatives cimport attach_values, detach_values
from sluice.router.amqp.spec cimport P_ATTACH, P_DETACH, P_END
from sluice.router.amqp.survey cimport STANDSTILL_MS, Survey

from sluice.router.amqp import codec
from sluice.router.amqp.errors import (
    FRAMING_ERROR, INVALID_FIELD, RESOURCE_LIMIT, SESSION_HANDLE_IN_USE, FatalFault, RemoteError,
)
from sluice.router.amqp.performatives import short_error

cdef enum:
    DETACH_ROOM = 32           # octets of a detach without its error
    NAMES_SLACK = 64           # names removed before the set of names is created anew


cdef class SessionLinks(Channel):
    def __cinit__(self):
        self.by_remote_handle = ObjectTable()
        self.by_handle = ObjectTable()
        self.names = set()
        self.attaching = {}
        self.handle_max = 0xFFFFFFFF

    cdef int flush_reports(self) except -1:
        raise NotImplementedError

    cdef int stop(self) except -1:
        raise NotImplementedError

    # -- handles and names --------------------------------------------------------------------------------------------

    cdef Endpoint link_of(self, uint32_t handle):
        cdef Endpoint link = <Endpoint>number_get(self.by_remote_handle, handle)
        if link is None:
            raise RemoteError("session", INVALID_FIELD, f"no such handle: {handle}")
        return link

    def add_link(self, Endpoint link not None, name, remote_handle, incoming):
        """Give a new link the lowest free handle. remote_handle None: this side attaches the link. Raises RemoteError
        if the peer allows no more links.
        """
        handle = self.by_handle.lowest_free()
        if handle > self.handle_max:
            raise RemoteError("session", RESOURCE_LIMIT,
                              f"no handle is left: the peer's handle-max is {self.handle_max}")
        self.by_handle.put(handle, link)
        self.names.add((name, incoming))
        self.names_most = max(self.names_most, <uint32_t>len(self.names))
        link.join(self)
        link.name = name
        link.handle = handle
        link.incoming = incoming
        link.initiated = remote_handle is None
        link.begin_state()
        if link.initiated:
            self.attaching[name, incoming] = link
        else:
            link.remote_handle = remote_handle

    @property
    def room(self):
        """True if this side may attach another link. Until the peer has answered this side's begin, it is assumed to
        allow one."""
        return self.by_handle.lowest_free() <= (0 if self.unanswered else self.handle_max)

    cdef int release(self, Endpoint link) except -1:
        """Free the handle, after both detaches."""
        return self.by_handle.remove(link.handle)

    def replace_link(self, Endpoint old not None, Endpoint new not None):
        """Replace a link that has received nothing but flows by another object."""
        new.join(self)
        new.name = old.name
        new.handle = old.handle
        new.remote_handle = old.remote_handle
        new.incoming = old.incoming
        self.by_handle.put(old.handle, new)
        self.by_remote_handle.put(old.remote_handle, new)
        old.live(ON_REPLACED)
        new.live(ON_ROUTE_ASKED)
        old.forget_ready()

    def free_name(self, name, incoming):
        """Return a link name that no other link of the session has: two clients may have chosen the same name."""
        chosen = name
        while (chosen, incoming) in self.names or (chosen, incoming) in self.attaching:
            self.copies += 1
            chosen = f"{name}#{self.copies + 1}"
        return chosen

    def forget_attach(self, Endpoint link not None):
        """Forget a link that was given a handle and is not attached after all."""
        self.attaching.pop((link.name, link.incoming), None)

    # -- attach and detach --------------------------------------------------------------------------------------------

    cdef int attach(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef list items = split_fields(p, end)
        cdef Endpoint link
        name, handle, role = attach_values(items)
        if handle > HANDLE_MAX and not self.routers:
            raise RemoteError("connection", FRAMING_ERROR, f"handle {handle} is above handle-max {HANDLE_MAX}")
        if number_get(self.by_remote_handle, handle) is not None:
            raise RemoteError("link", SESSION_HANDLE_IN_USE, f"handle {handle} is in use")
        link = self.attaching.pop((name, not role), None)
        if link is not None:
            link.on_peer_attach()
            link.remote_handle = handle
            self.by_remote_handle.put(handle, link)
            if not is_detached(link):  # otherwise nobody waits for the answer: the peer's detach is next
                self.handler.on_attached(link, items)
            return FRAME_TAKEN
        # A router of Dispatch 1.19 relays links of clients with equal names unchanged (brokers-and-edge.md LR-13).
        if (name, not role) in self.names and not self.routers:
            raise RemoteError("link", INVALID_FIELD, f"link name already attached: {name}")
        link = self.handler.on_attach(self, items)
        self.by_remote_handle.put(handle, link)
        return FRAME_TAKEN

    def send_attach(self, items):
        """Write an attach of encoded items."""
        if self.ended:
            return
        self.connection.send_frame(self.local_channel, codec.encode_described(P_ATTACH, items))

    cdef int detach(self, const uint8_t* p, const uint8_t* end) except -1:
        cdef list items = split_fields(p, end)
        cdef Endpoint link
        handle, closed, error = detach_values(items)
        link = self.link_of(handle)
        if is_pending(link):
            self.connection.pause(PAUSE_ATTACH)
            return FRAME_WAITS
        if not link.release_some_deliveries():
            self.connection.pause_for_slice()
            return FRAME_WAITS
        self.by_remote_handle.remove(handle)
        link.answer_closed = closed
        link.detach_error = error
        link.peer_detached()
        return FRAME_TAKEN

    def send_detach(self, uint32_t handle, closed, condition=None, description=None):
        """Write a detach, after the outcomes of the link's deliveries, which would be of no use behind it."""
        if self.ended:
            return
        self.flush_reports()
        items = [codec.encode_uint(handle), b"\x41" if closed else b"\x42"]
        if condition is not None:
            items.append(codec.encode_error(condition, description))
        elif not closed:
            items.pop()
        self.connection.send_frame(self.local_channel, codec.encode_described(P_DETACH, items))

    def send_raw_detach(self, uint32_t handle, closed, error):
        """Write a detach with an encoded error, or None, after outcomes likewise."""
        self.flush_reports()
        if error and DETACH_ROOM + len(error) > self.connection.remote_max_frame:
            # The error came over a connection with longer frames.
            error = short_error(error)
        items = [codec.encode_uint(handle), b"\x41" if closed else b"\x42"] + ([error] if error else [])
        self.connection.send_frame(self.local_channel, codec.encode_described(P_DETACH, items))

    cdef int link_gone(self, Endpoint link) except -1:
        """Notify the handler of a lost link. To be called once for each link, for any reason of its loss."""
        link.live(ON_NOTIFIED)
        if self.ended and link.life != LIFE_OWED:
            link.live(ON_SESSION_LOST)
        if link.life == LIFE_OWED:
            self.answers += 1
        if link.streams is not NULL:
            link.streams.owner = NULL      # the remaining octets have no owner
        if link.whole is not NULL:
            link.whole.owner = NULL
        if self.went_on is link:
            self.went_on = None
        self.names.discard((link.name, link.incoming))
        if self.names_most > 4 * <size_t>len(self.names) + NAMES_SLACK:
            self.names = set(self.names)   # a set keeps the memory of its largest size
            self.names_most = len(self.names)
        if not self.handler.on_detached(link):
            link.confirm()
        return 0

    # -- all links ----------------------------------------------------------------------------------------------------

    cdef bint any_can_progress(self) noexcept:
        cdef Endpoint link = self.went_on
        if link is not None and link.goes_on():
            return True
        for link in self.by_handle.values():
            if link.goes_on():
                self.went_on = link
                return True
        self.went_on = None
        return False

    cdef bint any_unrouted(self) noexcept:
        """True if a message is arriving that cannot be routed before more of it has arrived."""
        cdef Endpoint link
        for link in self.by_handle.values():
            if link.octets_unrouted():
                return True
        return False

    cdef void survey(self, Survey* found) noexcept:
        """Add what the links of the session hold. A link that is seen to hold something for the first time may still
        be making progress."""
        cdef Endpoint link
        cdef size_t held, unrouted
        cdef uint32_t progress
        for link in self.by_handle.values():
            if is_detached(link):
                continue
            if link.incoming != found.consumers:
                found.awaited += link.octets_awaited()
            if not link.holds():
                continue
            progress = link.progress()
            if progress != link.looked_at or not link.stuck_since:
                link.looked_at = progress
                link.stuck_since = found.now
            if link.incoming == found.consumers:
                continue
            unrouted = link.octets_unrouted() if link.incoming else 0
            held = link.octets_held() - unrouted if link.incoming else link.octets_queued(found)
            found.unrouted += unrouted
            if found.now - link.stuck_since < STANDSTILL_MS:
                found.moving += held
                continue
            if unrouted > found.unrouted_held:
                found.unrouted_held = unrouted
                found.unrouted_link = <void*>link
            found.stuck += held
            if held > found.most_held:
                found.most_held = held
                found.most = <void*>link

    # -- end ----------------------------------------------------------------------------------------------------------

    cdef int end(self) except -1:
        """Handle the peer's end. It is answered when the ends of its links are known wherever they matter."""
        self.lost()
        self.end_due = True
        return 0

    cdef int end_if_due(self) except -1:
        if self.end_due and self.empty and self.answers == 0 and not self.connection.finished:
            self.send_end()
        return 0

    cdef int send_end(self) except -1:
        self.end_due = False
        self.connection.send_frame(self.local_channel, codec.encode_described(P_END, []))
        return self.connection.forget_channel(self)

    cdef int lost(self) except -1:
        """Mark every link as lost. Links end in `end_some_links`, turn by turn. Nothing more is written."""
        cdef Endpoint link
        if self.ended:
            return 0
        self.stop()
        self.ended = True
        self.attaching = {}
        self.went_on = None                # drops a reference cycle: nothing of a session is to wait for the collector
        for link in self.by_handle.values():
            link.forget_ready()
            if is_over(link):
                link.live(ON_SESSION_LOST)
                if link.life == LIFE_OWED:
                    # Its detach waits for a confirmation, and so does the answer to an end.
                    self.answers += 1
        return 0

    cdef bint end_some_links(self, uint32_t most, uint32_t* ended) except *:
        cdef Endpoint link
        if self.losing is None:
            self.losing = self.by_handle.values()
            self.losing.reverse()
        while self.losing or self.any_left():
            link = self.losing[len(self.losing) - 1]
            if not is_over(link):
                if ended[0] == most or (ended[0] and not self.connection.scheduler.has_time()):
                    return False
                if not link.release_some_deliveries():
                    return False
                ended[0] += 1
                try:
                    link.lost(ON_SESSION_LOST)
                except Exception as fault:
                    self.handle_failed_loss(link, fault)
            self.losing.pop()
        self.losing = None
        self.by_handle = ObjectTable()
        self.by_remote_handle = ObjectTable()
        self.empty = True
        self.end_if_due()
        return True

    cdef bint any_left(self) except *:
        """List links that have replaced others since `losing` was made."""
        self.losing = [link for link in self.by_handle.values()
                       if not is_detached(<Endpoint>link)]
        return len(self.losing) > 0

    cdef int handle_failed_loss(self, Endpoint link, object fault) except -1:
        """Handle an internal error in the loss of a link, so that the other links are lost all the same.

        Deliveries that still refer to the link would outlive it, with unforeseeable results. In that case the process
        ends.
        """
        if link.has_deliveries():
            raise FatalFault(
                f"a lost link still has deliveries after an internal error: {type(fault).__name__}: {fault}") from fault
        self.connection.report_fault(fault)
        if not is_over(link):
            link.live(ON_SESSION_LOST)
            try:
                self.link_gone(link)
            except Exception as again:
                self.connection.report_fault(again)
        if link.life == LIFE_OWED:
            link.confirm()
        return 0

"""Turns of the connections of one event loop: writing, resuming, and ending of links.

docs/internals/engine.md, "A wake".
"""
from collections import deque


cdef class Scheduler(Clock):
    def __cinit__(self):
        self.memory = ProcessMemory(self)
        self.capacity_share = CapacityShare(self)
        self.dirty = []
        self.resumed = []
        self.turns = []
        self.sliced = []
        self.losing = []
        self.frames_left = FRAMES_PER_WAKE
        self.turns_at_once = FRAMES_PER_WAKE
        self.losses_left = LOST_LINKS_PER_WAKE

    cpdef void begin_wake(self) noexcept:
        """Allow the frames, turns and losses of a new wake."""
        self.frames_left = FRAMES_PER_WAKE
        self.turns_at_once = FRAMES_PER_WAKE
        self.losses_left = LOST_LINKS_PER_WAKE

    cpdef bint has_time(self) noexcept:
        """True if interpreter work may continue; False: the rest waits for the next wake."""
        return True

    cpdef bint unfinished(self) noexcept:
        """True if work waits for the next wake."""
        return (bool(self.turns) and not self.behind) or bool(self.losing) or bool(self.sliced) \
            or bool(self.memory.windows_to_shorten)

    def go_on(self):
        """Continue all waiting work, for a user without an event loop, such as a client with one connection.

        True: there was some; offer octets to the connection again.
        """
        cdef bint waited = self.unfinished()
        self.begin_wake()
        if waited:
            self.grant_turns()
            self.resume_sliced()
            self.end_lost_links()
        self.resumed.clear()
        return waited

    cpdef int grant_turns(self) except -1:
        """Give a turn to the connections whose frames have waited longest: one frame each, and further ones while
        FRAMES_PER_WAKE frames are not taken."""
        cdef ScheduledConnection connection
        if self.behind:
            return 0
        cdef list turns = self.turns[:self.turns_at_once]
        del self.turns[:self.turns_at_once]
        self.turn_frames_left = FRAMES_PER_WAKE - <uint32_t>len(turns)
        for connection in turns:
            connection.resume_turn()
        return 0

    cpdef int resume_sliced(self) except -1:
        """Begin the next slice of each connection that has used up one."""
        cdef ScheduledConnection connection
        cdef list sliced = self.sliced
        self.sliced = []
        for connection in sliced:
            connection.take_slice()
        return 0

    cpdef int end_lost_links(self) except -1:
        """End lost links, one connection after another."""
        cdef ScheduledConnection connection
        cdef list losing = self.losing
        self.losing = []
        self.losses_left = LOST_LINKS_PER_WAKE
        for at, connection in enumerate(losing):
            if not self.losses_left or (at and not self.has_time()):
                self.losing = losing[at:] + self.losing
                break
            connection.in_losing = False
            try:
                connection.end_some_lost_links()
            except Exception as fault:
                connection.end_by(fault)
        return 0


cdef class ScheduledConnection(ConnectionMemory):
    cdef int resume_turn(self) except -1:
        raise NotImplementedError

    cdef int take_slice(self) except -1:
        raise NotImplementedError

    cdef int on_all_links_ended(self) except -1:
        raise NotImplementedError

    cpdef void end_by(self, object error):
        raise NotImplementedError

    cdef int report_fault(self, object error) except -1:
        if self.handler is not None:
            self.handler.on_fault(self, error)
        return 0

    cdef void mark_dirty(self) noexcept:
        if not self.dirty:
            self.dirty = True
            self.scheduler.dirty.append(self)

    cdef int add_lost_session(self, Channel channel) except -1:
        """List a session as lost, and begin to end its links."""
        if self.losing is None:
            self.losing = deque()
        self.losing.append(channel)
        return self.end_some_lost_links()

    cdef int end_some_lost_links(self) except -1:
        """End as many lost links as one turn allows. After the last one, call `on_all_links_ended`."""
        cdef Channel channel
        cdef uint32_t most = LOST_LINKS_PER_TURN
        cdef uint32_t ended = 0
        cdef bint done
        if self.loses or self.in_losing:
            return 0
        if self.scheduler.losses_left < most:
            most = self.scheduler.losses_left
        self.loses = True
        try:
            while self.losing:
                channel = self.losing[0]
                try:
                    done = channel.end_some_links(most, &ended)
                except Exception as fault:
                    self.report_fault(fault)
                    done = True
                if not done:
                    break
                self.losing.popleft()
        finally:
            self.loses = False
            self.scheduler.losses_left -= ended
            self.scheduler.losses += ended
        if self.losing:
            self.in_losing = True
            self.scheduler.losing.append(self)
            return 0
        self.losing = None
        return self.on_all_links_ended()

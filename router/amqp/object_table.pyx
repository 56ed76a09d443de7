"""Table of objects by a number that a peer chooses (channel, handle). Its memory follows the number of objects."""

cdef enum:
    # The list is shortened when it has more than this many places for each object. It may grow to half of that.
    SPARSE = 4


cdef class ObjectTable:
    """Table of objects by number. Owner: a connection or session."""

    def __cinit__(self):
        self.near = []

    cdef int put(self, uint32_t number, object what) except -1:
        """Put an object in the table, replacing one with the same number."""
        cdef uint32_t n = len(self.near)
        if number < n:
            self.count += self.near[number] is None
            self.near[number] = what
            return 0
        if self.far is not None and number in self.far:
            self.far[number] = what
            return 0
        if number <= n + NEAR_SLACK and number < (SPARSE // 2) * <size_t>self.count + NEAR_SLACK:
            while n <= number:
                self.near.append(self.far.pop(n, None) if self.far is not None else None)
                n += 1
            self.near[number] = what
        else:
            if self.far is None:
                self.far = {}
            self.far[number] = what
            self.far_most = max(self.far_most, <uint32_t>len(self.far))
        self.count += 1
        return 0

    cdef int remove(self, uint32_t number) except -1:
        if number < <uint32_t>len(self.near):
            if self.near[number] is None:
                return 0
            self.near[number] = None
        elif self.far is None or self.far.pop(number, None) is None:
            return 0
        self.count -= 1
        if number < self.lowest:
            self.lowest = number
        return self.shorten()

    cdef int shorten(self) except -1:
        """Release memory when few objects are left. Each call that moves objects follows as many removals."""
        cdef uint32_t n
        cdef size_t left = self.count
        if <size_t>len(self.near) > SPARSE * left + 2 * NEAR_SLACK:
            n = (SPARSE // 2) * self.count + NEAR_SLACK
            beyond = {n + i: what for i, what in enumerate(self.near[n:]) if what is not None}
            if self.far is not None:
                beyond.update(self.far)
            del self.near[n:]
            self.far = beyond
            self.far_most = len(beyond)
        if self.far is None:
            return 0
        if not self.far:
            self.far = None
            self.far_most = 0
        elif self.far_most > SPARSE * <size_t>len(self.far) + NEAR_SLACK:
            self.far = dict(self.far)      # a dict keeps the memory of its largest size
            self.far_most = len(self.far)
        return 0

    cdef list values(self):
        """Return all objects, those in the list first."""
        cdef list found = [what for what in self.near if what is not None]
        if self.far is not None:
            found += self.far.values()
        return found

    cdef uint32_t lowest_free(self) except? 0xFFFFFFFF:
        cdef void* near = <void*>self.near
        while True:
            while self.lowest < <uint32_t>items_in(near):
                if item_at(near, self.lowest) is <void*>None:
                    return self.lowest
                self.lowest += 1
            if self.far is None or self.lowest not in self.far:
                return self.lowest
            self.near.append(self.far.pop(self.lowest))    # the list is full, so it may grow

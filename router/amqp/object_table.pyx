"""Objects by a number that a peer chooses (channels, handles): memory follows how many, not how they are called."""


cdef class ObjectTable:
    """Owner: a connection or session."""

    def __cinit__(self):
        self.near = []

    cdef int put(self, uint32_t number, object what) except -1:
        """The number has nothing yet."""
        cdef uint32_t n = len(self.near)
        if number < n:
            self.near[number] = what
        elif number <= n + NEAR_SLACK:
            while n <= number:
                self.near.append(self.far.pop(n, None) if self.far is not None else None)
                n += 1
            self.near[number] = what
        else:
            if self.far is None:
                self.far = {}
            self.far[number] = what
        return 0

    cdef int remove(self, uint32_t number) except -1:
        if number < <uint32_t>len(self.near):
            self.near[number] = None
        elif self.far is not None:
            self.far.pop(number, None)
        return 0

    cdef list values(self):
        """All objects, those with low numbers first."""
        cdef list found = [what for what in self.near if what is not None]
        if self.far is not None:
            found += self.far.values()
        return found

    cdef uint32_t lowest_free(self) noexcept:
        cdef uint32_t number = 0
        for what in self.near:
            if what is None:
                return number
            number += 1
        while self.far is not None and number in self.far:
            number += 1
        return number

    # For tests.

    def __setitem__(self, number, what):
        self.put(number, what)

    def __getitem__(self, number):
        return number_get(self, number)

    def __delitem__(self, number):
        self.remove(number)

    def all(self):
        """`values`, and the length of the list."""
        return self.values(), len(self.near)

    def free(self):
        """`lowest_free`."""
        return self.lowest_free()

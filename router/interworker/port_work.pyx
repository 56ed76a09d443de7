"""Which of a worker's ports have something to do: a wake looks at these, and at no other."""


cdef class PortWork:
    pass

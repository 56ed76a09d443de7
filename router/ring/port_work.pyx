"""Set of a worker's ports that have work: a wake visits these ports and no others."""


cdef class PortWork:
    pass

"""Shortest paths between all routers of a network (inter-router.md 8): Dijkstra's algorithm in C, one tree per root.

Nodes are numbered 0 … n-1 in the order of their ids. With equal costs the tree is still unique: nodes are settled in
the order of (cost, number), and a node keeps the first predecessor with its lowest cost.
"""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cdef enum:
    # 14 bits: a node fits into int16_t, and the cost of a path together with a node into uint64_t.
    NODE_BITS = 14
    MOST_NODES = 1 << NODE_BITS

cdef int64_t FAR = 1 << 62


cdef class ShortestPathTrees:
    """Shortest-path trees of a network. Immutable, except that a tree is computed on first use. Owner: the creator."""

    cdef readonly int size
    cdef int edges
    cdef int32_t* first        # size + 1 items: index of the first edge of each node
    cdef int16_t* to
    cdef int32_t* cost
    cdef int16_t* parents      # size * size: predecessor by root and node; -1: root, or not reached
    cdef int16_t* orders       # size * size: nodes by root, in the order in which they were settled, then -1
    cdef uint8_t* known        # by root: 1 if its tree is computed
    cdef int64_t* distance     # scratch: cost by node of the tree that was computed last
    cdef uint64_t* heap        # scratch: cost << NODE_BITS | node

    def __cinit__(self, list neighbours not None):
        """Store the edges. `neighbours` has for each node a list of outgoing edges, each (node, cost > 0).

        Raises ValueError and MemoryError.
        """
        cdef int node, other, edge = 0
        cdef int64_t price
        self.size = len(neighbours)
        if self.size > MOST_NODES:
            raise ValueError(f"{self.size} nodes are given, and at most {MOST_NODES} are allowed")
        self.edges = sum(len(edges) for edges in neighbours)
        self.first = <int32_t*>malloc((self.size + 1) * sizeof(int32_t))
        self.to = <int16_t*>malloc((self.edges + 1) * sizeof(int16_t))
        self.cost = <int32_t*>malloc((self.edges + 1) * sizeof(int32_t))
        self.known = <uint8_t*>calloc(self.size + 1, 1)
        self.distance = <int64_t*>malloc((self.size + 1) * sizeof(int64_t))
        self.heap = <uint64_t*>malloc((self.edges + self.size + 2) * sizeof(uint64_t))
        self.parents = <int16_t*>malloc((<size_t>self.size * self.size + 1) * sizeof(int16_t))
        self.orders = <int16_t*>malloc((<size_t>self.size * self.size + 1) * sizeof(int16_t))
        if not (self.first and self.to and self.cost and self.known and self.distance and self.heap
                and self.parents and self.orders):
            raise MemoryError
        for node in range(self.size):
            self.first[node] = edge
            for other, price in neighbours[node]:
                if not 0 <= other < self.size or not 0 < price < 1 << 31:
                    raise ValueError(f"edge from {node} to {other} with cost {price} is invalid")
                self.to[edge] = <int16_t>other
                self.cost[edge] = <int32_t>price
                edge += 1
        self.first[self.size] = edge

    def __dealloc__(self):
        free(self.first)
        free(self.to)
        free(self.cost)
        free(self.known)
        free(self.distance)
        free(self.heap)
        free(self.parents)
        free(self.orders)

    cdef void compute(self, int root) noexcept nogil:
        """Compute the tree of `root`, and `distance`."""
        cdef int16_t* parent = self.parents + <size_t>root * self.size
        cdef int16_t* order = self.orders + <size_t>root * self.size
        cdef int64_t* distance = self.distance
        cdef uint64_t* heap = self.heap
        cdef uint64_t key, last
        cdef int used, node, other, edge, at, child, settled = 0
        cdef int64_t here, price
        memset(parent, 0xff, self.size * sizeof(int16_t))
        memset(order, 0xff, self.size * sizeof(int16_t))
        for node in range(self.size):
            distance[node] = FAR
        distance[root] = 0
        heap[0] = root
        used = 1
        while used:
            key = heap[0]
            used -= 1
            last = heap[used]
            at = 0
            child = 1
            while child < used:
                if child + 1 < used and heap[child + 1] < heap[child]:
                    child += 1
                if heap[child] >= last:
                    break
                heap[at] = heap[child]
                at = child
                child = 2 * at + 1
            heap[at] = last
            node = <int>(key & (MOST_NODES - 1))
            here = <int64_t>(key >> NODE_BITS)
            if here != distance[node]:
                continue           # outdated entry
            order[settled] = <int16_t>node
            settled += 1
            for edge in range(self.first[node], self.first[node + 1]):
                other = self.to[edge]
                price = here + self.cost[edge]
                if price >= distance[other]:
                    continue
                distance[other] = price
                parent[other] = <int16_t>node
                key = <uint64_t>price << NODE_BITS | <uint64_t>other
                at = used
                used += 1
                while at and heap[(at - 1) >> 1] > key:
                    heap[at] = heap[(at - 1) >> 1]
                    at = (at - 1) >> 1
                heap[at] = key
        self.known[root] = True

    def paths(self, int root):
        """Return three lists by node for the paths from `root`: cost, number of hops, first node on the path.

        The root itself has 0, 0 and `root`. Nodes that cannot be reached have -1 in each list.
        """
        cdef int16_t* parent
        cdef int16_t* order
        cdef int at, node, before
        if not 0 <= root < self.size:
            raise IndexError(root)
        self.compute(root)
        parent = self.parents + <size_t>root * self.size
        order = self.orders + <size_t>root * self.size
        cdef list costs = [-1] * self.size, hops = [-1] * self.size, ways = [-1] * self.size
        for at in range(self.size):
            node = order[at]
            if node < 0:
                break
            before = parent[node]
            costs[node] = self.distance[node]
            hops[node] = 0 if before < 0 else hops[before] + 1
            ways[node] = node if before < 0 or before == root else ways[before]
        return costs, hops, ways

    def valid_origins(self, int own, list bits not None):
        """Return for each node a mask of the origins whose path to that node leads through `own`.

        Paths that begin or end at `own` do not count. `bits` has the bit number of each node in the masks. Origins and
        destinations that `own` cannot reach are ignored.
        """
        cdef int root, at, node, before, words = 1, word, bit
        cdef int16_t* parent
        cdef int16_t* order
        cdef uint8_t* through
        cdef uint64_t* masks
        if not 0 <= own < self.size or len(bits) != self.size:
            raise IndexError(own)
        if not self.known[own]:
            self.compute(own)
        for bit in bits:
            if bit < 0 or bit >= 1 << 20:
                raise ValueError(f"bit {bit}")
            words = max(words, (bit >> 6) + 1)
        reached = bytearray(self.size)
        order = self.orders + <size_t>own * self.size
        for at in range(self.size):
            if order[at] < 0:
                break
            reached[order[at]] = 1
        through = <uint8_t*>malloc(self.size)
        masks = <uint64_t*>calloc(<size_t>self.size * words, sizeof(uint64_t))
        try:
            if not through or not masks:
                raise MemoryError
            for root in range(self.size):
                if root == own or not reached[root]:
                    continue
                if not self.known[root]:
                    self.compute(root)
                bit = bits[root]
                word = bit >> 6
                parent = self.parents + <size_t>root * self.size
                order = self.orders + <size_t>root * self.size
                for at in range(self.size):
                    node = order[at]
                    if node < 0:
                        break
                    before = parent[node]
                    through[node] = before >= 0 and (before == own or through[before])
                    if through[node]:
                        masks[<size_t>node * words + word] |= <uint64_t>1 << (bit & 63)
            return [
                int.from_bytes(
                    PyBytes_FromStringAndSize(<char*>(masks + <size_t>node * words), words * sizeof(uint64_t)), "little"
                ) if reached[node] else 0
                for node in range(self.size)
            ]
        finally:
            free(through)
            free(masks)

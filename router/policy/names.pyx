"""Compiled rules about the addresses that a group may use: lists and patterns (security.md P-24, P-25).

A list becomes a tree of octets in which `${user}` is a special edge, so the rules are compiled once for all users of a
group. A pattern becomes a path in a tree of tokens; all patterns are followed at the same time, token by token. The
time of a check depends on the octets of the address, not on the number of items. A check allocates no memory.

User names are never wildcards, even the name `*`.
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from sluice.router.addressing.pattern import SEPARATORS, canonical

USER = "${user}"

cdef enum:
    EXACT = 1    # an item ends here
    PREFIX = 2   # an item with a final `*` ends here and matches all addresses with this prefix
    SWALLOWS = 4  # the node of a `#`: any token leads to it again

# Roots of the pattern trees in the array of nodes.
cdef enum:
    PLAIN = 0
    AFTER_USER = 1   # tree of the patterns after ${user}
    BEFORE_USER = 2   # tree of the patterns before ${user}
    ROOTS = 3

_ONE, _ANY = "*", "#"


def compile_names(items, bint patterns):
    """Compile a list of addresses or of patterns."""
    return NamePatterns(items) if patterns else NameList(items)


def item_fault(str item not None, bint pattern):
    """Return the reason why an item is invalid, in the words of 1.19, or None."""
    if item.count(USER) > 1:
        return "contains multiple user subtitution tokens"
    if pattern and USER in item and not item.startswith(USER) and not item.endswith(USER):
        return f"may contain match pattern '{USER}' as a prefix or a suffix only."
    return None


class _Branch:
    """Node of a tree during compilation. `edges` has the next nodes by label."""

    __slots__ = ("any", "edges", "flags", "number", "user")

    def __init__(self, flags=0):
        self.edges = {}
        self.user = None
        self.any = None
        self.flags = flags
        self.number = -1


cdef class NameRules:
    """Compiled rules; base class of lists and patterns. Immutable.

    Owner: the rules of a group. All connections of the group in a process (with one thread) share them.
    """

    def __dealloc__(self):
        free(self.nodes)
        free(self.labels)
        free(self.targets)

    def permits(self, str address not None, str user):
        """Return whether `user` (None: unauthenticated) may use the address, given exactly as the client wrote it."""
        cdef bytes octets = address.encode("utf-8", "surrogatepass")
        cdef bytes name = b"" if user is None else user.encode("utf-8", "surrogatepass")
        return self.allows(octets, len(octets), name, len(name))

    cdef bint allows(self, const uint8_t* address, size_t size, const uint8_t* user, size_t user_size) noexcept:
        """Return whether the user may use the address. An empty `user` stands for an unauthenticated client."""
        return False

    cdef int32_t child(self, const Node* node, uint32_t label) noexcept:
        """Return the node at the end of the edge with this label, or -1."""
        cdef uint32_t low = node.first, high = node.first + node.edges, middle
        while low < high:
            middle = (low + high) >> 1
            if self.labels[middle] < label:
                low = middle + 1
            else:
                high = middle
        return self.targets[low] if low < node.first + node.edges and self.labels[low] == label else -1

    def _take(self, list roots):
        """Store the trees of `roots` in the arrays; a root gets its index in the list. Return the number of nodes."""
        cdef uint32_t edge = 0, count
        cdef Node* node
        every = list(roots)
        for number, branch in enumerate(every):  # the list grows during the iteration
            branch.number = number
            every += [*branch.edges.values(), *(each for each in (branch.user, branch.any) if each is not None)]
        count = len(every)
        total = sum(len(branch.edges) for branch in every)
        self.nodes = <Node*>calloc(count, sizeof(Node))
        self.labels = <uint32_t*>malloc((total + 1) * sizeof(uint32_t))
        self.targets = <int32_t*>malloc((total + 1) * sizeof(int32_t))
        if not (self.nodes and self.labels and self.targets):
            raise MemoryError
        for number, branch in enumerate(every):
            node = &self.nodes[<uint32_t>number]
            node.first, node.edges = edge, len(branch.edges)
            node.user = -1 if branch.user is None else branch.user.number
            node.any = -1 if branch.any is None else branch.any.number
            node.flags = branch.flags
            for label, target in sorted(branch.edges.items(), key=_label_of):
                self.labels[edge] = label
                self.targets[edge] = target.number
                edge += 1
        return count


def _label_of(edge):
    return edge[0]


cdef class NameList(NameRules):
    """Compiled list of addresses; an item with a final `*` is a prefix. `everything`: the list contains `*`."""

    def __init__(self, items):
        root = _Branch()
        for item in items:
            if item == "*":
                self.everything = True
            elif item.count(USER) <= 1:  # items with two are undefined and allow nothing
                _add_item(root, item)
        self._take([root])

    cdef bint allows(self, const uint8_t* address, size_t size, const uint8_t* user, size_t user_size) noexcept:
        cdef int32_t at = 0
        cdef size_t passed = 0
        cdef Node* node
        if size == 0:
            return False
        if self.everything:
            return True
        while True:
            node = &self.nodes[at]
            if node.flags & PREFIX:
                return True
            if node.user >= 0 and size - passed >= user_size and memcmp(address + passed, user, user_size) == 0:
                # Without a user, an item `${user}*` would be equal to `*`; it must allow nothing then.
                if self.walk(node.user, address + passed + user_size, size - passed - user_size,
                             at == 0 and user_size == 0):
                    return True
            if passed == size:
                return node.flags & EXACT != 0
            at = self.child(node, address[passed])
            if at < 0:
                return False
            passed += 1

    cdef bint walk(self, int32_t start, const uint8_t* rest, size_t size, bint whole) noexcept:
        """Return whether the rest of an address leads from `start`, a node after ${user}, to the end of an item.

        `whole`: a prefix item that ends at `start` itself does not count.
        """
        cdef int32_t at = start
        cdef size_t passed = 0
        while True:
            if self.nodes[at].flags & PREFIX and not (whole and at == start):
                return True
            if passed == size:
                return self.nodes[at].flags & EXACT != 0
            at = self.child(&self.nodes[at], rest[passed])
            if at < 0:
                return False
            passed += 1


def _add_item(root, item):
    text = item.removesuffix("*")
    flag = EXACT if text == item else PREFIX
    before, user, behind = text.partition(USER)
    branch = _descend(root, before.encode())
    if user:
        if branch.user is None:
            branch.user = _Branch()
        branch = _descend(branch.user, behind.encode())
    branch.flags |= flag


def _descend(branch, octets):
    """Return the node at the end of a path of octets; create missing nodes."""
    for octet in octets:
        branch = branch.edges.setdefault(octet, _Branch())
    return branch


cdef class NamePatterns(NameRules):
    """Compiled list of patterns."""

    def __init__(self, items):
        roots = [_Branch() for _ in range(ROOTS)]
        labels = {}
        for item in items:
            _add_pattern(roots, labels, item)
        self.size = self._take(roots)
        self.now = <int32_t*>malloc(self.size * sizeof(int32_t))
        self.then = <int32_t*>malloc(self.size * sizeof(int32_t))
        self.marks = <uint32_t*>calloc(self.size, sizeof(uint32_t))
        if not (self.now and self.then and self.marks):
            raise MemoryError
        self._keep(labels)

    def __dealloc__(self):
        free(self.tokens)
        free(self.now)
        free(self.then)
        free(self.marks)

    def _keep(self, dict labels):
        """Store the tokens in the hash table, whose size keeps it at most half full."""
        cdef uint32_t places = 4, at, hash, start = 0
        cdef Token* token
        while places < 2 * len(labels):
            places *= 2
        self.tokens = <Token*>malloc(places * sizeof(Token))
        if not self.tokens:
            raise MemoryError
        self.token_mask = places - 1
        for at in range(places):
            self.tokens[at].label = -1
        self.octets = b"".join(labels)
        self.octet = self.octets
        for octets, label in labels.items():
            hash = _hash(octets, len(octets))
            at = hash & self.token_mask
            while self.tokens[at].label >= 0:
                at = (at + 1) & self.token_mask
            token = &self.tokens[at]
            token.hash, token.start, token.size, token.label = hash, start, len(octets), label
            start += token.size

    cdef bint allows(self, const uint8_t* address, size_t size, const uint8_t* user, size_t user_size) noexcept:
        cdef const uint8_t* text = address
        cdef size_t left = size
        if size == 0:
            return False
        while left and _separates(text[0]):
            text += 1
            left -= 1
        if left and _separates(text[left - 1]):
            left -= 1
        if self.match(PLAIN, text, left, left == 0):
            return True
        if user_size == 0 or left < user_size:
            return False
        if memcmp(text, user, user_size) == 0:
            if left == user_size:
                return self.match(AFTER_USER, text, 0, True)
            if (_separates(text[user_size])
                    and self.match(AFTER_USER, text + user_size + 1, left - user_size - 1, False)):
                return True
        return (
            left > user_size
            and _separates(text[left - user_size - 1])
            and memcmp(text + left - user_size, user, user_size) == 0
            and self.match(BEFORE_USER, text, left - user_size - 1, False)
        )

    cdef bint match(self, int32_t root, const uint8_t* text, size_t size, bint none) noexcept:
        """Return whether the tokens of a text match a pattern of this tree.

        `none`: the text has no token. (Otherwise an empty text has one empty token.)
        """
        cdef uint32_t count, index
        cdef size_t start = 0, end = 0
        self.stamp += 1
        if self.stamp > 0x7ffffff0:
            memset(self.marks, 0, self.size * sizeof(uint32_t))
            self.stamp = 1
        count = self.reach(self.now, 0, root)
        while not none:
            while end < size and not _separates(text[end]):
                end += 1
            if self.step(&count, text + start, end - start):
                return True
            if count == 0:
                return False
            none = end == size
            end += 1
            start = end
        for index in range(count):
            if self.nodes[self.now[index]].flags & EXACT:
                return True
        return False

    cdef bint step(self, uint32_t* count, const uint8_t* token, size_t size) noexcept:
        """Follow one token from all nodes reached. Return True if the text matches whatever its further tokens are."""
        cdef uint32_t index, reached = 0
        cdef int32_t at, label = self.label(token, size)
        cdef const Node* node
        cdef int32_t* nodes
        self.stamp += 1
        for index in range(count[0]):
            at = self.now[index]
            node = &self.nodes[at]
            if node.flags & SWALLOWS:
                if node.flags & EXACT:
                    return True
                reached = self.reach(self.then, reached, at)
            if label >= 0:
                reached = self.reach(self.then, reached, self.child(node, label))
            reached = self.reach(self.then, reached, node.user)
        nodes = self.now
        self.now = self.then
        self.then = nodes
        count[0] = reached
        return False

    cdef uint32_t reach(self, int32_t* nodes, uint32_t count, int32_t node) noexcept:
        """Add a node (-1: none) and the nodes reachable from it without a token. Return the new number of nodes."""
        while node >= 0 and self.marks[node] != self.stamp:
            self.marks[node] = self.stamp
            nodes[count] = node
            count += 1
            node = self.nodes[node].any
        return count

    cdef int32_t label(self, const uint8_t* token, size_t size) noexcept:
        """Return the label of a token, or -1 if no pattern contains the token."""
        cdef uint32_t hash = _hash(token, size)
        cdef uint32_t at = hash & self.token_mask
        cdef const Token* known
        while True:
            known = &self.tokens[at]
            if known.label < 0:
                return -1
            if known.hash == hash and known.size == size and memcmp(self.octet + known.start, token, size) == 0:
                return known.label
            at = (at + 1) & self.token_mask


def _add_pattern(roots, labels, item):
    if item.count(USER) > 1 or not item.strip(SEPARATORS):
        return
    if item.strip(SEPARATORS) == USER:
        roots[AFTER_USER].flags |= EXACT
    elif item.startswith(USER):
        if item[len(USER)] in SEPARATORS:  # without a separator, ${user} is no whole token and the item allows nothing
            _add_tokens(roots[AFTER_USER], labels, item[len(USER):])
    elif item.endswith(USER):
        if item[-len(USER) - 1] in SEPARATORS:
            _add_tokens(roots[BEFORE_USER], labels, item[:-len(USER)])
    elif USER not in item:
        _add_tokens(roots[PLAIN], labels, item)


def _add_tokens(branch, labels, text):
    for token in canonical(text):
        if token == _ONE:
            if branch.user is None:
                branch.user = _Branch()
            branch = branch.user
        elif token == _ANY:
            if branch.any is None:
                branch.any = _Branch(SWALLOWS)
            branch = branch.any
        else:
            branch = branch.edges.setdefault(labels.setdefault(token.encode(), len(labels)), _Branch())
    branch.flags |= EXACT


cdef inline bint _separates(uint8_t octet) noexcept nogil:
    return octet == c"." or octet == c"/"


cdef inline uint32_t _hash(const uint8_t* octets, size_t size) noexcept nogil:
    """Return the FNV-1a hash of octets. Only the operator fills the table, so no attacker can provoke collisions."""
    cdef uint32_t hash = 2166136261u
    cdef size_t at
    for at in range(size):
        hash = (hash ^ octets[at]) * 16777619u
    return hash

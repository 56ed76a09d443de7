"""Writer of log lines: the part of a log that runs for each line.

Each client causes some seven lines at level info, so this module is compiled.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

from sluice.router.log.clock cimport DIGITS, TimestampFormatter, put_microseconds

from sluice.router.escapes import escape_unprintable
from sluice.router.log.entry import LogEntry
from sluice.router.log.formats import FORMATS, TEXT
from sluice.router.log.levels import CRITICAL, DEFAULT_MASK, LEVEL_NAMES
from sluice.router.log.text import MAX_TEXT, truncate_text

cdef extern from "Python.h":
    ctypedef struct PyFrameObject
    bint PyUnicode_IS_ASCII(object text)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    PyFrameObject* PyEval_GetFrame()
    PyFrameObject* PyFrame_GetBack(PyFrameObject* frame)
    void* PyFrame_GetCode(PyFrameObject* frame) except NULL
    int PyFrame_GetLasti(PyFrameObject* frame)
    int PyFrame_GetLineNumber(PyFrameObject* frame)
    void Py_DECREF(void* value)
    object PyType_GenericAlloc(type kind, Py_ssize_t items)

cdef enum:
    C_TRACE = 1
    C_DEBUG = 2
    C_INFO = 4
    C_NOTICE = 8
    C_WARNING = 16
    C_ERROR = 32
    C_CRITICAL = 64
    SECOND_NS = 1000000000
    MOST_PLACES = 4096         # calling instructions whose line is remembered: far more than the program has
    FIRST_PRINTABLE = 0x20
    LAST_PRINTABLE = 0x7E
    C_MOST_HELD = 4096         # octets of one write; up to this size, writes to a pipe with several writers are atomic
    LASTI_BITS = 16            # bits of an instruction's offset, below the address of its code
    WORD = 8                   # octets that `is_plain` compares at once
    ENTRY_FIELDS = 7           # of a LogEntry

MOST_HELD = C_MOST_HELD

cdef uint64_t EACH = 0x0101010101010101     # multiplied by an octet: that octet in each place of a word
cdef uint64_t HIGH_BITS = 0x80 * EACH

cdef int C_MAX_TEXT = MAX_TEXT


cdef int64_t now_ns() noexcept:
    """Return the time since the epoch in ns."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * SECOND_NS + now.tv_nsec


cdef inline bint is_plain(str text) except -1:
    """True if a text has printable ASCII characters only."""
    cdef Py_ssize_t size, at = 0
    cdef const unsigned char* octets
    cdef unsigned char others = 0
    cdef uint64_t word, high = 0
    if not PyUnicode_IS_ASCII(text):
        return False
    octets = <const unsigned char*>PyUnicode_AsUTF8AndSize(text, &size)
    # Octets of ASCII text have no high bit. A word less FIRST_PRINTABLE in each place has one if an octet is below
    # that, and a word plus one in each place if an octet is above LAST_PRINTABLE.
    while at + WORD <= size:
        memcpy(&word, octets + at, WORD)
        high |= (word - FIRST_PRINTABLE * EACH) | (word + EACH)
        at += WORD
    while at < size:
        others |= (octets[at] < FIRST_PRINTABLE) | (octets[at] > LAST_PRINTABLE)
        at += 1
    return not others and not high & HIGH_BITS


cdef inline char* put_text(char* at, str text) except NULL:
    """Write an ASCII text and return the place after it."""
    cdef Py_ssize_t size
    cdef const char* octets = PyUnicode_AsUTF8AndSize(text, &size)
    memcpy(at, octets, size)
    return at + size


cdef class HeldLines:
    """Lines that a sink has accepted and not written yet. Base class of sinks.

    Most lines of a busy process are held until the end of its wake. The writer appends them here without a call.
    """
    cdef public bytearray held
    cdef public bint holds             # True: lines below level error wait for `release` of the sink
    cdef public bint prefixes          # True: `write` puts something in front of each line
    cdef public Py_ssize_t lost        # lines lost since the last successful write
    cdef public str line_format        # of the last line

    def __cinit__(self):
        self.held = bytearray()
        self.holds = self.prefixes = False
        self.lost = 0
        self.line_format = TEXT

    cdef char* extend(self, Py_ssize_t size) except? NULL:
        """Append `size` octets for a line and its newline. Returns their place, or NULL if `write` of the sink has to
        handle the line."""
        cdef Py_ssize_t before = PyByteArray_GET_SIZE(self.held)
        if not self.holds or self.prefixes or self.lost or before + size > C_MOST_HELD:
            return NULL
        PyByteArray_Resize(self.held, before + size)
        return PyByteArray_AS_STRING(self.held) + before

    cdef bint append(self, str line, str line_format) except -1:
        """Append a line to those that are held. Returns False if `write` of the sink has to handle it."""
        cdef char* at
        if not PyUnicode_IS_ASCII(line):
            return False
        at = self.extend(len(line) + 1)
        if at is NULL:
            return False
        put_text(at, line)[0] = b"\n"
        self.line_format = line_format
        return True

    cdef bint append_text(self, TimestampFormatter clock, int64_t now, str head, str text) except -1:
        """Append a line in format text: timestamp, head, text. clock: None: without a timestamp. Returns False if
        another method has to handle the line."""
        cdef char* at
        cdef Py_ssize_t size = len(head) + len(text) + 1
        if not PyUnicode_IS_ASCII(text):
            return False
        if clock is not None:
            if not clock.prepare(now) or not PyUnicode_IS_ASCII(clock.before) or not PyUnicode_IS_ASCII(clock.after):
                return False
            size += len(clock.before) + DIGITS + len(clock.after) + 1
        at = self.extend(size)
        if at is NULL:
            return False
        if clock is not None:
            at = put_text(at, clock.before)
            put_microseconds(at, now)
            at = put_text(at + DIGITS, clock.after)
            at[0] = b" "
            at += 1
        put_text(put_text(at, head), text)[0] = b"\n"
        self.line_format = TEXT
        return True


cdef class LogSource:
    """Settings in force of one module, with those of DEFAULT filled in, and its counters by level."""
    cdef readonly str module
    cdef public object sink
    cdef public int mask
    cdef public bint timestamp
    cdef public bint show_source
    cdef public str format
    cdef public list counts
    cdef list heads                    # module and level in a line in format text, by the place of the level

    def __init__(self, str module not None, sink):
        self.module = module
        self.sink = sink
        self.mask = DEFAULT_MASK
        self.timestamp = True
        self.show_source = False
        self.format = TEXT
        self.counts = [0] * len(LEVEL_NAMES)
        self.heads = [f"{module} ({name}) " for name in LEVEL_NAMES]


cdef inline int place_of_level(int level) noexcept:
    """Return the index of a level's name and counter."""
    cdef int place = 0
    while level > 1:
        level >>= 1
        place += 1
    return place


cdef object new_entry(str module, str level, str text, tuple place, int64_t now):
    """Return a LogEntry. place: as `calling_place` returns it. Without a tuple that is copied, as `tuple.__new__`
    needs it."""
    cdef object entry = PyType_GenericAlloc(LogEntry, ENTRY_FIELDS)
    set_item(entry, 0, module)
    set_item(entry, 1, level)
    set_item(entry, 2, text)
    set_item(entry, 3, place[1])
    set_item(entry, 4, place[2])
    set_item(entry, 5, now // SECOND_NS)
    set_item(entry, 6, now % SECOND_NS)
    return entry


cdef inline void set_item(object entry, Py_ssize_t at, object value) noexcept:
    Py_INCREF(value)
    PyTuple_SET_ITEM(entry, at, value)


cdef class LineWriter:
    """Log without settings: counts and writes lines. Base class of ProcessLog."""
    cdef readonly dict sources         # LogSource by module
    cdef readonly object kept          # deque of LogEntry
    cdef public int fresh              # lines written since they were last taken
    cdef public object on_line         # called with the entry of each line that is written; None: nothing is
    cdef public object clock           # TimestampFormatter of text lines
    cdef public object structured_clock
    cdef str own_file                  # file whose code is not a caller
    cdef dict places                   # (code, file, line) by address of the code and offset of the instruction

    def __init__(self, dict sources not None, kept, clock, structured_clock, str own_file not None):
        """sources: LogSource by module. kept: deque of lines. own_file: file of the log, whose code is not shown as the
        caller."""
        self.sources = sources
        self.kept = kept
        self.clock = clock
        self.structured_clock = structured_clock
        self.own_file = own_file
        self.places = {}

    def enabled(self, module, int level):
        """Return whether lines of `module` at `level` (INFO, …) are written."""
        return (<LogSource>self.sources[module]).mask & level != 0

    def count(self, module, int level):
        """Count a line that the caller did not format because its level is disabled."""
        (<LogSource>self.sources[module]).counts[place_of_level(level)] += 1

    def trace(self, module, text):
        """Write a line at level trace. Like all methods that write, raises KeyError for an unknown module."""
        self.put(module, C_TRACE, text)

    def debug(self, module, text):
        """Write a line at level debug."""
        self.put(module, C_DEBUG, text)

    def info(self, module, text):
        """Write a line at level info."""
        self.put(module, C_INFO, text)

    def notice(self, module, text):
        """Write a line at level notice."""
        self.put(module, C_NOTICE, text)

    def warning(self, module, text):
        """Write a line at level warning."""
        self.put(module, C_WARNING, text)

    def error(self, module, text):
        """Write a line at level error."""
        self.put(module, C_ERROR, text)

    def critical(self, module, text):
        """Write a line at level critical."""
        self.put(module, C_CRITICAL, text)

    def write(self, int level, module, text):
        """Write a line at a level known only at run time."""
        self.put(module, level, text)

    def always(self, int level, module, text):
        """Write a line even if its level is disabled for the module."""
        cdef LogSource source = self.sources[module]
        source.counts[place_of_level(level)] += 1
        self.emit(source, level, text)

    def write_uncounted(self, int level, module, text):
        """Write a line about lines that were counted already."""
        self.emit(self.sources[module], level, text)

    cdef int put(self, module, int level, text) except -1:
        cdef LogSource source = self.sources[module]
        source.counts[place_of_level(level)] += 1
        return self.emit(source, level, text) if source.mask & level else 0

    cdef int emit(self, LogSource source, int level, text) except -1:
        """Keep a line, and write it to the sink of its module."""
        cdef int64_t now = now_ns()
        cdef int at = place_of_level(level)
        cdef HeldLines held
        cdef tuple place = self.calling_place()
        cdef object stamp = None
        cdef str shown = text if type(text) is str else str(text)
        if len(shown) > C_MAX_TEXT // 4:    # shorter texts fit, since a character has at most four octets
            shown = truncate_text(shown)
        # Escaped before it is kept, since tools show kept lines unchanged.
        if not is_plain(shown) and not shown.isprintable():
            # Only internal errors of the router have several lines.
            shown = escape_unprintable(shown, lines=level == CRITICAL)
        entry = new_entry(source.module, LEVEL_NAMES[at], shown, place, now)
        self.kept.append(entry)
        plain = source.format == TEXT and not source.show_source
        held = source.sink if level < C_ERROR and isinstance(source.sink, HeldLines) else None
        if held is None or not plain \
                or not held.append_text(self.clock if source.timestamp else None, now, source.heads[at], shown):
            if source.timestamp:
                stamp = (self.clock if source.format == TEXT else self.structured_clock).stamp(now)
            if plain:
                line = f"{source.heads[at]}{shown}" if stamp is None else f"{<str>stamp} {source.heads[at]}{shown}"
            else:
                line = FORMATS[source.format](entry, stamp, source.show_source)
            if held is None or not held.append(line, source.format):
                source.sink.write(line, level, source.format, entry)
        self.fresh += 1
        if self.on_line is not None:
            self.on_line(entry)
        return 0

    cdef tuple calling_place(self):
        """Return code, file and line of the code that called the log. Compiled callers have no frame and are skipped.
        """
        cdef PyFrameObject* frame = PyEval_GetFrame()      # borrowed
        cdef PyFrameObject* owned = NULL
        cdef PyFrameObject* back
        cdef tuple place = NO_PLACE
        while frame is not NULL:
            place = self.place_in(frame)
            if place[1] != self.own_file:
                break
            place = NO_PLACE
            back = PyFrame_GetBack(frame)
            if owned is not NULL:
                Py_DECREF(owned)
            frame = owned = back
        if owned is not NULL:
            Py_DECREF(owned)
        return place

    cdef tuple place_in(self, PyFrameObject* frame):
        """Return code, file and line of a frame. Finding a line in its code takes long, so the lines are remembered."""
        cdef void* found = PyFrame_GetCode(frame)
        cdef object code = <object>found                   # keeps the code alive, so that its address is its own
        cdef int at = PyFrame_GetLasti(frame)
        cdef object key = (<uint64_t><uintptr_t>found << LASTI_BITS) | <uint64_t>at
        cdef tuple place
        Py_DECREF(found)
        place = self.places.get(key) if at >> LASTI_BITS == 0 else None
        if place is None:
            place = (code, code.co_filename, PyFrame_GetLineNumber(frame))
            if at >> LASTI_BITS == 0:
                if len(self.places) >= MOST_PLACES:
                    self.places.clear()
                self.places[key] = place
        return place


cdef tuple NO_PLACE = (None, None, None)

"""Writer of log lines: the part of a log that runs for each line.

Each client causes some seven lines at level info, so this module is compiled.
"""
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from posix.time cimport CLOCK_REALTIME, clock_gettime, timespec

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

MOST_HELD = C_MOST_HELD

cdef int C_MAX_TEXT = MAX_TEXT


cdef int64_t now_ns() noexcept:
    """Return the time since the epoch in ns."""
    cdef timespec now
    clock_gettime(CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * SECOND_NS + now.tv_nsec


cdef inline bint is_plain(str text) except -1:
    """True if a text has printable ASCII characters only."""
    cdef Py_ssize_t size, at
    cdef const unsigned char* octets
    cdef unsigned char others = 0
    if not PyUnicode_IS_ASCII(text):
        return False
    octets = <const unsigned char*>PyUnicode_AsUTF8AndSize(text, &size)
    for at in range(size):     # without a branch
        others |= (octets[at] < FIRST_PRINTABLE) | (octets[at] > LAST_PRINTABLE)
    return not others


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

    cdef bint append(self, str line, str line_format) except -1:
        """Append a line to those that are held. Returns False if `write` of the sink has to handle it."""
        cdef Py_ssize_t size, before
        cdef const char* octets
        cdef char* end
        if not self.holds or self.prefixes or self.lost or not PyUnicode_IS_ASCII(line):
            return False
        octets = PyUnicode_AsUTF8AndSize(line, &size)
        before = PyByteArray_GET_SIZE(self.held)
        if before + size >= C_MOST_HELD:
            return False
        PyByteArray_Resize(self.held, before + size + 1)
        end = PyByteArray_AS_STRING(self.held) + before
        memcpy(end, octets, size)
        end[size] = b"\n"
        self.line_format = line_format
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

    def __init__(self, str module not None, sink):
        self.module = module
        self.sink = sink
        self.mask = DEFAULT_MASK
        self.timestamp = True
        self.show_source = False
        self.format = TEXT
        self.counts = [0] * len(LEVEL_NAMES)


cdef inline int place_of_level(int level) noexcept:
    """Return the index of a level's name and counter."""
    cdef int place = 0
    while level > 1:
        level >>= 1
        place += 1
    return place


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
        cdef str name = LEVEL_NAMES[place_of_level(level)]
        cdef tuple place = self.calling_place()
        cdef object stamp = None
        cdef str shown = text if type(text) is str else str(text)
        if len(shown) > C_MAX_TEXT // 4:    # shorter texts fit, since a character has at most four octets
            shown = truncate_text(shown)
        # Escaped before it is kept, since tools show kept lines unchanged.
        if not is_plain(shown) and not shown.isprintable():
            # Only internal errors of the router have several lines.
            shown = escape_unprintable(shown, lines=level == CRITICAL)
        entry = tuple.__new__(
            LogEntry, (source.module, name, shown, place[1], place[2], now // SECOND_NS, now % SECOND_NS)
        )
        self.kept.append(entry)
        if source.timestamp:
            stamp = (self.clock if source.format == TEXT else self.structured_clock).stamp(now)
        if source.format == TEXT and not source.show_source:
            if stamp is None:
                line = f"{source.module} ({name}) {shown}"
            else:
                line = f"{<str>stamp} {source.module} ({name}) {shown}"
        else:
            line = FORMATS[source.format](entry, stamp, source.show_source)
        if level >= C_ERROR or not isinstance(source.sink, HeldLines) \
                or not (<HeldLines>source.sink).append(line, source.format):
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

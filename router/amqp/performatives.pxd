"""Performatives that come rarely, checked and as Python values: open, begin, attach, detach; errors in them."""

cdef enum:
    WINDOW_OPEN = 0x7FFFFFFF   # frames: what Dispatch advertises in a begin when nothing bounds the session

cdef list open_values(list items)
cdef dict open_fields(list values, list items)
cdef bytes open_body(container, hostname, max_frame, channel_max, idle, offered, desired, properties)
cdef list begin_values(list items)
cdef bytes begin_body(remote_channel, window, handle_max, bint routers)
cdef tuple attach_values(list items)
cdef tuple detach_values(list items)

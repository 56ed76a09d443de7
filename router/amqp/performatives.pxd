"""Rare performatives as checked Python values: open, begin, attach, detach, and errors in them."""

cdef enum:
    WINDOW_OPEN = 0x7FFFFFFF   # window in frames that Dispatch announces in a begin if nothing bounds the session

# Decode a field; values that nearly all clients write are read in place. Raises RemoteError.
cdef object value_of(bytes item)
cdef list open_values(list items)
cdef dict open_fields(list values, list items)
cdef bytes open_body(container, hostname, max_frame, channel_max, idle, offered, desired, properties)
cdef list begin_values(list items)
cdef bytes begin_body(remote_channel, window, handle_max, bint routers)
cdef tuple attach_values(list items)
cdef tuple detach_values(list items)

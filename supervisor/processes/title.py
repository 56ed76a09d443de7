"""Sets the command line of a process, as shown by `ps -ef` and `htop`.

The kernel reads a command line from where the arguments are in the memory of the process (proc(5), /proc/PID/cmdline),
so that is where a title is written. When the last octet there is not zero, it takes the first zero for the end.
"""

import ctypes
from typing import Final

ARGUMENTS_BEGIN: Final = 48  # fields of /proc/PID/stat, counted from 1
ARGUMENTS_END: Final = 49
BEHIND_NAME: Final = 3  # the first field behind the name of the process, which may contain anything
NOT_ZERO: Final = b"."


def show_title(title: str) -> None:
    """Set the title, cut to the room of the arguments.

    Without /proc nothing changes.
    """
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/self/cmdline", "rb") as cmdline:
            fields = stat.read().rpartition(b")")[2].split()
            shown = cmdline.read()
    except OSError:
        return
    begin = int(fields[ARGUMENTS_BEGIN - BEHIND_NAME])
    room = int(fields[ARGUMENTS_END - BEHIND_NAME]) - begin
    if begin == 0 or room < 2 or ctypes.string_at(begin, min(len(shown), room)) != shown[:room]:
        return  # these are no arguments
    text = title.encode("utf-8", "replace")[: room - 2]
    ctypes.memmove(begin, text.ljust(room - 1, b"\0") + NOT_ZERO, room)

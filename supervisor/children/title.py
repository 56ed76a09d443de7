"""Command line of a process as shown by `ps -ef` and `htop`.

The kernel reads the command line from the arguments in the memory of the process (proc(5), /proc/PID/cmdline), so the
title is written there. If the last octet there is not zero, the kernel takes the first zero as the end.
"""

import ctypes
from typing import Final

ARGUMENTS_BEGIN: Final = 48  # fields of /proc/PID/stat, counted from 1
ARGUMENTS_END: Final = 49
BEHIND_NAME: Final = 3  # number of the first field after the process name, which may contain any character
NOT_ZERO: Final = b"."


def show_title(title: str) -> None:
    """Set the title, cut to the space of the arguments. Without /proc nothing changes."""
    try:
        with open("/proc/self/stat", "rb") as stat, open("/proc/self/cmdline", "rb") as cmdline:
            fields = stat.read().rpartition(b")")[2].split()
            shown = cmdline.read()
    except OSError:
        return
    begin = int(fields[ARGUMENTS_BEGIN - BEHIND_NAME])
    room = int(fields[ARGUMENTS_END - BEHIND_NAME]) - begin
    if begin == 0 or room < 2 or ctypes.string_at(begin, min(len(shown), room)) != shown[:room]:
        return  # not the arguments
    text = title.encode("utf-8", "replace")[: room - 2]
    ctypes.memmove(begin, text.ljust(room - 1, b"\0") + NOT_ZERO, room)

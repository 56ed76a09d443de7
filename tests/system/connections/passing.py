"""Program that opens listening sockets and passes them to a command, as systemd: `passing.py NAME=PORT,... COMMAND...`.

The sockets become descriptors from 3 on. Like systemd, the program sets the variables of sd_listen_fds(3).
"""

from __future__ import annotations

import os
import socket
import sys

FIRST = 3


def main() -> None:
    named = dict(each.split("=") for each in sys.argv[1].split(","))
    # Far from the numbers that they get, so that none is overwritten.
    opened = [
        os.dup2(socket.create_server(("127.0.0.1", int(port))).detach(), 100 + at)
        for at, port in enumerate(named.values())
    ]
    for at, descriptor in enumerate(opened, FIRST):
        os.dup2(descriptor, at)
        os.close(descriptor)
    variables = {"LISTEN_FDS": str(len(opened)), "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": ":".join(named)}
    os.execve(sys.argv[2], sys.argv[2:], {**os.environ, **variables})


if __name__ == "__main__":
    main()

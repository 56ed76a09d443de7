"""TCP connection that can be cut by killing this process: `python -m loadtests.cable PORT` forwards octets to PORT.

The process prints the port it listens on.
"""

from __future__ import annotations

import socket
import sys
import threading


def pass_on(source: socket.socket, goal: socket.socket) -> None:
    """Forward octets until either socket ends, then shut both down."""
    try:
        while octets := source.recv(1 << 16):
            goal.sendall(octets)
    except OSError:
        pass  # either socket has ended
    for each in (source, goal):
        try:
            each.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # ended already


def main(port: int) -> None:
    """Serve until killed."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        while True:
            near, _ = listening.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pass_on, args=(near, far), daemon=True).start()
            threading.Thread(target=pass_on, args=(far, near), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))

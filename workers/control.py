"""The worker's end of the control channels: events up, answers and table deltas down, connections handed over."""

import contextlib
import os
import socket
from collections.abc import Callable

import zmq

from router.ipc.control import (
    CLOSED,
    DELTA_TOPIC,
    LOG,
    ControlError,
    Message,
    WorkerSetup,
    decode,
    decode_delta,
    decode_handover,
    encode,
    handover_number,
    identity,
)

HANDOVER_OCTETS = 65536
HANDOVERS_A_WAKE = 64  # connections taken before the loop looks at sockets again


class Control:
    """Sockets to the supervisor. Owner: the worker; its loop calls `poll` when one is readable, `flush` at its end."""

    def __init__(
        self,
        setup: WorkerSetup,
        on_message: Callable[[Message, bytes | None], None],
        on_delta: Callable[[int, list[list[object]]], None],
        on_connection: Callable[[Message, int], None],
    ) -> None:
        self.on_message = on_message
        self.on_delta = on_delta
        self.on_connection = on_connection
        self.pending: list[tuple[Message, bytes | None]] = []
        self.dirty = False
        self.context = zmq.Context()
        self.deltas = self._connect(zmq.SUB, setup, setup.pub_endpoint)
        self.channel = self._connect(zmq.DEALER, setup, setup.ctl_endpoint)
        self.deltas.subscribe(DELTA_TOPIC)
        self.deltas.subscribe(identity(setup.worker, setup.generation))
        self.handover = socket.socket(fileno=setup.handover_fd)
        self.handover.setblocking(False)

    def _connect(self, kind: int, setup: WorkerSetup, endpoint: str) -> "zmq.Socket[bytes]":
        sock = self.context.socket(kind)
        sock.setsockopt(zmq.LINGER, 0)
        sock.setsockopt(zmq.RCVHWM, 0)
        sock.setsockopt(zmq.SNDHWM, 0)
        sock.setsockopt(zmq.IDENTITY, identity(setup.worker, setup.generation))
        sock.curve_serverkey = setup.server_public
        sock.curve_publickey = setup.client_public
        sock.curve_secretkey = setup.client_secret
        sock.connect(endpoint)
        return sock

    def descriptors(self) -> list[tuple[int, Callable[[], None]]]:
        """What the loop has to watch."""
        return [
            (int(self.deltas.getsockopt(zmq.FD)), self.poll),
            (int(self.channel.getsockopt(zmq.FD)), self.poll),
            (self.handover.fileno(), self.adopt),
        ]

    def tell(self, message: Message, raw: bytes | None = None) -> None:
        """To the supervisor, at the end of this wake; `raw` goes with a `local` message."""
        self.pending.append((message, raw))
        self.dirty = True

    def flush(self) -> None:
        """Send what was told. Sending may swallow the edge that announces input, so look for that too."""
        self.dirty = False
        self.send()
        self.poll()

    def send(self) -> None:
        """Send what was told; `flush` has to follow."""
        pending, self.pending = self.pending, []
        batch: list[Message] = []
        for message, raw in pending:
            batch.append(message)
            if raw is not None:  # belongs to the last message of its batch
                self.channel.send_multipart([encode(batch), raw], zmq.NOBLOCK)
                batch = []
        if batch:
            self.channel.send(encode(batch), zmq.NOBLOCK)

    def poll(self) -> None:
        """Take everything that has come; ZeroMQ's descriptors only announce changes."""
        with contextlib.suppress(zmq.Again):
            while True:
                data = self.deltas.recv(zmq.NOBLOCK)
                if data.startswith(DELTA_TOPIC):
                    delta = decode_delta(data)
                    self.on_delta(delta["epoch"], delta["ops"])
        with contextlib.suppress(zmq.Again):
            while True:
                parts = self.channel.recv_multipart(zmq.NOBLOCK)
                *others, last = decode(parts[0])
                for message in others:
                    self.on_message(message, None)
                self.on_message(last, parts[1] if len(parts) > 1 else None)

    def adopt(self) -> None:
        """Take connections that were handed over."""
        for _ in range(HANDOVERS_A_WAKE):
            try:
                data, descriptors, _, _ = socket.recv_fds(self.handover, HANDOVER_OCTETS, 1)
            except BlockingIOError:
                return
            if not data:
                os._exit(1)  # the supervisor is gone: nobody would ever take this process's place
            try:
                message = decode_handover(data)
            except ControlError as error:
                self._refuse(data, descriptors, str(error))
                continue
            self.on_connection(dict(message), descriptors[0] if descriptors else -1)

    def _refuse(self, data: bytes, descriptors: list[int], reason: str) -> None:
        """A hand-over cannot be read: close the connection, and say so."""
        for descriptor in descriptors:
            os.close(descriptor)
        number = handover_number(data)
        if number is None:
            text = f"A connection that was handed over is dropped: {reason}"
            self.tell({"t": LOG, "module": "SERVER", "level": "error", "text": text})
        else:
            self.tell({"t": CLOSED, "conn": number, "error": ["amqp:internal-error", reason]})

    def close(self) -> None:
        self.deltas.close()
        self.channel.close()
        self.context.term()
        self.handover.close()

"""Stand-in for a worker, which speaks the control protocol but no AMQP.

A client writes JSON lines. Each line is a control message for the supervisor, without the number of the connection,
which the stand-in adds. Orders of the supervisor about the connection come back as lines. Two lines address the
stand-in itself: `{"t": "table"}` returns all ops applied so far, `{"t": "die"}` kills the process with SIGKILL.

The environment variable SLUICE_STANDIN_FAULT makes it faulty. `start`: exit before it is ready. `hang`: do nothing in
the first generation. `hang always`: do nothing in any generation.
"""

import json
import os
import signal
import socket
import threading
import time
from typing import Any

import msgspec
import zmq

from sluice.router.control.codec import decode_delta, decode_handover, decode_orders
from sluice.router.control.framing import FrameDecoder, pack
from sluice.router.control.message import ControlMessage
from sluice.router.control.messages import Ack, Closed, Drain, Order, Ready, Snapshot
from sluice.router.control.names import deltas_path, identity
from sluice.router.control.ops import Op
from sluice.router.control.setup import WorkerSetup
from sluice.router.ring.region import Region
from sluice.router.testing.interworker import set_worker

MAX_MESSAGE = 4096


class StandInWorker:
    def __init__(self, setup: WorkerSetup) -> None:
        self.region = Region.attach(os.dup(setup.region_fd))
        assert self.region.workers == setup.workers
        assert len(setup.eventfds) == setup.workers
        self.setup = setup
        self.name = identity(setup.worker, setup.generation)
        self.ops: list[Op] = []
        self.epoch = -1  # no snapshot yet
        self.clients: dict[int, socket.socket] = {}
        self.received: dict[int, bytes] = {}
        self.outbox: list[ControlMessage | dict[str, Any]] = []  # messages for the supervisor, including invalid ones
        self.ended = False
        self.context = zmq.Context()
        self.sub = self.bind(f"ipc://{deltas_path(setup.directory, self.name)}")
        self.ctl = socket.socket(fileno=setup.control_fd)
        self.frames = FrameDecoder()
        self.handover = socket.socket(fileno=setup.handover_fd)
        self.poller = zmq.Poller()
        self.eventfd = setup.eventfds[setup.worker]
        for source in (self.sub, self.ctl, self.handover, self.eventfd):
            self.poller.register(source, zmq.POLLIN)
        self.sub.subscribe(b"d")
        self.sub.subscribe(self.name)

    def bind(self, endpoint: str) -> "zmq.Socket[bytes]":
        opened = self.context.socket(zmq.SUB)
        opened.setsockopt(zmq.LINGER, 0)
        opened.setsockopt(zmq.IDENTITY, self.name)
        opened.curve_serverkey = self.setup.server_public
        opened.curve_publickey = self.setup.client_public
        opened.curve_secretkey = self.setup.client_secret
        opened.bind(endpoint)
        return opened

    def queue_message(self, message: ControlMessage | dict[str, Any]) -> None:
        """Queue a message, which is sent at the end of this wake together with all others."""
        self.outbox.append(message)

    def run(self) -> int:
        while not self.ended:
            ready = dict(self.poller.poll())
            set_worker(self.region, self.setup.worker, heartbeat=time.monotonic_ns())
            if self.eventfd in ready:
                os.eventfd_read(self.eventfd)
            if self.ctl.fileno() in ready:
                self.frames.feed(self.ctl.recv(MAX_MESSAGE))
                while (parts := self.frames.take()) is not None:
                    for message in decode_orders(parts[0]):
                        self.answer(message)
            if self.sub in ready and self.epoch >= 0:  # deltas wait for the snapshot
                self.apply(self.sub.recv())
            if self.handover.fileno() in ready:
                self.adopt()
            for number, client in list(self.clients.items()):
                if client.fileno() in ready:
                    self.read(number, client)
            if self.outbox:
                self.ctl.sendall(pack([msgspec.json.encode(self.outbox)]))
                self.outbox.clear()
        return 0

    def answer(self, message: Order) -> None:
        if isinstance(message, Snapshot):
            self.ops, self.epoch = message.ops, message.epoch
            self.queue_message(Ready(self.epoch))
        elif isinstance(message, Drain):
            self.ended = True
        elif (conn := getattr(message, "conn", None)) in self.clients:
            self.write(self.clients[conn], with_defaults(message))

    def apply(self, data: bytes) -> None:
        delta = decode_delta(data)
        if delta.epoch <= self.epoch:
            return
        assert delta.epoch == self.epoch + 1, "a delta is missing"
        self.epoch = delta.epoch
        self.ops += delta.ops
        self.queue_message(Ack(self.epoch))

    def adopt(self) -> None:
        data, fds, _, _ = socket.recv_fds(self.handover, MAX_MESSAGE, 1)
        if not data:
            self.ended = True
            return
        message = decode_handover(data)
        client = socket.socket(fileno=fds[0])
        self.clients[message.conn] = client
        self.received[message.conn] = b""
        self.poller.register(client, zmq.POLLIN)
        self.write(client, {"t": "adopted", "worker": self.setup.worker, "pid": os.getpid(), "conn": message.conn})

    def read(self, number: int, client: socket.socket) -> None:
        try:
            data = client.recv(MAX_MESSAGE)
        except ConnectionError:
            data = b""
        if not data:
            self.poller.unregister(client)
            del self.clients[number]
            client.close()
            self.queue_message(Closed(conn=number, error=None))
            return
        *lines, self.received[number] = (self.received[number] + data).split(b"\n")
        for line in lines:
            self.command(number, client, json.loads(line))

    def command(self, number: int, client: socket.socket, message: dict[str, Any]) -> None:
        if message["t"] == "table":
            self.write(client, {"t": "table", "epoch": self.epoch, "ops": self.ops})
        elif message["t"] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            self.queue_message({"conn": number, **message})

    @staticmethod
    def write(client: socket.socket, message: dict[str, Any]) -> None:
        client.sendall(msgspec.json.encode(message) + b"\n")


def with_defaults(message: ControlMessage) -> dict[str, Any]:
    """Return all fields of a message, including those omitted on the wire."""
    return {"t": message.kind_name, **msgspec.structs.asdict(message)}


def run(setup: WorkerSetup) -> int:
    if os.environ.get("SLUICE_STANDIN_FAULT") == "start":
        return 1
    fault = os.environ.get("SLUICE_STANDIN_FAULT")
    if fault == "hang always" or (fault == "hang" and setup.generation == 1):
        threading.Event().wait()
    return StandInWorker(setup).run()

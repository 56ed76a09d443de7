"""Core without processes. Replicas, which apply the published deltas, play the workers."""

from sluice.router.config.load import load_text
from sluice.router.control import messages
from sluice.router.log import LogSettings, ModuleSettings, ProcessLog
from sluice.supervisor.children.worker import WorkerProcess, WorkerStage
from sluice.supervisor.composition import RouterCore
from tests.unit.ops import wire
from tests.unit.supervisor.harness import AppliedTable, attach, configuration_text

QUIET = LogSettings({"DEFAULT": ModuleSettings(mask=0)})
IN_PROCESS = ["L$management", "M0$management"]  # addresses that the router itself serves


class Replica:
    """Replica of a worker: the ops that it has applied, and the deltas that it has not."""

    def __init__(self, worker):
        self.worker = worker
        self.ops = []
        self.epoch = -1
        self.queue = []
        self.answers = []
        self.links = {}  # by connection and link: direction
        self.next_link = 0

    @property
    def table(self):
        return AppliedTable(self.ops)


class CoreWithReplicas:
    """Core with replicas of its workers. Answers are checked against the rule that makes them safe."""

    def __init__(self, workers=3, text=None):
        self.reset: list[int] = []
        self.configuration = load_text("router.conf", text or configuration_text(workers))
        self.core = RouterCore(self.configuration, ProcessLog(QUIET), 40, self.reset.append)
        self.replicas = {}
        self.respawned = 0
        for index in range(workers):
            self.begin(index, 1)
        for index in range(workers):
            self.take(index, everything=True)

    def begin(self, index, generation):
        worker = WorkerProcess(index, generation)
        worker.stage = WorkerStage.STARTING
        self.core.workers[index] = worker
        self.replicas[index] = Replica(worker)
        self.core.subscribed(worker)
        self.flush()

    def flush(self):
        while (delta := self.core.take_delta()) is not None:
            self.check_ids(wire(delta[1]))
            for replica in self.replicas.values():
                replica.queue.append((delta[0], wire(delta[1])))
        for replica in list(self.replicas.values()):
            outbox, replica.worker.outbox = replica.worker.outbox, []
            for message in outbox:
                self.deliver(replica, message)

    def check_ids(self, ops):
        """Check that a newly announced id has no other meaning for any live worker."""
        for op in ops:
            if op[0] == "addr":
                for replica in self.replicas.values():
                    if replica.worker.live:
                        assert replica.table.addresses.get(op[1], op[2]) == op[2]

    def deliver(self, replica, message):
        if isinstance(message, messages.Snapshot):
            replica.ops, replica.epoch = wire(message.ops), message.epoch
            replica.queue = [delta for delta in replica.queue if delta[0] > replica.epoch]
            self.core.receive(replica.worker, messages.Ready(replica.epoch))
            return self.flush()
        replica.answers.append(message)
        if not isinstance(message, messages.Attached) or message.kind == "anonymous":
            return None
        key = (message.conn, message.link)
        assert key in replica.links, "an answer for a detached link"
        assert message.addr in replica.table.addresses
        if replica.links[key] == "out":
            wanted = (replica.worker.index, message.link, (replica.worker.generation << 20) + message.link)
            for other in self.replicas.values():
                if other.worker.live:
                    assert wanted in other.table.consumers[message.addr]
        return None

    def take(self, index, everything=False):
        """Let a worker apply the next delta, or all deltas."""
        replica = self.replicas[index]
        while replica.queue and replica.epoch >= 0:
            epoch, ops = replica.queue.pop(0)
            assert epoch == replica.epoch + 1
            replica.ops = replica.ops + ops
            replica.epoch = epoch
            self.core.receive(replica.worker, messages.Ack(epoch))
            self.flush()
            if not everything:
                return

    def connect(self, index):
        worker = self.replicas[index].worker
        return self.core.connections.adopt(worker, self.configuration.listeners[0], "host:1", "peer:2").number

    def attach(self, index, conn, direction, address, **more):
        replica = self.replicas[index]
        link = replica.next_link
        replica.next_link += 1
        replica.links[conn, link] = direction
        generation = (replica.worker.generation << 20) + link
        message = attach(link, direction, address, conn=conn, **{"gen": generation, **more})
        self.core.receive(replica.worker, message)
        return link

    def detach(self, index, conn, link):
        del self.replicas[index].links[conn, link]
        self.core.receive(self.replicas[index].worker, messages.Detach(conn=conn, link=link))

    def close(self, index, conn):
        replica = self.replicas[index]
        replica.links = {key: direction for key, direction in replica.links.items() if key[0] != conn}
        self.core.receive(replica.worker, messages.Closed(conn=conn, error=None))

    def kill(self, index):
        worker = self.replicas.pop(index).worker

        def settled():
            self.respawned += 1
            for other in self.replicas.values():
                if other.worker.live:
                    assert other.table.workers.get(index) != (worker.generation, "up")
                    assert not any(c[0] == index for consumers in other.table.consumers.values() for c in consumers)
            self.begin(index, worker.generation + 1)

        self.core.lost(worker, settled)

    def settle(self):
        self.flush()
        while any(replica.queue for replica in self.replicas.values()):
            for index in list(self.replicas):
                self.take(index)

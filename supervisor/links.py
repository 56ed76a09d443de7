"""Links: attached, bound to an address or to another link, and gone; messages of workers about them. No I/O here."""
from collections.abc import Callable, Mapping
from typing import Any

from router.ipc.control import ATTACHED, REFUSED, Message
from router.log import Log
from supervisor.attach import Accepted, Attaching, Refused, Routed
from supervisor.connections import Connection, Link, log_attached
from supervisor.epochs import Epochs
from supervisor.linkpairs import Pairs
from supervisor.linktargets import RouterOf
from supervisor.neighbours import Neighbours
from supervisor.own_links import OwnLinks, own_link
from supervisor.table import Record, Table
from supervisor.worker import Worker, WorkerFaultError

# What waits for an acknowledgement: the worker and link it is for, and the answer.
Waiting = tuple[Worker, Link, Message]


class Links:
    """All links. Owner: the core."""

    def __init__(
        self,
        workers: Mapping[int, Worker],
        table: Table,
        epochs: Epochs[Waiting],
        attaching: Attaching,
        own_links: OwnLinks,
        neighbours: Neighbours,
        router_of: RouterOf,
        take_identity: Callable[[], int],
        log: Log,
    ) -> None:
        self.by_identity: dict[int, Link] = {}  # in order of attach
        self.pairs = Pairs(workers, take_identity, self.add, router_of)
        self._table = table
        self._epochs = epochs
        self._attaching = attaching
        self._own_links = own_links
        self._neighbours = neighbours
        self._take_identity = take_identity
        self._log = log

    def attach(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        if connection is None:
            return
        number = message["link"]
        decision = self._attaching.decide(message, connection.origin.role, self._neighbours.usable(connection))
        if isinstance(decision, Refused):
            worker.outbox.append(
                {
                    "t": REFUSED,
                    "conn": connection.number,
                    "link": number,
                    "condition": decision.condition,
                    "description": decision.description,
                }
            )
            return
        link = Link(
            self._take_identity(),
            message["name"],
            message["dir"] == "out",
            message["slot"],
            message["gen"],
            connection,
            worker.index,
        )
        self.add(connection, number, link, message["text"])
        if isinstance(decision, Routed):
            self.pairs.begin(worker, link, message, decision)
            return
        record = decision.record
        answer: dict[str, Any] = {"t": ATTACHED, "conn": connection.number, "link": number, "identity": link.identity}
        if record is None:
            answer["kind"] = "anonymous"
            if decision.source is not None:
                answer["kind"] = "source"
                answer["settled"] = decision.source
            link.up = True
            worker.outbox.append(answer)
            return
        self._accept(worker, connection, link, record, decision, answer)

    def _accept(
        self, worker: Worker, connection: Connection, link: Link, record: Record, decision: Accepted, answer: Message
    ) -> None:
        answer["kind"] = "address"
        answer["addr"] = record.id
        answer["generated"] = decision.generated
        answer["to"] = decision.to
        answer["phase"] = decision.phase
        if not decision.fallback:
            answer["fallback"] = False
        self._bind(worker, connection, link, record, answer)

    def own_begun(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        if connection is not None:
            link = own_link(worker, connection, message)
            connection.links[message["link"]] = self.by_identity[link.identity] = link
            log_attached(self._log, connection, link, message["text"])
            self._own_links.begun(link)

    def own_answered(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        link = None if connection is None else connection.links.get(message["link"])
        if connection is None or link is None:
            return
        decision = self._own_links.answered(link, message["active"])
        if decision is not None and decision.record is not None:
            answer = {"t": ATTACHED, "conn": connection.number, "link": message["link"], "identity": link.identity}
            self._accept(worker, connection, link, decision.record, decision, answer)

    def own_refused(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        if connection is not None:
            self._own_links.ended(connection, message["ref"], message["error"])

    def router_link(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        link = None if connection is None else self._neighbours.attached(worker, connection, message)
        if connection is not None and link is not None:
            self.add(connection, message["link"], link, message["text"])

    def add(self, connection: Connection, number: int, link: Link, text: str) -> None:
        """Know a link, `number` its worker's for it."""
        connection.links[number] = self.by_identity[link.identity] = link
        log_attached(self._log, connection, link, text)

    def routed_up(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        link = connection.links.get(message["link"]) if connection is not None else None
        if link is not None:
            link.up = True
            self.pairs.answered(link)

    def _bind(self, worker: Worker, connection: Connection, link: Link, record: Record, answer: Message) -> None:
        """Make a link a user of its address; the answer waits until the workers know."""
        if link.consumer:
            if self._table.has_consumer(record, worker.index, link.slot, link.generation):
                raise WorkerFaultError(f"attach: slot {link.slot} generation {link.generation} is in use")
            link.record = record
            epoch = self._table.add_consumer(
                record, worker.index, link.slot, link.generation, connection.origin.link_capacity
            )
            self._epochs.when_all(epoch, (worker, link, answer))
            return
        link.record = record
        self._table.add_producer(record)
        if record.epoch <= self._epochs.acknowledged(worker.index):
            link.up = True
            worker.outbox.append(answer)
        else:
            self._epochs.when_own(worker.index, record.epoch, (worker, link, answer))

    def detach(self, worker: Worker, message: Message) -> None:
        connection = worker.connections.get(message["conn"])
        link = connection.links.pop(message["link"], None) if connection is not None else None
        if link is not None and connection is not None:
            connection.last_delivery = max(connection.last_delivery, message.get("last", 0))
            self.drop(worker, link)
            error = message.get("error")
            self._own_links.ended(connection, link.identity, error[1] if error else None)

    def drop(self, worker: Worker, link: Link) -> None:
        link.closed = True
        self.by_identity.pop(link.identity, None)
        self.pairs.dropped(link)
        self._neighbours.dropped(link)
        record = link.record
        if record is None:
            return
        if link.consumer:
            self._table.remove_consumer(record, worker.index, link.slot, link.generation)
        else:
            self._table.remove_producer(record)

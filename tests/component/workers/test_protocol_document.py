"""Comparison of the frames in docs/spec/inter-router-protocol.md with the frames that Sluice routers exchange, octet
for octet.

Routers A, B and C in this process hold the documented conversation. A connects to B, B connects to C.

inter-router-protocol.md 0, 2.2, 3.1, 3.2, 3.4, 5.2 to 5.8, 6.2, 6.3, 7.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec.structs
import pytest

import tests.component.engine.network as engine_network
from sluice.router.amqp import codec
from sluice.supervisor.network.protocol import annotations, messages
from sluice.supervisor.network.protocol.messages import (
    Advertisement,
    Hello,
    LinkStateRequest,
    LinkStateUpdate,
    Message,
    MobileChange,
    MobileRequest,
    MobileState,
    Summary,
)
from tests.component.engine.host import InProcessPeer
from tests.component.engine.network import InProcessNetwork, remotes
from tests.peer.frames import ACCEPTED, AMQP_HEADER, parse_frame
from tests.peer.talk import begin, consumer, flow, frames, message, of, producer, say, sections, settle, transfer

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "spec" / "inter-router-protocol.md"
BLOCK = re.compile(r"^```(frame|message) ([\w-]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"((?:[0-9a-f]{2})+(?: (?:[0-9a-f]{2})+)*)(?: {2,}\S.*)?")
TAG = re.compile(rb"(?<=\xa0\x08).{8}", re.DOTALL)  # delivery-tag: a counter of the process
TRANSFER = 0x14
INSTANCE = 1_700_001_001  # from the clock of the tests
PROCESS = 0x1122334455667789  # from the random numbers of the tests
MORE = """
listener {
    name: brokers
    host: 127.0.0.1
    port: 9
    role: route-container
    idleTimeoutSeconds: 0
}
linkRoute {
    prefix: queue
    direction: in
    containerId: broker
}
"""


def blocks() -> dict[str, tuple[str, bytes]]:
    """Return the examples of the document: name -> (frame or message, octets)."""
    found: dict[str, tuple[str, bytes]] = {}
    for kind, name, text in BLOCK.findall(DOCUMENT.read_text("utf-8")):
        lines = [LINE.fullmatch(line) for line in text.splitlines()]
        assert all(lines), name
        assert name not in found
        found[name] = (kind, bytes.fromhex("".join(line[1] for line in lines if line)))
    return found


BLOCKS = blocks()
FRAMES = {name: octets for name, (kind, octets) in BLOCKS.items() if kind == "frame"}
MESSAGES = {name: octets for name, (kind, octets) in BLOCKS.items() if kind == "message"}
# Frame -> step of the conversation, and the router that sends it.
SENDERS = {
    "open-connector": ("connect", "A"),
    "open-listener": ("connect", "B"),
    "begin": ("connect", "A"),
    "begin-answer": ("connect", "B"),
    "attach-control-in": ("connect", "A"),
    "attach-control-out": ("connect", "A"),
    "attach-control-in-answer": ("connect", "B"),
    "attach-data-in": ("connect", "A"),
    "attach-data-out": ("connect", "A"),
    "flow-control": ("connect", "B"),
    "flow-data": ("connect", "B"),
    "hello-nobody-seen": ("know each other", "A"),
    "hello-seen": ("know each other", "A"),
    "summary": ("know each other", "A"),
    "lsu-own": ("know each other", "A"),
    "mau-change": ("address", "B"),
    "transfer-unsettled": ("message", "A"),
    "disposition": ("message", "B"),
    "transfer-settled": ("settled", "A"),
    "transfer-followed": ("settled", "A"),
    "disposition-followed": ("settled", "B"),
    "begin-stream": ("stream", "A"),
    "attach-stream": ("stream", "A"),
    "lsu-of-another": ("third router", "B"),
    "mau-state": ("third router", "B"),
    "attach-routed": ("link route", "A"),
    "attach-routed-answer": ("link route", "B"),
    "flow-routed": ("link route", "B"),
    "ra": ("half a minute", "A"),
    "ra-relayed": ("half a minute", "B"),
}
# Frame that carries a control message -> the decoded message.
CONTROL: dict[str, Message] = {
    "hello-nobody-seen": Hello("A", 1, INSTANCE, (), PROCESS),
    "hello-seen": Hello("A", 1, INSTANCE, ("B",), PROCESS),
    "summary": Summary("A", 1, INSTANCE, {"A": (INSTANCE, 0, 0)}),
    "lsu-own": LinkStateUpdate("A", 1, INSTANCE, 0, {"B": 10}),
    "lsu-of-another": LinkStateUpdate("A", 1, INSTANCE, 1, {"B": 10}, age=0),
    "mau-change": MobileChange("B", 1, 1, {"M0orders": 3}, ()),
    "mau-state": MobileState("B", 1, 1, {"M0orders": 3}, INSTANCE),
    "ra": Advertisement("A", 1, INSTANCE, 1, 0),
    "ra-relayed": Advertisement("A", 1, INSTANCE, 1, 0),
}
A, B = codec.encode_string("0/A"), codec.encode_string("0/B")
# Message -> its sender, the decoded message, its octets as Sluice encodes them.
WRITTEN: dict[str, tuple[bytes, Message, bytes]] = {
    "lsr": (A, LinkStateRequest("A", 1), messages.encode_link_state_request("A", messages.to_router_ls("B"))),
    "lsu-asked-for": (
        B,
        LinkStateUpdate("B", 1, INSTANCE, 2, {"A": 10, "C": 1}),
        messages.encode_link_state("B", INSTANCE, 2, [("A", 10), ("C", 1)], messages.to_router_ls("A")),
    ),
    "lsu-foreign": (
        B,
        LinkStateUpdate("D", 1, INSTANCE, 4, {"C": 1}, age=7, foreign=True, mobile_seq=3),
        messages.encode_link_state("D", INSTANCE, 4, [("C", 1)], messages.TO_NEIGHBOUR_LS, 7, True, 3),
    ),
    "mar": (A, MobileRequest("A", 1, 1), messages.encode_mobile_request("A", 1, messages.to_router_mobile("B"))),
    "mau-asked-for": (
        B,
        MobileState("B", 1, 2, {"M0orders": 3, "Cqueue": 4}),
        messages.encode_mobile_state("B", 2, {"M0orders": 3, "Cqueue": 4}, messages.to_router_mobile("A")),
    ),
    "mau-part": (
        B,
        MobileState("B", 1, 2, {"Cqueue": 4}, INSTANCE, 2, 2),
        messages.encode_mobile_state("B", 2, {"Cqueue": 4}, messages.TO_NEIGHBOUR_MOBILE, INSTANCE, 2, 2),
    ),
}


class DocumentedConversation:
    """Documented conversation, recorded by step and router."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = iter(character for number in range(10_000) for character in f"{number:015d}")
        monkeypatch.setattr("sluice.workers.links.inter_router_link.secrets.choice", lambda _: next(names))
        monkeypatch.setattr("sluice.supervisor.network.adapter.secrets.randbits", lambda _: PROCESS)
        text = engine_network.CONFIGURATION
        at = text.index("listener {\n    name: between")
        # Connections between the routers announce an idle timeout.
        monkeypatch.setattr(
            engine_network, "CONFIGURATION", text[:at] + text[at:].replace("    idleTimeoutSeconds: 0\n", "")
        )
        self.network = InProcessNetwork("ABC", monkeypatch=monkeypatch, more=MORE)
        self.sent: dict[tuple[str, str], list[bytes]] = {}
        self.step = ""
        self.network.on_octets = lambda router, octets: self._record(router.identity, octets)
        for router in self.network.routers.values():
            for worker in router.workers:
                worker.router = msgspec.structs.replace(worker.router, product="sluice-router", version="1.0.0")
        self._converse()

    def _record(self, router: str, octets: bytes) -> None:
        at = 0
        while at < len(octets):
            size = 8 if octets.startswith(b"AMQP", at) else int.from_bytes(octets[at : at + 4], "big")
            self.sent.setdefault((self.step, router), []).append(octets[at : at + size])
            at += size

    def _client(self, router: str, listener: str, container: str, octets: bytes) -> InProcessPeer:
        peer = self.network[router].connect(0, listener)
        peer.feed(AMQP_HEADER + say("open", container_id=container) + begin(0) + octets)
        self.network.settle()
        return peer

    def _converse(self) -> None:
        network = self.network
        self.step = "connect"
        network.join("A", "B", connector="dear")
        self.step = "know each other"
        network.pass_seconds(4)
        self.step = "address"
        receiving = self._client("B", "main", "receiver", consumer(0, "orders"))
        network.until(lambda: remotes(network["A"], "M0orders") == {"B"})
        self.step = "message"
        sending = self._client("A", "main", "sender", producer(0, "orders"))
        sending.feed(transfer(0, 0, message(b"hello")))
        network.settle()
        receiving.feed(settle(0, 0, ACCEPTED))
        network.settle()
        self.step = "settled"
        for number in range(1, 18):
            sending.feed(transfer(0, number, message(b"x"), settled=True))
        network.settle()
        self.step = "stream"
        sending.feed(transfer(0, 18, message(bytes(200_000)), settled=True))
        network.settle()
        self.step = "third router"
        network.join("B", "C")
        network.pass_seconds(2)
        self.step = "container"
        broker = self._client("B", "brokers", "broker", b"")
        network.pass_seconds(3)
        self.step = "link route"
        frames(broker)
        self._client("A", "main", "client", producer(0, "queue.a"))
        (attach,) = of(frames(broker), "attach")
        broker.feed(
            say(
                "begin",
                channel=1,
                remote_channel=attach.channel,
                next_outgoing_id=0,
                incoming_window=1000,
                outgoing_window=1000,
            )
        )
        answer = {"name": attach.fields["name"], "source": attach.source, "target": attach.target}
        broker.feed(say("attach", channel=1, handle=0, role=True, **answer) + flow(0, 10, channel=1))
        network.settle()
        self.step = "half a minute"
        network.pass_seconds(31)


@pytest.fixture(scope="module")
def conversation() -> Iterator[DocumentedConversation]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        made = DocumentedConversation(monkeypatch)
        yield made
        made.network.close()


def without_tag(frame: bytes) -> bytes:
    """Return the frame without its delivery-tag."""
    return TAG.sub(bytes(8), frame, count=1) if frame[10:11] == bytes([TRANSFER]) else frame


@pytest.mark.parametrize("name", FRAMES)
def test_documented_frames_match_routers(conversation: DocumentedConversation, name: str) -> None:
    sent = conversation.sent[SENDERS[name]]
    assert without_tag(FRAMES[name]).hex() in [without_tag(frame).hex() for frame in sent]


@pytest.mark.parametrize("name", CONTROL)
def test_documented_control_messages_decode_as_stated(name: str) -> None:
    envelope = annotations.read(parse_frame(FRAMES[name]).payload)
    assert messages.decode(envelope.tail()) == CONTROL[name]


@pytest.mark.parametrize("name", MESSAGES)
def test_documented_messages_match_encoder(name: str) -> None:
    node, sent, tail = WRITTEN[name]
    assert (annotations.originated_head(node) + tail).hex() == MESSAGES[name].hex()
    assert messages.decode(annotations.read(MESSAGES[name]).tail()) == sent
    assert [code for code, _ in sections(MESSAGES[name])] == [0x70, 0x72, 0x73, 0x74, 0x77]


def test_documented_examples_are_compared() -> None:
    assert (set(FRAMES), set(MESSAGES)) == (set(SENDERS), set(WRITTEN))

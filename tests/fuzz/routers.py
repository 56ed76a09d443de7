"""Input from another router on an inter-router connection: links of any number, deliveries to any address."""

from typing import Any, ClassVar

from tests.peer.frames import source, target
from tests.peer.random_peer import ADDRESSES, LinkModel, RandomPeer, SessionModel
from tests.peer.types import Symbol

CONTROL, DATA = "qd.router", "qd.router-data"
DATA_SESSIONS = 3  # data sessions of a neighbour; links beyond one per session are streaming links
KEYS = ("M0balanced.a", "M0balanced.b", "M0closest.a", "M0multicast.a", "MFspare.a", "RN1", "RN2", "M1balanced.a")


class RouterModel(RandomPeer):
    """Neighbour that sends random frames, and answers the router's stream links (`NeighbourAnswers`)."""

    CHANNEL_MAXES: ClassVar = (None, None, 100, 4)

    def begin_connection(self) -> bytes:
        octets = super().begin_connection()
        session = self.sessions[0]
        octets += self.attach_between(0, session, CONTROL, receives=True)
        octets += self.attach_between(0, session, CONTROL, receives=False)
        for channel in range(1, 1 + DATA_SESSIONS):
            octets += self.begin(channel)
            for receives in (True, False):
                octets += self.attach_between(channel, self.sessions[channel], DATA, receives=receives)
        return octets

    def attach_between(self, channel: int, session: SessionModel, capability: str, *, receives: bool) -> bytes:
        """Attach a link between routers."""
        rng = self.rng
        handle = rng.choice([h for h in range(8) if h not in session.links] or [0])
        link = session.links[handle] = LinkModel(self.next_uid, receives)
        self.next_uid += 1
        octets = self.say(
            "attach",
            channel,
            name=f"l{link.uid}",
            handle=handle,
            role=receives,
            snd_settle_mode=rng.choice((2, 2, 2, 0, 1, None)),
            rcv_settle_mode=0,
            source=source(capabilities=capability),
            target=target(capabilities=capability),
            initial_delivery_count=rng.choice((0, 0, 0, 7)),
        )
        return octets + (self.grant(channel, handle, link) if receives else b"")

    def act(self) -> bytes:
        """Return several actions at once in many cases, mostly deliveries."""
        octets = super().act()
        while self.open and self.rng.random() < 0.6:
            octets += super().act()
        return octets

    def attach(self, channel: int, session: SessionModel) -> bytes:
        choice = self.rng.random()
        if choice < 0.2:
            return super().attach(channel, session)
        capability = DATA if choice < 0.95 else CONTROL
        return self.attach_between(channel, session, capability, receives=self.rng.random() < 0.5)

    def annotations(self) -> list[tuple[Any, Any]]:
        """Return mostly the annotations that routers write."""
        rng = self.rng
        pairs = super().annotations() if rng.random() < 0.3 else []
        if rng.random() < 0.15:
            return pairs
        pairs.append((Symbol("x-opt-qd.phase"), rng.choice((0, 0, 0, 1, 22, 5, 9, 99))))
        pairs.append((Symbol("x-opt-qd.to"), rng.choice((*ADDRESSES[:9], "_topo/0/N1/x", "_topo/0/QDR/$management"))))
        pairs.append((Symbol("x-opt-qd.ingress"), rng.choice(("0/N1", "0/N2", "0/QDR", "0/other", "", "0/N1" * 80))))
        trace = [rng.choice(("0/N1", "0/N2", "0/QDR", "x")) for _ in range(rng.choice((0, 1, 1, 2, 5, 60)))]
        pairs.append((Symbol("x-opt-qd.trace"), trace))
        return pairs


def about_routers(rng: Any, number: int, index: int) -> list[list[Any]]:
    """Return events by which the network announces the router behind this connection, and its addresses."""
    events: list[list[Any]] = [["router", number, index, rng.choice((1, 1, 5, 300)), f"{rng.getrandbits(3):x}"]]
    for key in KEYS:
        if rng.random() < 0.6:
            events.append(["announce", index, key])
    return events

"""Input from another edge router on an inter-edge connection."""

from typing import Any, ClassVar

from tests.peer.frames import source, target
from tests.peer.neighbour import properties
from tests.peer.random_peer import LinkModel, RandomPeer, SessionModel
from tests.peer.types import Map


class EdgeModel(RandomPeer):
    """Another edge router, whose receivers serve its clients."""

    CHANNEL_MAXES: ClassVar = (None, 100)

    def open_properties(self) -> Map:
        more: dict[str, Any] = {"sluice.edge": f"{self.number:016x}", "sluice.inter-edge": 1}
        if self.number % 2:
            more["sluice.edge-checks"] = 1
        return properties(**more)

    def attach(self, channel: int, session: SessionModel) -> bytes:
        rng = self.rng
        if rng.random() < 0.2:
            return super().attach(channel, session)
        handle = rng.choice([h for h in range(8) if h not in session.links] or [0])
        link = session.links[handle] = LinkModel(self.next_uid, receives=True)
        self.next_uid += 1
        return self.say(
            "attach",
            channel,
            name=f"l{link.uid}",
            handle=handle,
            role=True,
            snd_settle_mode=rng.choice((None, 0, 1, 2)),
            source=source(rng.choice(self.habits.addresses)),
            target=target(),
        ) + self.grant(channel, handle, link)

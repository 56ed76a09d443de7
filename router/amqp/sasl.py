"""SASL frames (part 5, 5.3): both sides of the layer."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from router.amqp import codec
from router.amqp.errors import RemoteError

MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
OK, AUTH = 0, 1  # part 5, 5.3.3.6: the outcomes a server without a broken back end gives


def frame(body: bytes) -> bytes:
    """A SASL frame around an encoded performative."""
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class Mechanism:
    """One exchange. `step(response)` returns the next challenge, or None when it has ended; then `user` is the
    authenticated name, or None when it failed."""

    user: str | None = None

    def step(self, response: bytes) -> bytes | None:
        raise NotImplementedError


class Anonymous(Mechanism):
    """RFC 4505: the trace is not used."""

    def step(self, response: bytes) -> bytes | None:
        self.user = "anonymous"
        return None


class SaslServer:
    """Offers mechanisms, runs the one that the client picks. Owner: the connection while the layer runs.

    mechanisms: name to a factory of one exchange, in the order of the offer.
    """

    error: tuple[str, str] | None = None  # nothing is told about those who fail

    def __init__(self, mechanisms: dict[str, Callable[[], Mechanism]]) -> None:
        self.mechanisms = mechanisms
        self.running: Mechanism | None = None
        self.done = False
        self.mechanism: str | None = None  # that the client chose
        self.user: str | None = None

    def begin(self) -> bytes:
        """The sasl-mechanisms frame: always an array, as Dispatch sends it."""
        return frame(codec.encode_described(MECHANISMS, [codec.encode_symbols(list(self.mechanisms))]))

    def step(self, body: bytes) -> bytes:
        """The client's frame; the frame to answer. Raises RemoteError on a frame that has no place here."""
        code, items = codec.described_list(body)
        if code == INIT and self.running is None and items:
            name = str(codec.decode_one(items[0]))
            factory = self.mechanisms.get(name)
            if factory is None:
                return self._outcome(None)
            self.mechanism = name
            self.running = factory()
            response = codec.decode_one(items[1]) if len(items) > 1 else b""
        elif code == RESPONSE and self.running is not None and items:
            response = codec.decode_one(items[0])
        else:
            raise RemoteError("sasl", "amqp:not-allowed", f"SASL frame 0x{code:02x} is not expected")
        challenge = self.running.step(response if isinstance(response, bytes) else b"")
        if challenge is None:
            return self._outcome(self.running.user)
        return frame(codec.encode_described(CHALLENGE, [codec.encode_binary(challenge)]))

    def _outcome(self, user: str | None) -> bytes:
        self.done = True
        self.user = user
        return frame(codec.encode_described(OUTCOME, [codec.encode_ubyte(OK if user is not None else AUTH)]))


UNAUTHORIZED = "amqp:unauthorized-access"


class ClientMechanism(NamedTuple):
    """What a client says in a mechanism of one step, and who it is then."""

    name: str
    response: bytes
    user: str


def anonymous(host: str) -> ClientMechanism:
    """RFC 4505, with where we are as the trace. host: name of this machine."""
    return ClientMechanism("ANONYMOUS", f"anonymous@{host}".encode(), "anonymous")


def plain(user: str, password: str) -> ClientMechanism:
    """RFC 4616, acting as the user itself."""
    return ClientMechanism("PLAIN", b"\0" + user.encode() + b"\0" + password.encode(), user)


class SaslClient:
    """Picks the first of our mechanisms that the peer offers. Owner: the connection while the layer runs.

    Failures are told in the words of Dispatch (brokers-and-edge.md, C-7).
    """

    def __init__(self, mechanisms: Sequence[ClientMechanism], hostname: str) -> None:
        """hostname: what the peer is called."""
        self.mechanisms = mechanisms
        self.hostname = hostname
        self.picked: ClientMechanism | None = None
        self.done = False
        self.user: str | None = None
        self.error: tuple[str, str] | None = None

    @property
    def mechanism(self) -> str | None:
        """The name of the one that was picked."""
        return None if self.picked is None else self.picked.name

    def step(self, body: bytes) -> bytes:
        """The peer's frame; the answer, which may be empty. Raises RemoteError on a frame that has no place here."""
        code, items = codec.described_list(body)
        if code == MECHANISMS and self.picked is None and items:
            return self._pick(codec.decode_one(items[0]))
        if code == OUTCOME and self.picked is not None and items:
            self.done = True
            if codec.decode_one(items[0]) == OK:
                self.user = self.picked.user
            else:
                self.error = (UNAUTHORIZED, f"Authentication failed [mech={self.picked.name}]")
            return b""
        raise RemoteError("sasl", "amqp:not-allowed", f"SASL frame 0x{code:02x} is not expected")

    def _pick(self, offer: object) -> bytes:
        offered = [offer] if isinstance(offer, str) else offer if isinstance(offer, list) else []
        self.picked = next((each for each in self.mechanisms if each.name in offered), None)
        if self.picked is None:
            self.done = True
            self.error = (UNAUTHORIZED, "SASL(-4): no mechanism available:  (Authentication failed [mech=none])")
            return b""
        fields = [
            codec.encode_symbol(self.picked.name),
            codec.encode_binary(self.picked.response),
            codec.encode_string(self.hostname),
        ]
        return frame(codec.encode_described(INIT, fields))

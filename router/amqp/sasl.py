"""SASL frames (part 5, 5.3): the server's side of the layer. Mechanisms live in workers/; this only frames them."""

from collections.abc import Callable

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

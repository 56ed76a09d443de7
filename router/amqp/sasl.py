"""SASL frames (AMQP 1.0 part 5, 5.3): both sides of the layer."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Final, Literal, Protocol

from router.amqp import codec
from router.amqp.errors import RemoteError

MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
UNAUTHORIZED = "amqp:unauthorized-access"
NOT_OFFERED: Final = "Client mechanism not in mechanism inclusion list."  # for the log (security.md S-6)
OK, AUTH = 0, 1  # AMQP 1.0 part 5, 5.3.3.6: the outcomes a server without a broken back end gives


def frame(body: bytes) -> bytes:
    """A SASL frame around an encoded performative."""
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


class ClientExchange(Protocol):
    """The client's side of one exchange. `response` is what it says first, `user` who it is when the outcome is ok."""

    @property
    def name(self) -> str: ...

    @property
    def response(self) -> bytes: ...

    @property
    def user(self) -> str: ...

    def choose(self, offered: Sequence[str]) -> bool:
        """The server offers these mechanisms, this one among them. False: it cannot be used on this connection."""
        ...

    @property
    def computes(self) -> bool:
        """Whether the next `step` takes long, as long as the server likes."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """The response to a challenge. Raises ExchangeError where it makes no sense, or the server is another one."""
        ...

    def finish(self, additional: bytes | None) -> None:
        """The outcome is ok. Raises ExchangeError where the server has not proved what it has to."""
        ...

    @property
    def refusal(self) -> str:
        """Why the server refuses us, where the mechanism lets it say so; "" otherwise."""
        ...


class ExchangeError(Exception):
    """The server does not keep to the mechanism, or is not who it should be. The text is for the log."""


class Later(Enum):
    """What a mechanism returns whose answer comes later, by `SaslServer.answer`."""

    LATER = "later"


LATER: Final = Later.LATER


class Mechanism:
    """One exchange. `step(response)` returns the next challenge, or None when it has ended; then `user` is the
    authenticated name, or None when it failed. LATER: somebody else is asked, and nobody waits."""

    user: str | None = None

    def step(self, response: bytes) -> bytes | Literal[Later.LATER] | None:
        raise NotImplementedError


class Anonymous(Mechanism):
    """RFC 4505: the trace is not used."""

    def step(self, response: bytes) -> bytes | None:
        self.user = "anonymous"
        return None


class SaslServer:
    """Offers mechanisms, runs the one that the client picks. Owner: the connection while the layer runs.

    mechanisms: name to a factory of one exchange, in the order of the offer; None: `offer` is called when they are
    known. What is not known yet, mechanisms or the answer to a step, goes to the connection by `answer_sasl`.
    """

    def __init__(self, mechanisms: dict[str, Callable[[], Mechanism]] | None) -> None:
        self.mechanisms = mechanisms
        self.running: Mechanism | None = None
        self.done = False
        self.mechanism: str | None = None  # that the client chose
        self.hostname: str | None = None  # that it named
        self.user: str | None = None
        self.error: tuple[str, str] | None = None  # why the client failed, for the log

    def begin(self) -> bytes | None:
        """The sasl-mechanisms frame, or None: later."""
        return None if self.mechanisms is None else self.offer(self.mechanisms)

    def offer(self, mechanisms: dict[str, Callable[[], Mechanism]]) -> bytes:
        """The sasl-mechanisms frame: always an array, as Dispatch sends it."""
        self.mechanisms = mechanisms
        return frame(codec.encode_described(MECHANISMS, [codec.encode_symbols(list(mechanisms))]))

    def step(self, body: bytes) -> bytes | None:
        """The client's frame; the frame to answer, or None: later. Raises RemoteError on a frame that has no place
        here."""
        code, items = codec.described_list(body)
        if code == INIT and self.running is None and self.mechanisms is not None and items:
            name = str(codec.decode_one(items[0]))
            factory = self.mechanisms.get(name)
            if factory is None:
                return self.refuse(NOT_OFFERED, name)
            self.mechanism = name
            response = codec.decode_one(items[1]) if len(items) > 1 else b""
            hostname = codec.decode_one(items[2]) if len(items) > 2 else None
            self.hostname = hostname if isinstance(hostname, str) else None
            self.running = factory()
        elif code == RESPONSE and self.running is not None and items:
            response = codec.decode_one(items[0])
        else:
            raise RemoteError("sasl", "amqp:not-allowed", f"SASL frame 0x{code:02x} is not expected")
        challenge = self.running.step(response if isinstance(response, bytes) else b"")
        if challenge is LATER:
            return None
        return self.answer(challenge, self.running.user)

    def answer(self, challenge: bytes | None, user: str | None, additional: bytes | None = None) -> bytes:
        """The frame for a mechanism's answer: its next challenge, or None and who it is, None where it failed.
        additional: goes along when it has succeeded."""
        if challenge is not None:
            return frame(codec.encode_described(CHALLENGE, [codec.encode_binary(challenge)]))
        if user is None:
            return self.refuse("", self.mechanism)
        self.done = True
        self.user = user
        fields = [codec.encode_ubyte(OK)]
        if additional is not None:
            fields.append(codec.encode_binary(additional))
        return frame(codec.encode_described(OUTCOME, fields))

    def refuse(self, reason: str, mechanism: str | None) -> bytes:
        """The frames for a client that is not let in, in the words of Dispatch for the log (security.md S-6, A-5).
        mechanism: that it chose; None: it has not come so far."""
        self.done = True
        failed = f"Failed to authenticate client [mech={mechanism or 'none'}]"
        self.error = (UNAUTHORIZED, f"{reason} ({failed})" if reason else failed)
        offer = self.offer({}) if self.mechanisms is None else b""
        return offer + frame(codec.encode_described(OUTCOME, [codec.encode_ubyte(AUTH)]))


class External(Mechanism):
    """RFC 4422, appendix A: who the certificate of the client says that it is (security.md S-7)."""

    def __init__(self, user: str | None) -> None:
        self._name = user

    def step(self, response: bytes) -> bytes | None:
        self.user = self._name
        return None


class SaslClient:
    """Picks the first of our mechanisms that the peer offers. Owner: the connection while the layer runs.

    Failures are told in the words of Dispatch (brokers-and-edge.md C-7).
    """

    def __init__(
        self,
        mechanisms: Sequence[ClientExchange],
        hostname: str,
        later: Callable[[Callable[[], bytes]], None] | None = None,
    ) -> None:
        """hostname: what the peer is called. later: is given what takes long; its result, frames, goes to the
        connection by `answer_sasl`. None: it is done at once."""
        self.mechanisms = mechanisms
        self.hostname = hostname
        self.later = later
        self.picked: ClientExchange | None = None
        self.offered: list[str] = []  # mechanisms of the peer
        self.done = False
        self.user: str | None = None
        self.error: tuple[str, str] | None = None

    @property
    def mechanism(self) -> str | None:
        """The name of the one that was picked."""
        return None if self.picked is None else self.picked.name

    def step(self, body: bytes) -> bytes | None:
        """The peer's frame; the answer, which may be empty, or None: later. Raises RemoteError on a frame that has no
        place here."""
        code, items = codec.described_list(body)
        if code == MECHANISMS and self.picked is None and items:
            return self._pick(codec.decode_one(items[0]))
        if code == CHALLENGE and self.picked is not None and items:
            challenge = codec.decode_one(items[0])
            respond = partial(self._respond, self.picked, challenge if isinstance(challenge, bytes) else b"")
            if self.later is None or not self.picked.computes:
                return respond()
            self.later(respond)
            return None
        if code == OUTCOME and self.picked is not None and items:
            self.done = True
            if codec.decode_one(items[0]) != OK:
                return self._fail(self.picked, self.picked.refusal)
            additional = codec.decode_one(items[1]) if len(items) > 1 else None
            try:
                self.picked.finish(additional if isinstance(additional, bytes) else None)
            except ExchangeError as error:
                return self._fail(self.picked, str(error))
            self.user = self.picked.user
            return b""
        raise RemoteError("sasl", "amqp:not-allowed", f"SASL frame 0x{code:02x} is not expected")

    def _respond(self, picked: ClientExchange, challenge: bytes) -> bytes:
        """The answer to a challenge."""
        try:
            response = picked.step(challenge)
        except ExchangeError as error:
            return self._fail(picked, str(error))
        return frame(codec.encode_described(RESPONSE, [codec.encode_binary(response)]))

    def _fail(self, picked: ClientExchange, reason: str) -> bytes:
        """The end: nothing is answered. reason: where it is not the outcome."""
        self.done = True
        failed = f"Authentication failed [mech={picked.name}]"
        self.error = (UNAUTHORIZED, f"{reason} ({failed})" if reason else failed)
        return b""

    def _pick(self, offer: object) -> bytes:
        offered = [offer] if isinstance(offer, str) else offer if isinstance(offer, list) else []
        self.offered = [str(name) for name in offered if isinstance(name, str)]
        known = (each for each in self.mechanisms if each.name in self.offered)
        self.picked = next((each for each in known if each.choose(self.offered)), None)
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

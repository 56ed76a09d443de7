"""SASL layer (AMQP 1.0 part 5, 5.3): frames, server and client."""

from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache, partial
from typing import Final, Literal, Protocol

from sluice.router.amqp import codec
from sluice.router.amqp.errors import RemoteError

MECHANISMS, INIT, CHALLENGE, RESPONSE, OUTCOME = range(0x40, 0x45)
UNAUTHORIZED = "amqp:unauthorized-access"
NOT_OFFERED: Final = "Client mechanism not in mechanism inclusion list."  # for the log (security.md S-6)
OK, AUTH = 0, 1  # outcomes of a server whose back end works (AMQP 1.0 part 5, 5.3.3.6)


def frame(body: bytes) -> bytes:
    """Return a SASL frame around an encoded performative."""
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x01\x00\x00" + body


_PLAIN_SUCCESS: Final = frame(codec.encode_described(OUTCOME, [codec.encode_ubyte(OK)]))


@lru_cache(maxsize=64)
def _offer_frame(mechanisms: tuple[str, ...]) -> bytes:
    """Return the sasl-mechanisms frame of these names. A router has few different offers."""
    return frame(codec.encode_described(MECHANISMS, [codec.encode_symbols(mechanisms)]))


class ClientExchange(Protocol):
    """Client end of one SASL exchange. `response` is the initial response, `user` the authenticated name if the
    outcome is ok."""

    @property
    def name(self) -> str: ...

    @property
    def response(self) -> bytes: ...

    @property
    def user(self) -> str: ...

    def choose(self, offered: Sequence[str]) -> bool:
        """Choose this mechanism from the server's offer, which contains it. False: it cannot be used on this
        connection."""
        ...

    @property
    def computes(self) -> bool:
        """True if the next `step` takes long, for a time that the server determines."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """Return the response to a challenge. Raises ExchangeError if the challenge makes no sense, or the server is
        not the expected one."""
        ...

    def finish(self, additional: bytes | None) -> None:
        """Verify the outcome ok. Raises ExchangeError if the server has not given the proof that the mechanism
        requires."""
        ...

    @property
    def refusal(self) -> str:
        """Reason of the server's refusal, if the mechanism transmits one; otherwise ""."""
        ...


class ExchangeError(Exception):
    """Raised when the server violates the mechanism, or is not the expected one. The text is for the log."""


class Deferred(Enum):
    """Type of DEFERRED, which a mechanism returns if its answer comes later, by `SaslServer.answer`."""

    DEFERRED = "later"


DEFERRED: Final = Deferred.DEFERRED


class Mechanism:
    """Server end of one SASL exchange.

    `step(response)` returns the next challenge, or None when the exchange has ended; then `user` is the authenticated
    name, or None if it failed. It returns DEFERRED if the answer is computed elsewhere, without blocking.
    """

    user: str | None = None

    def step(self, response: bytes) -> bytes | Literal[Deferred.DEFERRED] | None:
        raise NotImplementedError


class Anonymous(Mechanism):
    """Mechanism ANONYMOUS (RFC 4505). The trace is not used."""

    def step(self, response: bytes) -> bytes | None:
        self.user = "anonymous"
        return None


class SaslServer:
    """Server of the SASL layer: offers mechanisms and runs the one that the client chooses. Owner: the connection
    during the layer.

    mechanisms: factories of exchanges by name, in the order of the offer; None: `offer` is called when they are known.
    Frames that come later, for the offer or the answer to a step, go to the connection by `answer_sasl`.
    """

    def __init__(self, mechanisms: dict[str, Callable[[], Mechanism]] | None) -> None:
        self.mechanisms = mechanisms
        self.running: Mechanism | None = None
        self.done = False
        self.mechanism: str | None = None  # chosen by the client
        self.hostname: str | None = None  # named by the client
        self.user: str | None = None
        self.error: tuple[str, str] | None = None  # reason of the failure, for the log

    def begin(self) -> bytes | None:
        """Return the sasl-mechanisms frame; None: it comes later."""
        return None if self.mechanisms is None else self.offer(self.mechanisms)

    def offer(self, mechanisms: dict[str, Callable[[], Mechanism]]) -> bytes:
        """Return the sasl-mechanisms frame. The offer is always an array, as in Dispatch. routing-semantics.md C-1."""
        self.mechanisms = mechanisms
        return _offer_frame(tuple(mechanisms))

    def step(self, body: bytes) -> bytes | None:
        """Handle a frame of the client; return the answer, or None if it comes later. Raises RemoteError for a frame
        that is not expected."""
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
        if challenge is DEFERRED:
            return None
        return self.answer(challenge, self.running.user)

    def answer(self, challenge: bytes | None, user: str | None, additional: bytes | None = None) -> bytes:
        """Return the frame for a mechanism's answer: the next challenge, or None and the user (None if it failed).
        additional: data for the client on success. routing-semantics.md C-3."""
        if challenge is not None:
            return frame(codec.encode_described(CHALLENGE, [codec.encode_binary(challenge)]))
        if user is None:
            return self.refuse("", self.mechanism)
        self.end()
        self.user = user
        if additional is None:
            return _PLAIN_SUCCESS
        return frame(codec.encode_described(OUTCOME, [codec.encode_ubyte(OK), codec.encode_binary(additional)]))

    def refuse(self, reason: str, mechanism: str | None) -> bytes:
        """Return the frames that refuse a client, with Dispatch's text for the log (security.md S-6, A-5). mechanism:
        chosen by the client; None: none yet. routing-semantics.md C-2."""
        failed = f"Failed to authenticate client [mech={mechanism or 'none'}]"
        self.error = (UNAUTHORIZED, f"{reason} ({failed})" if reason else failed)
        offer = self.offer({}) if self.mechanisms is None else b""
        self.end()
        return offer + frame(codec.encode_described(OUTCOME, [codec.encode_ubyte(AUTH)]))

    def end(self) -> None:
        """End the layer, and drop mechanisms and factories, which may refer to this object. Workers collect reference
        cycles seldom."""
        self.done = True
        self.running = self.mechanisms = None


class External(Mechanism):
    """Mechanism EXTERNAL (RFC 4422, appendix A): the user is taken from the client's certificate (security.md S-7)."""

    def __init__(self, user: str | None) -> None:
        self._name = user

    def step(self, response: bytes) -> bytes | None:
        self.user = self._name
        return None


class SaslClient:
    """Client of the SASL layer: chooses the first of its mechanisms that the peer offers. Owner: the connection during
    the layer.

    Failures are reported in the words of Dispatch (brokers-and-edge.md C-7).
    """

    def __init__(
        self,
        mechanisms: Sequence[ClientExchange],
        hostname: str,
        later: Callable[[Callable[[], bytes]], None] | None = None,
    ) -> None:
        """Create the client. hostname: name of the peer. later: called with a long computation, whose result, frames,
        goes to the connection by `answer_sasl`; None: computed at once."""
        self.mechanisms = mechanisms
        self.hostname = hostname
        self.later = later
        self.picked: ClientExchange | None = None
        self.offered: list[str] = []  # by the peer
        self.done = False
        self.user: str | None = None
        self.error: tuple[str, str] | None = None

    @property
    def mechanism(self) -> str | None:
        """Name of the chosen mechanism; None: none."""
        return None if self.picked is None else self.picked.name

    def step(self, body: bytes) -> bytes | None:
        """Handle a frame of the peer; return the answer, which may be empty, or None if it comes later. Raises
        RemoteError for a frame that is not expected."""
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
        """Return the frame that answers a challenge."""
        try:
            response = picked.step(challenge)
        except ExchangeError as error:
            return self._fail(picked, str(error))
        return frame(codec.encode_described(RESPONSE, [codec.encode_binary(response)]))

    def _fail(self, picked: ClientExchange, reason: str) -> bytes:
        """End the exchange without an answer. reason: of the failure; "": the outcome. security.md S-11."""
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

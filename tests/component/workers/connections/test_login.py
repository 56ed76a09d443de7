"""Logins of clients: without SASL, by mechanisms of the worker, and by an exchange with the supervisor."""

import gc
from typing import Any

import msgspec
import pytest

from sluice.router.control import login_messages
from sluice.router.control.messages import TlsFacts
from sluice.supervisor.auth.authentication import Authentication
from sluice.workers.connections.handler import ConnectionHandler
from sluice.workers.connections.login import (
    ANONYMOUS_USER,
    DelegatedExchange,
    make_local_server,
    user_without_sasl,
)
from tests.peer.frames import SASL_HEADER, Performative, frame_octets
from tests.peer.talk import frames, start

SUBJECT = "CN=client"
TLS = TlsFacts(protocol="TLSv1.3", cipher="c", ssf=256, subject=SUBJECT)
SUCCESS, FAILURE = 0, 1  # codes of outcomes


def sasl(name: str, **fields: Any) -> bytes:
    return frame_octets(Performative(name, **fields).encode(), kind=1)


@pytest.fixture
def profile(routers):
    """Profile of a listener that offers all mechanisms."""
    return msgspec.structs.replace(routers().workers[0].profiles["main"], sasl_mechanisms=None)


# -- without SASL


def test_client_without_sasl_and_tls_is_anonymous(profile):
    assert user_without_sasl(profile, None) == ANONYMOUS_USER


@pytest.mark.parametrize(
    ("mechanisms", "user"), [(None, SUBJECT), (["EXTERNAL", "PLAIN"], SUBJECT), (["PLAIN"], None), ([], None)]
)
def test_subject_of_certificate_is_user_where_external_is_allowed(profile, mechanisms, user):
    assert user_without_sasl(msgspec.structs.replace(profile, sasl_mechanisms=mechanisms), TLS) == user


# -- mechanisms of the worker


@pytest.mark.parametrize(
    ("tls", "authenticate", "mechanisms", "offered"),
    [
        (None, False, None, {"ANONYMOUS"}),
        (TLS, False, None, {"ANONYMOUS", "EXTERNAL"}),
        (TLS, True, None, {"EXTERNAL"}),
        (None, True, None, set()),
        (TLS, False, ["ANONYMOUS"], {"ANONYMOUS"}),
        (TLS, False, ["EXTERNAL", "PLAIN"], {"EXTERNAL"}),
    ],
)
def test_worker_offers_mechanisms_that_need_no_secrets(profile, tls, authenticate, mechanisms, offered):
    profile = msgspec.structs.replace(profile, authenticate_peer=authenticate, sasl_mechanisms=mechanisms)
    server = make_local_server(profile, tls)
    assert set(server.mechanisms or ()) == offered


# -- exchange with the supervisor


class DelegatedLogin:
    """Client of a listener whose clients the supervisor authenticates. `requests` records the worker's messages."""

    def __init__(self, routers, monkeypatch):
        self.requests: list[Any] = []
        for name in ("_begin", "_init", "_respond"):
            monkeypatch.setattr(Authentication, name, self._record)
        self.router = routers()
        profiles = self.router.workers[0].profiles
        profiles["main"] = msgspec.structs.replace(profiles["main"], asks_for_sasl=True)
        self.peer = self.router.connect()
        self.number = self.peer.known.number

    def _record(self, worker, message):
        self.requests.append(message)

    def say(self, octets):
        """Send octets; return the router's frames."""
        self.peer.feed(octets)
        self.router.settle()
        return frames(self.peer)

    def answer(self, message):
        """Answer as the supervisor; return the router's frames."""
        self.router.core.workers[0].outbox.append(message)
        self.router.settle()
        return frames(self.peer)

    def begin(self):
        """Exchange everything up to the choice of PLAIN."""
        self.say(SASL_HEADER)
        (offer,) = self.answer(login_messages.SaslOffer(self.number, ["PLAIN", "X"]))
        assert offer.sasl_server_mechanisms == ["PLAIN", "X"]
        assert self.say(sasl("sasl-init", mechanism="PLAIN", initial_response=b"first", hostname="host")) == []


@pytest.fixture
def login(routers, monkeypatch):
    return DelegatedLogin(routers, monkeypatch)


def test_supervisor_receives_mechanism_and_responses(login):
    login.begin()
    (challenge,) = login.answer(login_messages.SaslChallenge(login.number, b"challenge"))
    assert challenge.challenge == b"challenge"
    login.say(sasl("sasl-response", response=b"second"))
    init, response = login.requests[-2:]
    assert (init.conn, init.mechanism, init.response, init.hostname) == (login.number, "PLAIN", b"first", "host")
    assert response == login_messages.SaslResponse(login.number, b"second")


def test_user_of_supervisors_outcome_opens_connection(login):
    login.begin()
    (outcome,) = login.answer(login_messages.SaslOutcome(conn=login.number, user="u"))
    assert outcome.code == SUCCESS
    assert [frame.name for frame in login.say(start())] == ["open", "begin"]
    assert (login.peer.known.user, login.peer.known.mechanism) == ("u", "PLAIN")


def test_refusal_by_supervisor_ends_connection(login):
    login.begin()
    (outcome,) = login.answer(login_messages.SaslOutcome(conn=login.number, user=None, reason="no"))
    assert outcome.code == FAILURE
    assert login.peer.gone


def test_mechanism_that_was_not_offered_is_refused_without_supervisor(login):
    login.say(SASL_HEADER)
    login.answer(login_messages.SaslOffer(login.number, ["PLAIN"]))
    asked = len(login.requests)
    (outcome,) = login.say(sasl("sasl-init", mechanism="OTHER", initial_response=b"x"))
    assert (outcome.code, login.requests[asked:]) == (FAILURE, [])


def test_reply_after_end_of_exchange_is_ignored(login):
    login.begin()
    login.answer(login_messages.SaslOutcome(conn=login.number, user="u"))
    assert login.answer(login_messages.SaslOutcome(conn=login.number, user=None, reason="late")) == []
    assert [frame.name for frame in login.say(start())] == ["open", "begin"]
    assert login.answer(login_messages.SaslChallenge(login.number, b"late")) == []
    assert login.peer.known.user == "u"


@pytest.mark.parametrize("end", ["open", "refused", "lost"])
def test_exchange_is_freed_without_collector(login, end):
    """A worker collects reference cycles so seldom that they would add up."""
    gc.collect()
    gc.disable()
    try:
        login.begin()
        if end == "lost":
            login.peer.lose()
            login.router.settle()
        else:
            login.answer(login_messages.SaslOutcome(conn=login.number, user="u" if end == "open" else None))
            login.say(start())
        if end != "open":
            del login.peer  # the peer refers to the handler
        login.router.pass_time(60_000)
        left = [type(each) for each in gc.get_objects() if isinstance(each, (DelegatedExchange, ConnectionHandler))]
    finally:
        gc.enable()
    assert left == ([ConnectionHandler] if end == "open" else [])

"""Control messages: what is encoded is decoded, what is none is refused by name."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.ipc import control
from router.ipc.control import ControlError

TEXTS = st.sampled_from(["", "orders", "größe", "\u2028", "😀", '"\\\x00'])
VALUES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS | st.lists(TEXTS)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(control.REQUIRED)))
    message: dict[str, Any] = {name: draw(VALUES) for name in sorted(control.REQUIRED[kind])}
    return {**message, "t": kind}


@given(st.lists(messages()))
def test_what_is_encoded_is_decoded(batch: list[dict[str, Any]]) -> None:
    assert control.decode(control.encode(batch)) == batch


@given(messages().filter(lambda message: len(message) > 1), st.data())
def test_a_message_without_a_required_field_is_refused(message: dict[str, Any], data: st.DataObject) -> None:
    kind = message["t"]
    missing = data.draw(st.sampled_from(sorted(message.keys() - {"t"})))
    del message[missing]
    with pytest.raises(ControlError) as raised:
        control.decode(control.encode([message]))
    assert str(raised.value) == f"control message 0 ({kind}): no {missing}"


def test_the_types_are_those_of_the_protocol() -> None:
    assert set(control.REQUIRED) == {
        *("ready", "resync", "ack", "opened", "closed", "attach", "detach", "local", "forwarded"),
        *("log", "logged", "traced", "initiated", "linked", "unlinked", "link", "unlink"),
        *("pair", "pairable", "unpairable", "paired", "unpaired", "unpair", "routedup", "routerlink", "control"),
        *("snapshot", "attached", "refused", "detached", "gone", "close", "drain", "send", "taken", "watch"),
        "decided",
    }
    for kind in control.REQUIRED:
        assert getattr(control, kind.upper()) == kind


def test_optional_fields_may_be_missing() -> None:
    answer = {"t": control.ATTACHED, "conn": 1, "link": 2, "kind": "anonymous"}
    assert control.decode(control.encode([answer])) == [answer]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "control messages: "),
        (b"\xff", "control messages: "),
        (b"{}", "a dict where a list is expected"),
        (b"[1]", "control message 0: a int where an object is expected"),
        (b'[{"t":"resync"},{"t":"nothing"}]', "control message 1: unknown type 'nothing'"),
        (b'[{"t":["ack"]}]', r"control message 0: unknown type \['ack'\]"),
        (b"[{}]", "control message 0: unknown type None"),
        (b'[{"t":"attached","conn":1}]', r"control message 0 \(attached\): no kind, link"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(ControlError, match=text):
        control.decode(data)


def test_what_json_cannot_say_is_not_encoded() -> None:
    with pytest.raises(ControlError, match="control messages: "):
        control.encode([{"t": control.ACK, "epoch": object()}])


TEXTS = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs, too
SAID = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | TEXTS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=3),
    max_leaves=8,
)


@given(SAID)
def test_whatever_a_peer_has_said_can_be_told(value: object) -> None:
    message = {"t": "log", "module": "SERVER", "level": "info", "text": "", "more": value}
    (decoded,) = control.decode(control.encode([message]))
    assert decoded.keys() == message.keys()


def test_half_of_a_surrogate_pair_is_told_as_an_escape() -> None:
    message = {"t": "log", "module": "SERVER", "level": "info", "text": "a\ud800b"}
    assert control.decode(control.encode([message])) == [{**message, "text": "a\\ud800b"}]


def test_delta() -> None:
    ops = [["addr", 1, "M0orders", {"treatment": "balanced"}], ["-addr", 2]]
    data = control.encode_delta(7, ops)
    assert data.startswith(b"d{")
    assert control.decode_delta(data) == {"epoch": 7, "ops": ops}
    with pytest.raises(ControlError, match="delta: topic is b'w1.1'"):
        control.decode_delta(b"w1.1")
    with pytest.raises(ControlError, match="delta: no ops"):
        control.decode_delta(b'd{"epoch":1}')


def test_handover_and_fork() -> None:
    handover = control.Handover(conn=1, offer="amqp", peer="127.0.0.1:5")
    assert control.decode_handover(control.encode_handover(handover)) == handover
    request = control.ForkRequest(worker=1, generation=2)
    assert control.decode_fork_request(control.encode_fork(request)) == request
    answer = control.ForkAnswer(pid=3)
    assert control.decode_fork_answer(control.encode_fork(answer)) == answer
    with pytest.raises(ControlError, match="hand-over: no conn, offer, peer"):
        control.decode_handover(b"{}")
    with pytest.raises(ControlError, match="fork answer: a list where an object is expected"):
        control.decode_fork_answer(b"[]")


def test_identity() -> None:
    assert control.identity(3, 12) == b"w3.12"


def test_setup_does_not_show_its_secret() -> None:
    setup = control.WorkerSetup(
        worker=0,
        generation=1,
        workers=2,
        region_fd=3,
        eventfds=[4, 5],
        handover_fd=6,
        pub_endpoint="ipc://@pub",
        ctl_endpoint="ipc://@ctl",
        server_public=b"server",
        client_public=b"client",
        client_secret=b"SECRET",
        cpu=None,
        router={"id": "A"},
        log={},
    )
    assert "SECRET" not in repr(setup)
    assert setup.client_secret == b"SECRET"

"""Control messages: encoded messages are decoded unchanged; malformed ones are refused by message and field."""

import json
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.router.control import codec, messages, names
from sluice.router.control.codec import ControlError
from sluice.router.control.handlers import HandlerTable
from sluice.router.control.handover import ForkAnswer, ForkRequest, Handover, InitiateData
from sluice.router.control.message import ControlMessage
from sluice.router.control.messages import Event, Order, TlsFacts
from sluice.router.control.ops import AddressAttributes, AddressGone, AddressOp, Op, TableOp
from sluice.router.control.setup import WorkerSetup
from sluice.router.log import LogEntry
from sluice.router.table.table import OPS
from tests.unit.router.control.facts import facts

TEXTS = st.sampled_from(["", "orders", "größe", "\u2028", "😀", '"\\\x00'])
NUMBERS = st.integers(-(2**53), 2**53)
VALUES = st.none() | st.booleans() | NUMBERS | TEXTS | st.lists(TEXTS)
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(int, NUMBERS)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
NAMES = st.none() | TEXTS
TLS = st.builds(
    TlsFacts,
    protocol=TEXTS,
    cipher=TEXTS,
    ssf=NUMBERS,
    subject=NAMES,
    issuer=NAMES,
    attributes=st.lists(st.tuples(TEXTS, TEXTS)),
    fingerprints=st.dictionaries(TEXTS, TEXTS),
    names=st.dictionaries(TEXTS, TEXTS),
)
FIELDS = {"ops": st.just([]), "properties": st.dictionaries(TEXTS, VALUES), "tls": st.none() | TLS}
EVENTS, ORDERS = get_args(Event), get_args(Order)


def random_message(kinds: tuple[type[ControlMessage], ...]) -> st.SearchStrategy[ControlMessage]:
    def build(kind: type[ControlMessage]) -> st.SearchStrategy[ControlMessage]:
        fields = msgspec.structs.fields(kind)
        drawn = {each.name: FIELDS[each.name] if each.name in FIELDS else st.from_type(each.type) for each in fields}
        return st.builds(kind, **drawn)

    return st.sampled_from(kinds).flatmap(build)


@given(st.lists(random_message(EVENTS)))
def test_encoded_events_are_decoded_unchanged(batch: list[ControlMessage]) -> None:
    assert codec.decode_events(codec.encode(batch)) == batch


@given(st.lists(random_message(ORDERS)))
def test_encoded_orders_are_decoded_unchanged(batch: list[ControlMessage]) -> None:
    assert codec.decode_orders(codec.encode(batch)) == batch


@given(random_message(EVENTS), st.data())
def test_message_without_required_field_is_refused(message: ControlMessage, data: st.DataObject) -> None:
    required = [field.encode_name for field in msgspec.structs.fields(type(message)) if field.required]
    plain = msgspec.to_builtins(message)
    if required:
        missing = data.draw(st.sampled_from(required))
        del plain[missing]
        text = f"missing required field `{missing}` - at `\\$\\[0\\]` \\(message '{plain['t']}'\\)"
        with pytest.raises(ControlError, match=text):
            codec.decode_events(json.dumps([plain]).encode())


@given(random_message(ORDERS), st.data())
def test_field_of_wrong_type_is_refused(message: ControlMessage, data: st.DataObject) -> None:
    plain = msgspec.to_builtins(message)
    if len(plain) > 1:
        wrong = data.draw(st.sampled_from(sorted(plain.keys() - {"t"})))
        plain[wrong] = [0.5] if wrong == "limits" else {"neither": "text, number nor list"}
        kind = "array" if wrong == "limits" else "object"
        text = f"got `{kind}` - at `\\$\\[0\\].{wrong}` \\(message '{plain['t']}'\\)"
        with pytest.raises(ControlError, match=text):
            codec.decode_orders(json.dumps([plain]).encode())


def test_message_types_are_those_of_protocol() -> None:
    def sent(kinds: tuple[type[ControlMessage], ...]) -> set[object]:
        return {kind.__struct_config__.tag for kind in kinds}

    assert sent(EVENTS) == {
        *(
            "ready",
            "resync",
            "portclosed",
            "ack",
            "opened",
            "closed",
            "attach",
            "detach",
            "local",
            "forwarded",
        ),
        *("log", "logged", "traced", "spans", "initiated", "linked", "unlinked", "suspended"),
        *("pairable", "unpairable", "unpaired", "routedup", "routerlink", "oversized", "forbidden"),
        *("saslbegin", "saslinit", "saslresponse", "loginfailed", "sessiondenied"),
        *("heartbeatmissed", "copiesmissed"),
    }
    assert sent(ORDERS) == {
        *("admitted", "denied", "rules", "rulesgone", "permit", "closelink", "withdrawcredit"),
        *("link", "unlink", "pair", "paired", "unpair", "control", "decided", "postponed"),
        *("snapshot", "attached", "resume", "refused", "detached", "gone", "close", "drain", "send", "taken", "watch"),
        *("sasloffer", "saslchallenge", "sasloutcome"),
    }


def test_defaults_are_not_sent() -> None:
    answer = messages.Attached(conn=1, link=2, identity=3, kind="anonymous")
    assert json.loads(codec.encode([answer])) == [
        {"t": "attached", "conn": 1, "link": 2, "identity": 3, "kind": "anonymous"}
    ]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "events of a worker: Input data was truncated"),
        (b"\xff", "events of a worker: JSON is malformed"),
        (b"{}", "events of a worker: Expected `array`, got `object`"),
        (b"[1]", r"Expected `object`, got `int` - at `\$\[0\]`"),
        (b'[{"t":"resync"},{"t":"nothing"}]', r"Invalid value 'nothing' - at `\$\[1\].t` \(message 'nothing'\)"),
        (b'[{"t":["ack"]}]', r"Expected `str` - at `\$\[0\].t`"),
        (b"[{}]", r"missing required field `t` - at `\$\[0\]`"),
        (b'[{"t":"attached","conn":1}]', r"Invalid value 'attached' - at `\$\[0\].t`"),
        (b'[{"t":"ack","epoch":"7"}]', r"Expected `int`, got `str` - at `\$\[0\].epoch` \(message 'ack'\)"),
    ],
)
def test_invalid_event_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(ControlError, match=text):
        codec.decode_events(data)


def test_value_unknown_to_json_is_not_encoded() -> None:
    with pytest.raises(ControlError, match="control messages: a object cannot be encoded"):
        codec.encode([messages.Ack(object())])  # type: ignore[arg-type]


class SymbolLike(str):
    """Subclass of str, like AMQP symbols."""


def test_symbol_is_encoded_as_text() -> None:
    message = messages.Log("SERVER", SymbolLike("info"), "")
    assert codec.decode_events(codec.encode([message])) == [messages.Log("SERVER", "info", "")]


ANY_TEXT = st.text(st.characters(exclude_categories=()))  # includes halves of surrogate pairs
SAID = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | ANY_TEXT,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(ANY_TEXT, values, max_size=3),
    max_leaves=8,
)


@given(SAID)
def test_value_from_peer_can_be_encoded(value: object) -> None:
    message = messages.Opened(conn=1, container="", hostname=None, user=None, properties={"said": value}, tls=None)
    (decoded,) = codec.decode_events(codec.encode([message]))
    assert isinstance(decoded, messages.Opened)
    assert decoded.properties.keys() == {"said"}


def test_half_of_surrogate_pair_is_encoded_as_escape() -> None:
    message = messages.Log("SERVER", "info", "a\ud800b")
    assert codec.decode_events(codec.encode([message])) == [messages.Log("SERVER", "info", "a\\ud800b")]


def test_log_lines_keep_their_fields() -> None:
    line = LogEntry("SERVER", "info", "text", None, None, 7)
    (decoded,) = codec.decode_events(codec.encode([messages.Logged({"SERVER": [1]}, [line])]))
    assert isinstance(decoded, messages.Logged)
    assert decoded.lines[0].seconds == 7


def test_delta_is_decoded_and_validated() -> None:
    ops: list[Op] = [AddressOp(1, "M0orders", AddressAttributes("balanced")), AddressGone(2)]
    data = codec.encode_delta(7, ops)
    sent = [["addr", 1, "M0orders", {"treatment": "balanced"}], ["-addr", 2]]
    assert json.loads(data[1:]) == {"epoch": 7, "ops": sent}
    assert codec.decode_delta(data) == messages.Delta(7, ops)
    with pytest.raises(ControlError, match="delta: topic is b'w1.1'"):
        codec.decode_delta(b"w1.1")
    with pytest.raises(ControlError, match=r"delta: Expected `int`, got `str` - at `\$.ops\[0\]\[2\]`"):
        codec.decode_delta(b'd{"epoch":1,"ops":[["+c",1,"two",3,4,5]]}')
    with pytest.raises(ControlError, match=r"delta: Invalid value 'none' - at `\$.ops\[1\]\[0\]`"):
        codec.decode_delta(b'd{"epoch":1,"ops":[["-addr",1],["none"]]}')
    with pytest.raises(ControlError, match="delta: Object missing required field `ops`"):
        codec.decode_delta(b'd{"epoch":1}')


def test_handover_and_fork_are_decoded_unchanged() -> None:
    handover = Handover(1, "amqp", "127.0.0.1:5", InitiateData("host", "me"))
    assert codec.decode_handover(codec.encode_handover(handover)) == handover
    assert codec.handover_number(codec.encode_handover(handover)[:12]) == 1
    request = ForkRequest(worker=1, generation=2)
    assert codec.decode_fork_request(codec.encode_fork(request)) == request
    answer = ForkAnswer(pid=3)
    assert codec.decode_fork_answer(codec.encode_fork(answer)) == answer
    with pytest.raises(ControlError, match="hand-over: Object missing required field `conn`"):
        codec.decode_handover(b"{}")
    with pytest.raises(ControlError, match="fork answer: Expected `object`, got `array`"):
        codec.decode_fork_answer(b"[]")


def test_message_type_has_one_handler() -> None:
    handled: list[tuple[str, ControlMessage]] = []

    def take(sender: str, message: messages.Ack) -> None:
        handled.append((sender, message))

    handlers = HandlerTable[str](messages.Ack | messages.Ready | messages.Local, but=(messages.Local,))
    with pytest.raises(ValueError, match="no handler for message types Ack, Ready"):
        handlers.check_complete()
    handlers.on(messages.Ack, take)
    with pytest.raises(ValueError, match="Ack already has a handler"):
        handlers.on(messages.Ack, take)
    with pytest.raises(ValueError, match="Local already has a handler, or is not received here"):
        handlers.on(messages.Local, lambda sender, message: None)
    handlers.on(messages.Ready, lambda sender, message: None)
    handlers.check_complete()
    handlers.handle("worker", messages.Ack(5))
    assert handled == [("worker", messages.Ack(5))]


def test_table_applies_all_op_types() -> None:
    assert set(OPS) == set(get_args(TableOp))


def test_worker_identity_has_index_and_generation() -> None:
    assert names.identity(3, 12) == b"w3.12"


def test_setup_does_not_show_its_secret() -> None:
    setup = WorkerSetup(
        worker=0,
        generation=1,
        workers=2,
        region_fd=3,
        eventfds=[4, 5],
        handover_fd=6,
        control_fd=6,
        directory="/private",
        server_public=b"server",
        client_public=b"client",
        client_secret=b"SECRET",
        cpu=None,
        router=facts("A"),
        log={},
    )
    assert "SECRET" not in repr(setup)
    assert setup.client_secret == b"SECRET"


def test_raw_octets_follow_their_messages():
    batch = [messages.Local("M0a", 1), messages.Ack(1), messages.Local("M0a", 2)]
    joined = codec.join_octets(batch, [b"1", b"2"])
    assert joined == [(batch[0], b"1"), (batch[1], None), (batch[2], b"2")]
    for wrong in ([b"1"], [b"1", b"2", b""]):
        with pytest.raises(codec.ControlError, match=rf"octets of {len(wrong)} messages came for 2 messages"):
            codec.join_octets(batch, wrong)

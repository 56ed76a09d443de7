"""Scan of the leading sections and rewriting of annotations, compared with a full decoder."""

from hypothesis import given
from hypothesis import strategies as st

from sluice.router.testing.message import rewrite_annotations, scan_dict
from tests.peer.codec import encode
from tests.peer.talk import sections
from tests.peer.types import Described, Map, Symbol, UByte, ULong

ROUTER = "x-opt-qd."
text = st.text(st.characters(min_codepoint=32, max_codepoint=400), max_size=300)
user_key = st.sampled_from(["a", "x-opt-qd", "x-opt-other", "X-OPT-QD.to"]).map(Symbol)
user_pair = st.tuples(user_key, st.one_of(text, st.integers(0, 1 << 40), st.just([1, "x"]), st.none()))
router_pair = st.one_of(
    st.tuples(st.just(Symbol("x-opt-qd.to")), text),
    st.tuples(st.just(Symbol("x-opt-qd.ingress")), text),
    st.tuples(st.just(Symbol("x-opt-qd.trace")), st.lists(text, max_size=5)),
    st.tuples(st.just(Symbol("x-opt-qd.phase")), st.integers(0, 9)),
)
pairs = st.lists(st.one_of(user_pair, router_pair), max_size=8)
header = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.booleans()), max_size=1), st.just([True, UByte(7)]))


def encoded_message(head, delivery, annotations, properties, body):
    octets = b"" if head is None else encode(Described(ULong(0x70), head))
    octets += encode(Described(ULong(0x71), {Symbol("d"): delivery})) if delivery is not None else b""
    octets += encode(Described(ULong(0x72), Map(annotations))) if annotations is not None else b""
    octets += encode(Described(ULong(0x73), properties)) if properties is not None else b""
    return octets + encode(Described(ULong(0x75), body))


def user_pairs(annotations):
    """Return the users' pairs in their order."""
    return [(key, value) for key, value in annotations or [] if not key.startswith(ROUTER)]


messages = st.tuples(
    header,
    st.one_of(st.none(), text),
    st.one_of(st.none(), pairs),
    st.one_of(
        st.none(), st.tuples(st.none(), st.none(), st.one_of(st.none(), text), st.one_of(st.none(), text)).map(list)
    ),
    st.binary(max_size=100),
)


@given(messages)
def test_scan_finds_fields_of_leading_sections(parts):
    head, _, annotations, properties, _ = parts
    result, found = scan_dict(encoded_message(*parts))
    assert result == 0
    assert found["priority"] == (
        7 if head == [True, UByte(7)] else -1 if head is None or len(head) < 2 else found["priority"]
    )
    for index, name in ((2, "to"), (3, "subject")):
        expected = properties[index].encode() if properties is not None and properties[index] is not None else None
        assert found[name] == expected
    assert found["pairs"] == len(user_pairs(annotations))
    assert found["router"] == any(key.startswith(ROUTER) for key, _ in annotations or [])
    last = {str(key): value for key, value in annotations or []}
    assert found["phase"] == last.get("x-opt-qd.phase", 0)
    trace = last.get("x-opt-qd.trace")
    assert found["trace"] == (encode(trace) if trace is not None else None)


# inter-router.md 10.3.
@given(messages)
def test_rewriting_for_client_strips_router_annotations(parts):
    head, delivery, annotations, properties, body = parts
    users = user_pairs(annotations)
    assert rewrite_annotations(encoded_message(*parts)) == encoded_message(
        head, delivery, users or None, properties, body
    )


@given(messages, text, st.integers(0, 9))
def test_rewriting_for_router_adds_annotations(parts, to, phase):
    head, delivery, annotations, properties, body = parts
    rewritten = rewrite_annotations(encoded_message(*parts), router=True, honour=True, to=encode(to), phase=phase)
    assert rewritten is not None
    out = sections(rewritten)
    written = next(value for code, value in out if code == 0x72)
    items = list(written.pairs)
    users = user_pairs(annotations)
    assert [encode(part) for pair in items[: len(users)] for part in pair] == [
        encode(part) for pair in users for part in pair
    ]
    added = dict(items[len(users) :])
    last = {str(key): value for key, value in annotations or []}
    assert added["x-opt-qd.to"] == to
    assert added.get("x-opt-qd.phase", 0) == phase
    assert added["x-opt-qd.ingress"] == last.get("x-opt-qd.ingress", added["x-opt-qd.ingress"])
    assert list(added["x-opt-qd.trace"])[:-1] == last.get("x-opt-qd.trace", [])
    assert [(code, value) for code, value in out if code != 0x72] == sections(
        encoded_message(head, delivery, None, properties, body)
    )


@given(messages, st.data())
def test_truncated_message_is_never_scanned_as_whole(parts, data):
    octets = encoded_message(*parts)
    whole = scan_dict(octets)[1]
    end = data.draw(st.integers(0, len(octets)))
    result, found = scan_dict(octets[:end])
    if result == 0:
        assert found == whole


SERVED = "x-opt-sluice.served"


def test_served_edge_routers_annotation_is_hidden_from_clients():
    """See docs/internals/edge.md."""
    message = encoded_message(None, None, [(Symbol("a"), 1), (Symbol(SERVED), ["one"])], None, b"x")
    result, found = scan_dict(message)
    assert (result, found["served"], found["pairs"], found["rewrite"]) == (0, encode(["one"]), 1, True)
    assert scan_dict(message, honour=False)[1]["served"] is None
    assert annotations_of(rewrite_annotations(message, honour=True)) == {"a": 1}, "clients do not see it"
    passed_on = annotations_of(rewrite_annotations(message, router=True, honour=True))
    assert list(passed_on)[:2] == ["a", SERVED], "before those of routers, as 1.19 wants those of users"
    assert passed_on[SERVED] == ["one"]
    written = rewrite_annotations(message, router=True, served=encode(["two", "three"]))
    assert annotations_of(written)[SERVED] == ["two", "three"]
    assert SERVED not in annotations_of(rewrite_annotations(message, router=True))


def annotations_of(octets):
    (section,) = [value for code, value in sections(octets) if code == 0x72]
    return {str(key): value for key, value in section.pairs}

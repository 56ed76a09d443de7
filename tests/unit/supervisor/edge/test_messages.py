"""Messages between edge and interior routers, octet for octet (inter-router.md 16.11), and malformed ones."""

import pytest

from sluice.supervisor.edge import messages
from sluice.supervisor.edge.messages import (
    LookupAddress,
    LookupAnswer,
    LookupQuestion,
    ManagementAnswer,
    Precedence,
    PrecedenceAnswer,
    Tracking,
)
from sluice.supervisor.management.response import Response, encode

HEADER = "005370d0000000050000000142"
REPLY_TO = "amqp:/_topo/0/A/temp.hZYFmHxkkk7uCac"
CORRELATION = "client-000000006b00e7d44302b641"
PROPERTIES = (
    "005373d00000004f0000000640404040a124616d71703a2f5f746f706f2f302f412f74656d702e685a59466d48786b6b6b3775436163a11f63"
    "6c69656e742d30303030303030303662303065376434343330326236"
)


def octets(*parts: str) -> bytes:
    return bytes.fromhex("".join(parts))


TRACKING = octets(HEADER, "005377d00000000e00000002a1074d3062616c2e3341")
LOOKUP = octets(
    HEADER,
    PROPERTIES,
    "3431005374d10000001900000004a10776657273696f6e5201a1066f70636f64655201005377d00000000c00000002a10562616c2e3242",
)
ANSWER = octets(
    HEADER,
    "005373d00000004f000000064040a124616d71703a2f5f746f706f2f302f412f74656d702e685a59466d48786b6b6b37754361634040a11f63"
    "6c69656e742d303030303030303036623030653764343433303262363431",
    "005374d10000002300000006a10776657273696f6e5201a1066f70636f64655201a1067374617475735203",
    "005377d000000006000000024242",
)
CREATE = octets(
    HEADER,
    "005373d00000004f0000000640404040a124616d71703a2f5f746f706f2f302f412f74656d702e455143426c323473432b7862566256a11f63"
    "6c69656e742d303030303030303036623030653830303330613032306565",
    "005374d10000007000000006a1096f7065726174696f6ea106435245415445a10474797065a1346f72672e6170616368652e717069642e6469"
    "7370617463682e726f757465722e636f6e6e656374696f6e2e6c696e6b526f757465a1046e616d65a115452f70726f78794c696e6b526f7574"
    "652f43656c72",
    "005377d10000007c00000008a10474797065a1346f72672e6170616368652e717069642e64697370617463682e726f757465722e636f6e6e65"
    "6374696f6e2e6c696e6b526f757465a1077061747465726ea105656c722f23a109646972656374696f6ea102696ea1046e616d65a115452f70"
    "726f78794c696e6b526f7574652f43656c72",
)


def test_tracking_message_round_trips():
    assert messages.tracking_report("M0bal.3", True) == TRACKING
    assert messages.read_tracking(TRACKING) == Tracking("M0bal.3", True)
    assert messages.read_tracking(messages.tracking_report("MFx", False)) == Tracking("MFx", False)


PRECEDENCE = octets(HEADER, "005377d000000016000000035207d00000000a00000002a10141a1014242")
TAKEN = octets(HEADER, "005377d00000000700000002520741")


def test_precedence_of_several_uplinks_round_trips():
    precedence = Precedence(7, ("A", "B"), complete=False)
    assert messages.precedence(precedence) == PRECEDENCE
    assert messages.read_precedence(PRECEDENCE) == precedence
    assert messages.precedence_answer(7, True) == TAKEN
    assert messages.read_tracking(TAKEN) == PrecedenceAnswer(7, True), "one link has both"


ENCODED = b"\xa1\x1f" + CORRELATION.encode()
ASKED = (LookupAddress("bal.2", False),)
SEVERAL = (LookupAddress("bal.2", False), LookupAddress("lr.x", True), LookupAddress("lr.y", True))


def test_lookup_message_round_trips():
    assert messages.lookup(ASKED, False, REPLY_TO, CORRELATION) == LOOKUP
    assert messages.read_lookup(LOOKUP) == LookupQuestion(REPLY_TO, ENCODED, ASKED, False, None)


@pytest.mark.parametrize("status", [messages.FOUND, messages.NOT_FOUND])
def test_lookup_answer_round_trips(status):
    question = messages.read_lookup(LOOKUP)
    found = bytes((messages.NO_LINK_ROUTE if status else messages.UNSERVED,))
    answer = messages.lookup_answer(REPLY_TO, question, status, found)
    assert messages.read_answer(answer) == LookupAnswer(CORRELATION, status, found)
    if status == messages.NOT_FOUND:
        assert answer == ANSWER


def test_several_lookups_share_one_message():
    octets = messages.lookup(SEVERAL, True, REPLY_TO, CORRELATION)
    question = messages.read_lookup(octets)
    assert question == LookupQuestion(REPLY_TO, ENCODED, SEVERAL, True, None)
    found = bytes((messages.NO_LINK_ROUTE, messages.SERVED, messages.UNSERVED))
    answer = messages.lookup_answer(REPLY_TO, question, messages.FOUND, found)
    assert messages.read_answer(answer) == LookupAnswer(CORRELATION, messages.FOUND, found)


def test_lookups_in_message_are_bounded():
    many = [LookupAddress("a", True)] * messages.MOST_QUESTIONS
    assert messages.read_lookup(messages.lookup(many, True, REPLY_TO, CORRELATION)).fault is None
    many.append(LookupAddress("a", True))
    assert messages.read_lookup(messages.lookup(many, True, REPLY_TO, CORRELATION)).fault == messages.INVALID
    assert messages.read_lookup(messages.lookup([], True, REPLY_TO, CORRELATION)).fault == messages.INVALID
    assert messages.read_lookup(messages.lookup(SEVERAL, False, REPLY_TO, CORRELATION)).fault == messages.INVALID


def test_link_route_requests_are_encoded():
    made = messages.create_link_route(
        "E/proxyLinkRoute/Celr",
        "elr/#",
        "in",
        "amqp:/_topo/0/A/temp.EQCBl24sC+xbVbV",
        "client-000000006b00e80030a020ee",
    )
    assert made == CREATE
    removal = messages.delete_link_route("E/proxyLinkRoute/Celr", "37", REPLY_TO, CORRELATION)
    assert removal.endswith(octets("005377d10000000400000000"))


def test_management_answer_is_read():
    answer = encode(Response.of(201, {"identity": "37"}), REPLY_TO, b"\xa1\x01c")
    assert messages.read_answer(answer) == ManagementAnswer("c", 201, "37")


BAD = [
    b"",
    b"\x00",
    b"\x00\x53\x77",
    b"\xff" * 40,
    octets("00537740"),
    octets("005377d00000000400000000"),
    octets("005377d000000006000000024242"),
    octets("005377d00000ffff00000002a101"),
    octets("005377a10161"),
    octets("005374a10161", "00537740"),
    octets("005373a10161", "005374d10000000400000000", "00537740"),
]


@pytest.mark.parametrize("bad", BAD, ids=[each.hex() or "nothing" for each in BAD])
def test_malformed_messages_are_refused(bad):
    assert messages.read_tracking(bad) is None
    assert messages.read_precedence(bad) is None
    assert messages.read_answer(bad) is None
    assert messages.read_lookup(bad).reply_to is None
    assert messages.read_lookup(bad).fault is not None


@pytest.mark.parametrize("size", range(len(LOOKUP)))
def test_truncated_lookup_is_refused(size):
    assert messages.read_lookup(LOOKUP[:size]).fault is not None


def test_lookup_of_other_version_is_refused():
    other = LOOKUP.replace(b"version\x52\x01", b"version\x52\x02")
    assert messages.read_lookup(other).fault == messages.BAD_VERSION
    other = LOOKUP.replace(b"opcode\x52\x01", b"opcode\x52\x03")
    assert messages.read_lookup(other).fault == messages.BAD_OPCODE

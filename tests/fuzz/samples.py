"""Input for the parsers: well-formed octets, damaged."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.component.engine.deliveries.states import state
from tests.component.engine.host import configuration
from tests.peer.codec import encode
from tests.peer.damage import compound, spoil, value
from tests.peer.frames import source, target
from tests.peer.message import message as message_octets
from tests.peer.random_peer import ANNOTATIONS_CODE, LinkModel, RandomPeer
from tests.peer.types import Described, Map, Symbol, ULong

Case = dict[str, Any]
VHOST = """vhost {
    hostname: v
    aliases: a, b
    maxConnections: 3
    allowUnknownUser: yes
    groups: {
        g: {
            users: u, w
            remoteHosts: 10.0.0.1-10.0.0.3, ::1
            sources: a*, b-${user}
            targetPattern: ${user}.#, #.x
            maxSenders: 1
        },
        $default: {
            remoteHosts: *
        }
    }
}
"""
APPLICATION_PROPERTIES_CODE = 0x74
PERFORMATIVE_HEAD = 8 + 3  # octets of a frame's header and of a small descriptor


def case(octets: bytes) -> Case:
    return {"octets": octets.hex()}


def damaged(rng: Random, octets: bytes) -> Case:
    """Return the octets as a case: mostly damaged, sometimes truncated or unchanged."""
    choice = rng.random()
    if choice < 0.7:
        octets = spoil(rng, octets)
    elif choice < 0.85 and octets:
        octets = octets[: rng.randrange(len(octets))]
    return case(octets)


def delivery_state(rng: Random) -> Case:
    """Return a delivery state of a disposition, which a client decodes."""
    return damaged(rng, state(rng))


def any_value(rng: Random) -> Case:
    choice = rng.randrange(4)
    if choice == 0:
        return damaged(
            rng, encode((source if rng.random() < 0.5 else target)("a", dynamic=True, expiry_policy="never"))
        )
    return damaged(rng, compound(rng, 0) if choice == 1 else value(rng))


def performative(rng: Random) -> Case:
    client = RandomPeer(rng, 0, 0.3)
    client.begin(0)
    session = client.sessions[0]
    client.attach(0, session)
    made: Callable[[int, Any], bytes] = rng.choice((client.flow, client.transfer, client.disposition))
    return damaged(rng, made(0, session)[PERFORMATIVE_HEAD:])


def message(rng: Random) -> Case:
    return damaged(rng, RandomPeer(rng, 0, 0).message(LinkModel(0, False)))


def traced_message(rng: Random) -> Case:
    """Return a message with a trace context in its annotations, its application-properties or both."""
    flags = rng.choice(("00", "01", "01", "03", "ff", "0x"))
    version = rng.choice(("00", "00", "00", "00", "00", "01", "ff"))
    parent_id = 0 if rng.random() < 0.1 else rng.getrandbits(64)
    parent = f"{version}-{rng.getrandbits(128):032x}-{parent_id:016x}-{flags}"
    if rng.random() < 0.2:
        parent += rng.choice(("-more", "more"))
    fields: list[tuple[Any, Any]] = [("traceparent", parent), ("tracestate", "a=" + "b" * rng.choice((0, 9, 509, 600)))]
    pairs = [(f"k{number}", number) for number in range(rng.choice((0, 0, 0, 1, 5, 62, 63, 200)))]
    sections = []
    for code, name in ((ANNOTATIONS_CODE, Symbol), (APPLICATION_PROPERTIES_CODE, str)):
        if rng.random() < 0.7:
            chosen = pairs + rng.sample(fields, rng.choice((0, 1, 2, 2, 2)))
            rng.shuffle(chosen)
            sections.append(encode(Described(ULong(code), Map([(name(key), item) for key, item in chosen]))))
    return damaged(rng, b"".join(sections) + message_octets(b"body"))


def sasl(rng: Random) -> Case:
    init = b"\x00\x53\x41\xc0\x0f\x02\xa3\x09ANONYMOUS\xa0\x01x"
    response = b"\x00\x53\x43\xc0\x05\x01\xa0\x02xy"
    frames = [
        spoil(rng, rng.choice((init, response)))[:255] if rng.random() < 0.7 else init
        for _ in range(rng.randrange(1, 4))
    ]
    return case(b"".join(bytes((len(frame),)) + frame for frame in frames))


def config(rng: Random) -> Case:
    text = configuration()
    if rng.random() < 0.3:
        text = '[["router", {"mode": "standalone", "id": "X"}], ["listener", {"port": 0, "cost": "1"}]]'
    elif rng.random() < 0.3:
        text = VHOST
    lines = text.splitlines()
    for _ in range(rng.choice((0, 1, 3))):
        at = rng.randrange(len(lines) + 1)
        lines[at : at + rng.choice((0, 1, 2))] = [rng.choice(lines)] if lines and rng.random() < 0.5 else []
    return damaged(rng, "\n".join(lines).encode())


def json_document(rng: Random) -> Case:
    pieces = [
        "null",
        "-1.5e3",
        "18446744073709551616",
        '"a"',
        '"\\u00e9\\ud83d\\ude00"',
        '"\U0001f600"',
        "{}",
        "[1, 2]",
        '{"k": ""}',
    ]
    items = [rng.choice(pieces) for _ in range(rng.randrange(6))]
    text = rng.choice(("[{}]", '[[true], {{"a": [{}]}}]')).format(",\n".join(items))
    return damaged(rng, text.encode())


def policy(rng: Random) -> Case:
    """Return lines: a user, an address, then items of rules, which are list items or hosts."""
    pieces = ["a", "b", "ab", "*", "#", ".", "/", "${user}", "${", "}", "-", "10.0.0.1", "::", "ä", "\x00", ",", " "]
    lines = ["".join(rng.choice(pieces) for _ in range(rng.randrange(0, 9))) for _ in range(rng.randrange(2, 12))]
    lines[0] = lines[0] if rng.random() < 0.5 else rng.choice(("", "a", "a.b", "*"))
    if len(lines) > 2 and rng.random() < 0.5:
        lines[1] = lines[2].replace("${user}", lines[0])
    return damaged(rng, "\n".join(lines).encode()) if rng.random() < 0.2 else case("\n".join(lines).encode())


def address(rng: Random) -> Case:
    pieces = [
        "a",
        "b",
        "#",
        "*",
        ".",
        "/",
        "//",
        ":/",
        "_local",
        "_topo",
        "0",
        "all",
        "QDR",
        "amqp:",
        "\n",
        "ä",
        "_edge",
        "\x00",
    ]
    return case("".join(rng.choice(pieces) for _ in range(rng.randrange(1, 30))).encode())

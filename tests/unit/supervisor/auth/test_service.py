"""Client of an authentication service, against a scripted service."""

import asyncio
import ssl

import pytest

from sluice.router.amqp import codec, sasl
from sluice.router.amqp.codec import encode_described, encode_map, encode_string, encode_symbol, encode_value
from sluice.router.sasl.mechanism import Challenge, Failure, Success
from sluice.supervisor.auth.messages import Facts, Service, ServiceTls
from sluice.supervisor.auth.service import (
    AMQP_HEADER,
    SASL_HEADER,
    ServiceError,
    ServiceExchange,
    read_open,
    tls_context,
)
from tests.peer.pki import pki


def mechanisms(*names):
    return sasl.frame(encode_described(sasl.MECHANISMS, [codec.encode_symbols(list(names))]))


def outcome(code, additional=None):
    items = [codec.encode_ubyte(code)] + ([codec.encode_binary(additional)] if additional else [])
    return sasl.frame(encode_described(sasl.OUTCOME, items))


def challenge(octets):
    return sasl.frame(encode_described(sasl.CHALLENGE, [codec.encode_binary(octets)]))


def amqp(code, items):
    body = encode_described(code, items)
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\0\0\0" + body


def properties(**entries):
    pairs = []
    for name, value in entries.items():
        pairs += [encode_symbol(name.replace("_", "-")), value]
    return encode_map(pairs)


def service_open(**entries):
    return amqp(0x10, [encode_string("service")] + [encode_value(None)] * 8 + [properties(**entries)])


def identity(sub="alice"):
    return encode_map([encode_string("sub"), encode_string(sub)])


def strings(*each):
    """Return an AMQP array of strings."""
    items = b"".join(bytes([len(text)]) + text.encode() for text in each)
    body = bytes([len(each)]) + b"\xa1" + items
    return b"\xe0" + bytes([len(body)]) + body


class ScriptedAuthenticationService:
    """Authentication service that sends the answers of a script and keeps the frames that it receives."""

    def __init__(self, *script):
        """Create the service.

        script: octets to send after each received frame or header; None closes the connection.
        """
        self.script = list(script)
        self.frames = []
        self.done = asyncio.Event()

    async def serve(self, reader, writer):
        try:
            for answer in self.script:
                header = await reader.readexactly(8)
                if header[:4] == b"AMQP":
                    self.frames.append(header)
                else:
                    body = await reader.readexactly(int.from_bytes(header[:4], "big") - 8)
                    self.frames.append(codec.described_list(body))
                if answer is None:
                    break
                writer.write(answer)
            else:
                while await reader.read(4096):
                    pass
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()
            self.done.set()


async def run(script, talk, **options):
    service = ScriptedAuthenticationService(*script)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    exchange = ServiceExchange(Service(name="s", host="127.0.0.1", port=port, **options))
    try:
        return service, await talk(exchange)
    finally:
        exchange.close()
        await service.done.wait()
        server.close()


def successful_script(*, additional=None, **entries):
    return (
        SASL_HEADER + mechanisms("PLAIN", "ANONYMOUS"),
        outcome(0, additional),
        b"",
        AMQP_HEADER + service_open(**entries),
    )


async def plain(exchange):
    offered = await exchange.begin()
    return offered, await exchange.step("PLAIN", b"\0alice\0secret", "client's.host")


def test_plain_exchange_is_relayed():
    service, (offered, answer) = asyncio.run(
        run(successful_script(authenticated_identity=identity()), plain, realm="the.realm")
    )
    assert offered == ["PLAIN", "ANONYMOUS"]
    assert answer == Success("alice", None, {"facts": Facts()})
    header, init, amqp_header, opened = service.frames
    assert (header, amqp_header) == (SASL_HEADER, AMQP_HEADER)
    assert init[0] == sasl.INIT
    assert [codec.decode_one(item) for item in init[1]] == ["PLAIN", b"\0alice\0secret", "the.realm"]
    fields = [codec.decode_one(item) for item in opened[1]]
    assert opened[0] == 0x10
    assert fields[:4] == ["", "127.0.0.1", None, 32767]  # as security.md A-4
    assert fields[8:] == [["ADDRESS-AUTHZ"], {"product": "qpid-dispatch-router", "version": "1.19.0"}]


def test_service_without_realm_gets_host_of_client():
    service, _ = asyncio.run(run(successful_script(authenticated_identity=identity()), plain))
    assert codec.decode_one(service.frames[1][1][2]) == "client's.host"


def test_challenges_are_relayed_and_last_joins_outcome():
    script = (SASL_HEADER + mechanisms("X"), challenge(b"one"), challenge(b"two"), outcome(0), b"",
              AMQP_HEADER + service_open(authenticated_identity=identity()))  # fmt: skip

    async def talk(exchange):
        await exchange.begin()
        return [await exchange.step("X", response, None) for response in (b"first", b"second", b"third")]

    service, answers = asyncio.run(run(script, talk))
    assert answers == [Challenge(b"one"), Challenge(b"two"), Success("alice", b"two", {"facts": Facts()})]
    assert [codec.decode_one(frame[1][0]) for frame in service.frames[2:4]] == [b"second", b"third"]


def test_outcome_other_than_ok_is_failure():
    for code in (1, 2, 3, 4):
        _, (_, answer) = asyncio.run(run((SASL_HEADER + mechanisms("PLAIN"), outcome(code)), plain))
        assert isinstance(answer, Failure)
        assert answer.text == "amqp:unauthorized-access Authentication failed [mech=PLAIN]"


@pytest.mark.parametrize("value", [False, 0, "0", None])
def test_outcome_of_wrong_type_is_failure(value):
    octets = sasl.frame(encode_described(sasl.OUTCOME, [codec.encode_value(value)]))
    _, (_, answer) = asyncio.run(run((SASL_HEADER + mechanisms("PLAIN"), octets), plain))
    assert isinstance(answer, Failure)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ((None,), "connection aborted"),
        ((AMQP_HEADER,), "Expected SASL protocol header"),
        ((SASL_HEADER + b"\0\0\0\x04\x02\x01\0\0",), "malformed frame"),
        ((SASL_HEADER + b"\xff\0\0\x08\x02\x01\0\0",), "malformed frame"),
        ((SASL_HEADER + outcome(0),), "sasl-mechanisms expected"),
        ((SASL_HEADER + mechanisms("PLAIN"), None), "connection aborted"),
        ((SASL_HEADER + mechanisms("PLAIN"), mechanisms("PLAIN")), "is not expected"),
        ((SASL_HEADER + mechanisms("PLAIN"), outcome(0), b"", None), "connection aborted"),
        ((SASL_HEADER + mechanisms("PLAIN"), outcome(0), b"", SASL_HEADER), "Expected AMQP protocol header"),
        (
            (SASL_HEADER + mechanisms("PLAIN"), outcome(0), b"",
             AMQP_HEADER + amqp(0x18, [codec.encode_error("amqp:not-allowed", "no")])),
            "amqp:not-allowed no",
        ),
        ((SASL_HEADER + mechanisms("PLAIN"), outcome(0), b"", AMQP_HEADER + amqp(0x18, [])), "open expected"),
    ],
)  # fmt: skip
def test_misbehaving_service_is_an_error(script, text):
    with pytest.raises(ServiceError, match=text):
        asyncio.run(run(script, plain))


def test_missing_service_is_an_error():
    async def connect():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        await ServiceExchange(Service(name="s", host="127.0.0.1", port=port)).begin()

    with pytest.raises(ServiceError, match="proton:io Connection refused - disconnected 127.0.0.1:"):
        asyncio.run(connect())


def open_with(**entries):
    return read_open([encode_string("s")] + [encode_value(None)] * 8 + [properties(**entries)])


@pytest.mark.parametrize(
    ("value", "user"),
    [
        (identity(), "alice"),
        (encode_map([encode_symbol("sub"), encode_string("bob")]), "bob"),
        (encode_map([encode_string("sub"), encode_symbol("bob")]), ""),
        (encode_map([encode_string("sub"), codec.encode_uint(7)]), ""),
        (encode_map([encode_string("other"), encode_string("bob")]), ""),
        (encode_string("bob"), ""),
        (encode_map([]), ""),
    ],
)
def test_authenticated_identity_is_read(value, user):
    """Identities follow security.md A-6."""
    assert open_with(authenticated_identity=value).user == user


def test_open_without_properties_has_no_user():
    assert read_open([encode_string("s")]).user == ""
    assert open_with().facts == Facts()


def test_address_permissions_are_read():
    """Permissions follow security.md A-7: a value of another type is ignored."""
    authz = encode_map([
        encode_string("both"), strings("send", "recv"),
        encode_string("in"), strings("send", "other"),
        encode_string("out*"), strings("recv"),
        encode_symbol("symbol"), strings("send"),
        encode_string("single"), encode_string("send"),
        encode_string("list"), codec.encode_list([encode_string("send")]),
        encode_string("symbols"), codec.encode_symbols(["send"]),
        encode_string("none"), strings(),
    ])  # fmt: skip
    facts = open_with(authenticated_identity=identity(), address_authz=authz).facts
    assert (facts.sources, facts.targets) == (["both", "out*"], ["both", "in"])
    empty = open_with(address_authz=encode_map([])).facts
    assert (empty.sources, empty.targets) == ([], [])


@pytest.mark.starts  # openssl makes the certificates
@pytest.mark.filterwarnings("ignore:ssl:DeprecationWarning")
@pytest.mark.parametrize(("protocols", "used"), [("TLSv1.1", "TLSv1.1"), ("TLSv1.1 TLSv1.2", "TLSv1.2")])
def test_service_with_old_protocol_is_reached(tmp_path_factory, protocols, used):
    certificates = pki(tmp_path_factory.getbasetemp())
    accepting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    accepting.set_ciphers("DEFAULT:@SECLEVEL=0")
    accepting.minimum_version = ssl.TLSVersion.TLSv1
    accepting.load_cert_chain(certificates.server.certificate, certificates.server.key)
    context = tls_context(ServiceTls(ca_file=str(certificates.trusted), protocols=protocols))
    to_service, to_router = ssl.MemoryBIO(), ssl.MemoryBIO()
    router = context.wrap_bio(to_router, to_service, server_hostname="localhost")
    service = accepting.wrap_bio(to_service, to_router, server_side=True)
    waiting = [router.do_handshake, service.do_handshake]
    for _ in range(10):
        for each in list(waiting):
            try:
                each()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                pass
    assert (waiting, router.version()) == ([], used)

"""Input from clients, token issuers and authentication services: each gets an answer, without a fault or false
success.

Cases are damaged forms of successful conversations. A damaged one that still succeeds must give the same result.
"""

import base64
import json
from random import Random
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from sluice.router.amqp.codec import (
    described_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_value,
)
from sluice.router.amqp.errors import AmqpError
from sluice.router.sasl.bearer import OAuthBearerServer, XOAuth2Server
from sluice.router.sasl.mechanism import Challenge, Failure, ServerExchange, Success, wrong_credentials
from sluice.router.sasl.scram import ScramClient, ScramServer
from sluice.router.sasl.simple import AnonymousServer, ExternalServer, PlainServer
from sluice.router.sasl.users import Users, UsersError
from sluice.router.sasl.users import parse as parse_users
from sluice.router.sasl.verifiers import make
from sluice.supervisor.auth.messages import TokenIssuer
from sluice.supervisor.auth.service import FRAME_HEADER, open_frame, read_open
from sluice.supervisor.auth.tokens import ALL_ALGORITHMS, FileKeys, Issuer, KeysError, check_token, parse_keys
from tests.peer.damage import spoil

Case = dict[str, Any]
NONCE: Final = "nonce-of-the-server"
USERS: Final = Users({"guest": {"SCRAM-SHA-1": make("SCRAM-SHA-1", "secret", 4096, b"0123456789abcdef")}}, b"k" * 32)
KEY: Final = ec.derive_private_key(0x1234567890ABCDEF, ec.SECP256R1())
JWKS: Final = json.dumps({"keys": [{**json.loads(ECAlgorithm.to_jwk(KEY.public_key())), "kid": "k"}]})
CONFIG: Final = TokenIssuer(name="id", issuer="https://id", audiences=("sluice",), algorithms=ALL_ALGORITHMS)
FAR: Final = 4102444800  # seconds since the epoch, in the year 2100
CLAIMS: Final = {"iss": "https://id", "aud": "sluice", "sub": "alice", "exp": FAR}
HEADERS: Final = [
    {"alg": "none"}, {"alg": "HS256", "kid": "k"}, {"alg": "ES256", "kid": "other"}, {"alg": "ES384", "kid": "k"},
    {"alg": "ES256", "kid": "k", "crit": ["x"]}, {"kid": "k"}, {"alg": None},
]  # fmt: skip


def _check(user: str, token: str) -> Success | Failure:
    return Success("bearer") if token == "good" else wrong_credentials("no")


def server(name: str) -> ServerExchange:
    made: dict[str, Any] = {
        "PLAIN": lambda: PlainServer(USERS),
        "ANONYMOUS": AnonymousServer,
        "EXTERNAL": lambda: ExternalServer("CN=a"),
        "SCRAM-SHA-1": lambda: ScramServer("SCRAM-SHA-1", USERS, lambda: NONCE),
        "OAUTHBEARER": lambda: OAuthBearerServer(_check),
        "XOAUTH2": lambda: XOAuth2Server(_check),
    }
    found: ServerExchange = made[name]()
    return found


def _accepted_messages(name: str, rng: Random) -> list[bytes]:
    """Return a client's messages that are accepted."""
    match name:
        case "PLAIN":
            return [b"\0guest\0secret"]
        case "OAUTHBEARER":
            return [b"n,a=u,\x01host=h\x01auth=Bearer good\x01\x01"]
        case "XOAUTH2":
            return [b"user=u\x01auth=Bearer good\x01\x01"]
        case "SCRAM-SHA-1":
            client = ScramClient(name, "guest", "secret", lambda: f"client{rng.randrange(1000)}")
            challenge = server(name).step(client.response)
            assert isinstance(challenge, Challenge)
            return [client.response, client.step(challenge.octets)]
    return [b"trace"]


def login(rng: Random) -> Case:
    name = rng.choice(("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-1", "OAUTHBEARER", "XOAUTH2", "ANONYMOUS", "EXTERNAL"))
    responses = _accepted_messages(name, rng)
    damaged = [spoil(rng, each) if rng.random() < 0.6 else each for each in responses]
    return {
        "mechanism": name,
        "responses": [each.hex() for each in damaged],
        "good": [each.hex() for each in responses],
    }


def run_login(case: Case) -> None:
    exchange = server(case["mechanism"])
    for response in case["responses"]:
        answer = exchange.step(bytes.fromhex(response))
        if isinstance(answer, Success):
            assert answer.user in ("guest", "bearer", "anonymous", "CN=a")
            if case["mechanism"].startswith("SCRAM"):
                # The proof covers every octet of the first message after its header, and of the last message.
                assert case["responses"][-1] == case["good"][-1]
        if not isinstance(answer, Challenge):
            break


def _part(value: object) -> str:
    octets = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def token(rng: Random) -> Case:
    choice = rng.random()
    claims = {**CLAIMS}
    if rng.random() < 0.5:
        name = rng.choice([*CLAIMS, "nbf", "iat"])
        claims[name] = rng.choice([None, "", 0, -1, FAR, 1e400, "x", [], ["sluice"], {}, True, 2**70])
    text = jwt.PyJWS().encode(json.dumps(claims).encode(), KEY, "ES256", headers={"kid": "k"})
    if choice < 0.5:
        text = spoil(rng, text.encode()).decode("latin-1")
    elif choice < 0.7:
        _, payload, signature = text.split(".")
        text = f"{_part(rng.choice(HEADERS))}.{payload}.{rng.choice([signature, ''])}"
    return {"token": text, "keys": JWKS if rng.random() < 0.9 else spoil(rng, JWKS.encode()).decode("latin-1")}


def run_token(case: Case) -> None:
    try:
        keys = parse_keys(case["keys"])
    except KeysError:
        keys = parse_keys(JWKS)
    answer = check_token([Issuer(CONFIG, FileKeys(lambda: keys, lambda: None))], case["token"])
    if isinstance(answer, Success):
        payload = jwt.decode(case["token"], options={"verify_signature": False})
        header = jwt.get_unverified_header(case["token"])
        assert (header["alg"], payload["iss"], answer.user) == ("ES256", "https://id", payload["sub"])
        assert payload["exp"] > 0
    else:
        assert case["token"] == "" or case["token"] not in answer.text


def service_open(rng: Random) -> Case:
    array = b"\xe0\x0b\x02\xa1\x04send\x04recv"
    entries: list[bytes] = []
    for _ in range(rng.randrange(4)):
        value = rng.choice((array, encode_symbols(["send"]), encode_string("send"), encode_value([1]), encode_map([])))
        entries += [rng.choice((encode_string, encode_symbol))(rng.choice(("a", "b*", ""))), value]
    properties = [
        encode_symbol("authenticated-identity"),
        encode_map([encode_string("sub"), rng.choice((encode_string("alice"), encode_symbol("s"), encode_value(7)))]),
        encode_symbol("address-authz"),
        encode_map(entries),
    ]
    fields = [encode_string("service"), *[encode_value(None)] * 8, encode_map(properties)]
    body = b"\x00\x53\x10" + _list(fields)
    return {"octets": (spoil(rng, body) if rng.random() < 0.7 else body).hex()}


def _list(items: list[bytes]) -> bytes:
    octets = b"".join(items)
    return b"\xd0" + (len(octets) + 4).to_bytes(4, "big") + len(items).to_bytes(4, "big") + octets


def run_service_open(case: Case) -> None:
    assert open_frame("h")[:FRAME_HEADER]
    try:
        found = read_open(described_list(bytes.fromhex(case["octets"]))[1])
    except AmqpError:
        return
    assert isinstance(found.user, str)


def users_file(rng: Random) -> Case:
    octets = USERS.with_user("a b", [make("SCRAM-SHA-256", "p", 4096, b"s" * 16)]).text().encode()
    return {"text": spoil(rng, octets).decode("latin-1")}


def run_users_file(case: Case) -> None:
    try:
        found = parse_users(case["text"])
    except UsersError:
        return
    assert parse_users(found.text()).users == found.users

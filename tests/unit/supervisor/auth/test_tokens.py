"""Tokens: signatures, keys and claims, with every kind of token that must be refused."""

import base64
import codecs
import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from sluice.router.sasl.mechanism import Failure, Success
from sluice.supervisor.auth.messages import TokenIssuer
from sluice.supervisor.auth.tokens import (
    ALL_ALGORITHMS,
    FileKeys,
    Issuer,
    KeysError,
    UrlKeys,
    check_token,
    fetch_https,
    parse_keys,
)
from tests.peer.pki import Pki, pki
from tests.unit.supervisor.auth.waiting import until

ISSUER, AUDIENCE = "https://id.example", "sluice"
RSA = rsa.generate_private_key(65537, 2048)
SMALL = rsa.generate_private_key(65537, 1024)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


def jwk(private, kid, **extra):
    algorithms: dict[str, Any] = {"rsa": RSAAlgorithm, "ec": ECAlgorithm, "ed": OKPAlgorithm}
    algorithm = algorithms.get(kid, RSAAlgorithm)
    return {**json.loads(algorithm.to_jwk(private.public_key())), "kid": kid, **extra}


KEYS = [jwk(RSA, "rsa"), jwk(EC, "ec"), jwk(ED, "ed")]


def jwks(*keys):
    return json.dumps({"keys": list(keys or KEYS)})


def issuer(keys=None, **options):
    config = TokenIssuer(
        **{"name": "id", "issuer": ISSUER, "audiences": (AUDIENCE,), "algorithms": ALL_ALGORITHMS, **options}
    )
    found = parse_keys(keys or jwks())
    return Issuer(config, FileKeys(lambda: found, lambda: None))


def claims(**changes):
    now = int(time.time())
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": now + 600, "iat": now, **changes}
    return {name: value for name, value in made.items() if value is not None}


def token(key=RSA, algorithm="RS256", kid="rsa", headers=None, **changes):
    payload = json.dumps(claims(**changes)).encode()
    return jwt.PyJWS().encode(payload, key, algorithm, headers={"kid": kid, **(headers or {})})


def raw(header, payload, signature=b""):
    parts = [json.dumps(each).encode() if isinstance(each, dict) else each for each in (header, payload)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in (*parts, signature))


def check(text, made=None):
    return check_token([made or issuer()], text)


def refused(text, made=None):
    answer = check(text, made)
    assert isinstance(answer, Failure), answer
    return answer.text


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA, "RS256", "rsa"), (RSA, "PS512", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed"), (RSA, "RS256", None)],
)
def test_valid_token_is_accepted(key, algorithm, kid):
    text = jwt.encode(claims(), key, algorithm, headers={"kid": kid} if kid else None)
    answer = check(text)
    assert isinstance(answer, Success)
    assert answer.user == "alice"
    assert answer.facts["facts"].expires > time.time()


def test_users_of_issuers_have_prefix():
    answer = check(token(), issuer(user_prefix="idp:"))
    assert isinstance(answer, Success)
    assert answer.user == "idp:alice"
    assert answer.facts["facts"].token == (issuer().config.issuer, "alice")


def test_claims_are_mapped_to_user_and_groups():
    made = issuer(user_claim="email", group_claim="realm.roles")
    answer = check(token(email="a@b", realm={"roles": ["admins", 7, "users", ""]}), made)
    assert isinstance(answer, Success)
    assert (answer.user, answer.facts["facts"].groups) == ("a@b", ["admins", "users"])
    one = check(token(email="a@b", realm={"roles": "admins"}), made)
    assert isinstance(one, Success)
    assert one.facts["facts"].groups == ["admins"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"exp": 1}, "expired"),
        ({"exp": None}, 'missing the "exp" claim'),
        ({"exp": "soon"}, "refused"),
        ({"nbf": 99999999999}, "not yet valid"),
        ({"exp": 10**400}, "malformed"),
        ({"exp": 1e400}, ""),
        ({"iat": 99999999999}, "not yet valid"),
        ({"aud": "other"}, "Audience"),
        ({"aud": None}, 'missing the "aud" claim'),
        ({"iss": "https://evil.example"}, "issuer of the token is not known"),
        ({"iss": None}, "issuer of the token is not known"),
        ({"iss": ["https://id.example"]}, "issuer of the token is not known"),
        ({"sub": None}, "claim 'sub' of the token is missing"),
        ({"sub": ""}, "claim 'sub' of the token is missing"),
        ({"sub": "a\nb"}, "not a valid user name"),
        ({"sub": "u" * 2000}, "not a valid user name"),
    ],
)
def test_invalid_claims_are_refused(changes, text):
    assert text in refused(token(**changes))


def test_leeway_extends_expiry():
    late = token(exp=int(time.time()) - 20)
    assert isinstance(check(late), Success)
    assert "expired" in refused(late, issuer(leeway_seconds=5))


def test_unsigned_token_is_refused():
    for name in ("none", "None", "NONE", "nOnE", ""):
        assert "algorithm" in refused(raw({"alg": name, "kid": "rsa"}, claims()))
        assert "algorithm" in refused(raw({"alg": name}, claims()))
    assert "algorithm" in refused(raw({"typ": "JWT"}, claims())) or "malformed" in refused(
        raw({"typ": "JWT"}, claims())
    )


def test_public_key_as_hmac_secret_is_refused():
    """Key confusion: a token is signed by HS256 with the public key, which everybody knows, as its secret."""
    import hashlib
    import hmac

    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    unsigned = raw({"alg": "HS256", "kid": "rsa"}, claims()).rpartition(".")[0]
    text = f"{unsigned}." + base64.urlsafe_b64encode(
        hmac.digest(pem, unsigned.encode(), hashlib.sha256)
    ).decode().rstrip("=")
    assert "algorithm" in refused(text)
    assert "algorithm" in refused(text, issuer(algorithms=("RS256", "HS256")))


def test_symmetric_key_of_issuer_is_refused():
    with pytest.raises(KeysError, match="no usable signature key"):
        parse_keys(jwks({"kty": "oct", "k": "c2VjcmV0", "kid": "oct"}))


def test_disallowed_algorithm_is_refused():
    assert "algorithm" in refused(token(), issuer(algorithms=("ES256",)))


def test_key_is_used_only_with_its_algorithms():
    assert "no key" in refused(token(kid="ec"))  # RS256 with the name of the EC key
    assert "no key" in refused(token(algorithm="RS512"), issuer(jwks(jwk(RSA, "rsa", alg="RS256"))))


def test_keys_unfit_for_signatures_are_ignored():
    assert len(parse_keys(jwks(*KEYS, jwk(RSA, "x", use="enc"), jwk(RSA, "y", key_ops=["encrypt"]), 7, {}))) == 3
    with pytest.raises(KeysError, match="no usable signature key"):
        parse_keys(jwks(jwk(SMALL, "small")))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"keys": 7}', "\xff", '{"keys": []}', "[" * 100_000])
def test_malformed_key_documents_are_refused(text):
    with pytest.raises(KeysError):
        parse_keys(text)


def test_byte_order_mark_before_keys_is_ignored():
    assert len(parse_keys(codecs.BOM_UTF8 + jwks().encode())) == len(parse_keys(jwks()))


def test_signature_by_other_key_is_refused():
    other = rsa.generate_private_key(65537, 2048)
    assert "signature" in refused(token(other))
    assert "no key" in refused(token(kid="unknown"))


def test_key_references_in_header_are_ignored():
    other = rsa.generate_private_key(65537, 2048)
    forged = token(other, headers={"jwk": jwk(other, "rsa"), "jku": "https://evil.example/keys"})
    assert "signature" in refused(forged)


@pytest.mark.parametrize("headers", [{"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}])
def test_critical_headers_are_refused(headers):
    assert refused(token(headers=headers))


def test_malformed_tokens_are_refused():
    good = token()
    headers = [{"alg": 7}, {"alg": ["RS256"]}, {"alg": "RS256", "kid": 7}, {"alg": "RS256", "kid": ["rsa"]}]
    texts = ["", ".", "..", "a.b.c", good[:-40], good + "x", good.replace(".", ""), "x" * 40_000]
    texts += [raw(b"\xff", b"{}"), raw({"alg": "RS256"}, b"[]"), raw(b"[" * 5000, b"{}")]
    for text in texts + [raw(header, claims()) for header in headers]:
        assert refused(text)
        assert good not in refused(text)


def test_token_is_matched_among_several_issuers():
    other = issuer(issuer="https://other.example")
    assert isinstance(check_token([other, issuer()], token()), Success)
    assert isinstance(check_token([other], token()), Failure)
    same = issuer(audiences=("other",))
    assert isinstance(check_token([same, issuer()], token()), Success)


# -- Keys from a URL


class FakeKeyServer:
    """Fake server that gives these answers in turn, and repeats the last one."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = 0

    def __call__(self, url, ca_file):
        self.calls += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def url_keys():
    made = []

    def make(*answers, every=600.0):
        lines: list[str] = []
        fetch = FakeKeyServer(*answers)
        keys = UrlKeys("https://id.example/keys", None, every, lambda level, text: lines.append(text), fetch)
        made.append(keys)
        keys.start()
        return keys, fetch, lines

    yield make
    for keys in made:
        keys.stop()


def test_keys_from_url_are_cached(url_keys):
    keys, fetch, lines = url_keys(jwks().encode())
    for _ in range(5):
        assert len(keys.keys()) == 3
    assert (fetch.calls, lines) == (1, [])


def test_keys_from_url_are_refreshed(url_keys):
    keys, fetch, _ = url_keys(jwks().encode(), jwks(KEYS[0]).encode(), every=0.01)
    until(lambda: len(keys.keys()) == 1)
    assert fetch.calls >= 2


def test_old_keys_stay_while_server_is_unreachable(url_keys):
    keys, _, lines = url_keys(jwks().encode(), OSError("gone"), every=0.01)
    until(lambda: keys.problem == "gone")
    assert len(keys.keys()) == 3
    assert ["keys read before stay" in line for line in lines] == [True]


def test_missing_keys_refuse_tokens(url_keys):
    keys, _, lines = url_keys(OSError("gone"))
    with pytest.raises(KeysError, match="gone"):
        keys.keys()
    made = Issuer(issuer().config, keys)
    assert "the keys of tokenIssuer id are not available: gone" in refused(token(), made)
    assert len(lines) == 1


def test_unknown_key_refreshes_at_limited_rate(url_keys, monkeypatch):
    monkeypatch.setattr("sluice.supervisor.auth.tokens.MIN_REFRESH_SECONDS", 0.0)
    keys, fetch, _ = url_keys(jwks(KEYS[1]).encode(), jwks().encode())
    made = Issuer(issuer().config, keys)
    assert isinstance(check(token(), made), Success)
    assert fetch.calls == 2
    monkeypatch.setattr("sluice.supervisor.auth.tokens.MIN_REFRESH_SECONDS", 600.0)
    assert "no key" in refused(token(kid="unknown"), made)
    assert fetch.calls == 2


def test_hanging_key_server_times_out(monkeypatch):
    monkeypatch.setattr("sluice.supervisor.auth.tokens.FETCH_SECONDS", 0.05)
    hanging = threading.Event()

    def fetch(url, ca_file):
        hanging.wait()
        return b""

    keys = UrlKeys("https://x/", None, 600, lambda level, text: None, fetch)
    keys.start()
    with pytest.raises(KeysError, match="not been read yet"):
        keys.keys()
    keys.stop()
    hanging.set()


@pytest.mark.parametrize("url", ["http://id.example/keys", "file:///etc/passwd", "https:///keys", "ftp://x"])
def test_key_url_must_be_https(url):
    with pytest.raises(KeysError, match="https"):
        fetch_https(url, None)


class TricklingServer:
    """TLS server that answers its one request by an octet at a time, without end."""

    def __init__(self, authority: Pki, first: bytes) -> None:
        self._listening = authority.server_context(authority.server).wrap_socket(
            socket.create_server(("127.0.0.1", 0)), server_side=True
        )
        self.port = self._listening.getsockname()[1]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(first,))
        self._thread.start()

    def _serve(self, first: bytes) -> None:
        with suppress(OSError):  # the client has given up
            peer, _ = self._listening.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(first)
                while not self._stopped.wait(0.02):
                    peer.sendall(b" ")

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._listening.close()


@pytest.mark.starts  # openssl, for certificates
@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Never-Ending:"])
def test_key_server_that_trickles_is_left_at_the_deadline(monkeypatch, tmp_path_factory, first):
    authority = pki(tmp_path_factory.getbasetemp())
    monkeypatch.setattr("sluice.supervisor.auth.tokens.FETCH_SECONDS", 1.0)
    server = TricklingServer(authority, first)
    try:
        with pytest.raises(TimeoutError, match="timed out|the deadline of the answer has passed"):
            fetch_https(f"https://localhost:{server.port}/keys", str(authority.trusted))
    finally:
        server.stop()

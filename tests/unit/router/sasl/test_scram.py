"""SCRAM: the examples of RFC 5802 and RFC 7677, and all messages that must be refused."""

import base64
import hashlib
import hmac

import pytest

from sluice.router.amqp.sasl import ExchangeError
from sluice.router.sasl.mechanism import Challenge, Failure, Success
from sluice.router.sasl.scram import ScramClient, ScramServer, attributes, quoted, saslname
from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import BOUND_MECHANISMS, HASHES, PLUS, make

# Mechanism, client's nonce, server's nonce part, salt, proof and server's signature for user `user`, password
# `pencil`.
RFC = {
    "SCRAM-SHA-1": (
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "SCRAM-SHA-256": (
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}


def store(mechanism="SCRAM-SHA-256", user="user", password="pencil", salt=b"0123456789abcdef"):
    return Users({user: {mechanism: make(mechanism, password, 4096, salt)}}, b"k" * 32)


def server(mechanism="SCRAM-SHA-256", **options):
    return ScramServer(mechanism, store(mechanism, **options))


def challenge(answer):
    assert isinstance(answer, Challenge)
    return answer.octets


def begin(scram, first=b"n,,n=user,r=abc"):
    """Send the first message. Return the server's nonce."""
    return dict(attributes(challenge(scram.step(first)).decode()))["r"]


def final(nonce, binding=b"n,,", proof=b"\0" * 32, extra=""):
    return f"c={base64.b64encode(binding).decode()},r={nonce}{extra},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("mechanism", RFC)
def test_examples_of_rfc_are_reproduced(mechanism):
    ours, theirs, salt, proof, signature = RFC[mechanism]
    client = ScramClient(mechanism, "user", "pencil", lambda: ours)
    scram = ScramServer(mechanism, store(mechanism, salt=base64.b64decode(salt)), lambda: theirs)
    assert client.response == f"n,,n=user,r={ours}".encode()
    first = challenge(scram.step(client.response))
    assert first == f"r={ours}{theirs},s={salt},i=4096".encode()
    last = client.step(first)
    assert last == f"c=biws,r={ours}{theirs},p={proof}".encode()
    assert scram.step(last) == Success("user", f"v={signature}".encode())
    client.finish(f"v={signature}".encode())


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("user", ["user", "a,b=c", "Jürgen", "\N{ROMAN NUMERAL NINE}"])
def test_client_and_server_agree(mechanism, user):
    """The user is named as in the file, however the client writes the name, since policy knows only that name."""
    prepared = {"\N{ROMAN NUMERAL NINE}": "IX"}.get(user, user)
    scram = ScramServer(mechanism, store(mechanism, prepared, "p\N{NO-BREAK SPACE}w".replace("\xa0", " ")))
    client = ScramClient(mechanism, user, "p\N{NO-BREAK SPACE}w")
    answer = scram.step(client.step(challenge(scram.step(client.response))))
    assert isinstance(answer, Success)
    assert answer.user == prepared
    client.finish(answer.additional)


def test_empty_initial_response_gets_empty_challenge():
    scram = server()
    assert scram.step(b"") == Challenge(b"")
    assert begin(scram)


def test_binding_flag_of_capable_client_is_accepted():
    """`y`: the client could bind, but the server offers no -PLUS mechanism (RFC 5802, 6)."""
    scram = server()
    nonce = begin(scram, b"y,,n=user,r=abc")
    assert isinstance(scram.step(final(nonce, b"y,,")), Failure)  # a wrong proof, not a wrong binding
    client_first = b"y,,n=user,r=abc"
    scram = server()
    first = challenge(scram.step(client_first)).decode()
    assert isinstance(scram.step(proved(client_first, first, b"y,,")), Success)


def proved(client_first, server_first, binding, password="pencil", name="sha256"):
    """Return the correct last message for any binding flag."""
    fields = dict(attributes(server_first))
    salted = hashlib.pbkdf2_hmac(name, password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", name)
    bare = client_first.split(b",", 2)[2].decode()
    without = f"c={base64.b64encode(binding).decode()},r={fields['r']}"
    message = f"{bare},{server_first},{without}".encode()
    signature = hmac.digest(hashlib.new(name, key).digest(), message, name)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize(
    ("first", "text"),
    [
        (b"p=tls-unique,,n=user,r=abc", "channel binding is not supported"),
        (b"p=tls-exporter,,n=user,r=abc", "channel binding is not supported"),
        (b"x,,n=user,r=abc", "GS2 flag"),
        (b",,n=user,r=abc", "GS2 flag"),
        (b"n", "GS2 header"),
        (b"n,", "GS2 header"),
        (b"n,b=c,n=user,r=abc", "authorization identity"),
        (b"n,a=,n=user,r=abc", "authorization identity"),
        (b"n,,", "attribute is malformed"),
        (b"n,,n=user", "a name and a nonce"),
        (b"n,,r=abc,n=user", "a name and a nonce"),
        (b"n,,m=ext,n=user,r=abc", "mandatory extension"),
        (b"n,,n=us=er,r=abc", "'=' without a valid code"),
        (b"n,,n=us=2cer,r=abc", "'=' without a valid code"),
        (b"n,,n=,r=abc", "empty or too long"),
        (b"n,,n=" + b"u" * 65000 + b",r=abc", "empty or too long"),
        (b"n,,n=" + b"u" * 70000 + b",r=abc", "message is too long"),
        (b"n,,n=user,r=", "nonce is malformed"),
        (b"n,,n=user,r=a b", "nonce is malformed"),
        (b"n,,n=user,r=" + b"a" * 513, "nonce is malformed"),
        ("n,,n=user,r=ä".encode(), "nonce is malformed"),
        (b"n,,n=us\0er,r=abc", "NUL"),
        (b"n,,n=us\xff,r=abc", "not UTF-8"),
        (b"n,,n=\xc2\x80,r=abc", "user name cannot be used"),
        ("n,,n=\u0627a,r=abc".encode(), "user name cannot be used"),
        (b"\0user\0pencil", "NUL"),
    ],
)
def test_malformed_first_message_is_refused(first, text):
    answer = server().step(first)
    assert isinstance(answer, Failure)
    assert text in answer.text


def test_malformed_last_message_is_refused():
    first = b"n,,n=user,r=abc"
    for change, text in (
        (lambda last: last.replace(b"c=biws", b"c=eSws"), "channel binding differs"),  # y,,
        (lambda last: last.replace(b"c=biws", b"c=" + base64.b64encode(b"p=tls-unique,,")), "channel binding differs"),
        (lambda last: last.replace(b"c=biws", b"c=biwsAAAA"), "channel binding differs"),
        (lambda last: last.replace(b"c=biws", b"c=!"), "not base64"),
        (lambda last: last.replace(b"r=abc", b"r=abd"), "nonce differs"),
        (lambda last: last.replace(b",p=", b"x,p="), "nonce differs"),
        (lambda last: last.replace(b"r=abc", b"r="), "nonce differs"),
        (lambda last: last.replace(b"c=biws,", b""), "a channel binding, a nonce and a proof"),
        (lambda last: last.rpartition(b",p=")[0], "a channel binding, a nonce and a proof"),
        (lambda last: last + b",x=1", "a channel binding, a nonce and a proof"),
        (lambda last: last[:-4] + (b"AAA=" if last[-4:] != b"AAA=" else b"BBB="), "Password verification failed"),
        (lambda last: last.rpartition(b",p=")[0] + b",p=AAAA", "Password verification failed"),
        (lambda last: last.rpartition(b",p=")[0] + b",p=", "Password verification failed"),
        (lambda last: last.rpartition(b",p=")[0] + b",p=***", "not base64"),
        (lambda last: last.rpartition(b",p=")[0] + b",m=1,p=AAAA", "not allowed there"),
        (lambda last: b"", "a channel binding, a nonce and a proof"),
    ):
        scram = server()
        last = proved(first, challenge(scram.step(first)).decode(), b"n,,")
        answer = scram.step(change(last))
        assert isinstance(answer, Failure), text
        assert text in answer.text


def test_extension_of_last_message_is_signed():
    scram = server()
    first = b"n,,n=user,r=abc"
    last = proved(first, challenge(scram.step(first)).decode(), b"n,,")
    answer = scram.step(last.replace(b",p=", b",x=1,p="))
    assert isinstance(answer, Failure)


def test_unknown_user_is_indistinguishable_from_wrong_password():
    """An unknown user gets a constant salt of its own, and fails in the last step, with the same text."""
    salts = []
    for _ in range(2):
        scram = server()
        first = challenge(scram.step(b"n,,n=nobody,r=abc")).decode()
        fields = dict(attributes(first))
        salts.append(fields["s"])
        assert fields["i"] == "4096"
        assert len(base64.b64decode(fields["s"])) == 16
        answer = scram.step(proved(b"n,,n=nobody,r=abc", first, b"n,,"))
        known = server()
        wrong = proved(b"n,,n=user,r=abc", challenge(known.step(b"n,,n=user,r=abc")).decode(), b"n,,", "wrong")
        assert answer == known.step(wrong)
    assert salts[0] == salts[1]
    other = dict(attributes(challenge(server().step(b"n,,n=nobody2,r=abc")).decode()))
    assert other["s"] != salts[0]


def test_user_without_verifier_for_mechanism_is_as_unknown():
    scram = ScramServer("SCRAM-SHA-512", store("SCRAM-SHA-256"))
    first = challenge(scram.step(b"n,,n=user,r=abc")).decode()
    assert isinstance(scram.step(proved(b"n,,n=user,r=abc", first, b"n,,", name="sha512")), Failure)


def test_user_names_are_quoted():
    for name in ("a,b", "a=b", "=,=", "plain", "=2C"):
        assert saslname(quoted(name)) == name


def test_failure_does_not_contain_password():
    scram = server(password="secret-password")
    client = ScramClient("SCRAM-SHA-256", "user", "secret-password")
    assert "secret-password" not in repr(client) + repr(scram.__dict__.get("_verifier"))
    answer = scram.step(b"n,,n=user,r=abc")
    assert "r=abc" not in repr(answer)


@pytest.mark.parametrize(
    ("challenge", "text"),
    [
        (b"r=abcdef,s=AAAA,i=4096", "nonce"),
        (b"r=NONCE,s=AAAA,i=4096", "nonce"),
        (b"r=NONCEx,s=,i=4096", "salt is empty"),
        (b"r=NONCEx,s=!,i=4096", "not base64"),
        (b"r=NONCEx,s=AAAA,i=0", "iterations"),
        (b"r=NONCEx,s=AAAA,i=99999999", "iterations"),
        (b"r=NONCEx,s=AAAA,i=-1", "iterations"),
        (b"m=ext,r=NONCEx,s=AAAA,i=4096", "must be a nonce"),
        (b"e=other-error", "must be a nonce"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_client_refuses_invalid_server_message(challenge, text):
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", lambda: "NONCE")
    with pytest.raises(ExchangeError, match=text):
        client.step(challenge)


def test_client_requires_proof_of_server():
    scram, client = server(), ScramClient("SCRAM-SHA-256", "user", "pencil")
    last = client.step(challenge(scram.step(client.response)))
    answer = scram.step(last)
    assert isinstance(answer, Success)
    with pytest.raises(ExchangeError, match="not proved"):
        client.finish(None)
    with pytest.raises(ExchangeError, match="does not know"):
        client.finish(b"v=" + base64.b64encode(b"\0" * 32))
    assert client.step(answer.additional or b"") == b""  # as a challenge before the outcome
    client.finish(None)


BINDING = bytes(range(32))


def bound_server(binding=BINDING, name="SCRAM-SHA-256-PLUS"):
    return ScramServer(name, store(name.removesuffix(PLUS)), binding=binding, offers_bound=True)


def bound_client(binding=BINDING, name="SCRAM-SHA-256-PLUS", offered=BOUND_MECHANISMS):
    client = ScramClient(name, "user", "pencil", find_binding=lambda: binding)
    return client, client.choose(offered)


@pytest.mark.parametrize("name", BOUND_MECHANISMS)
def test_exchange_with_binding_of_both_sides_succeeds(name):
    client, chosen = bound_client(name=name)
    assert chosen
    assert client.response.startswith(b"p=tls-exporter,,n=user,r=")
    scram = bound_server(name=name)
    answer = scram.step(client.step(challenge(scram.step(client.response))))
    assert isinstance(answer, Success)
    client.finish(answer.additional)


def test_exchange_with_different_binding_is_refused():
    client, _ = bound_client(bytes(32))
    scram = bound_server()
    answer = scram.step(client.step(challenge(scram.step(client.response))))
    assert isinstance(answer, Failure)
    assert "the channel binding differs" in answer.text


def test_client_without_binding_chooses_no_bound_mechanism():
    assert not bound_client(None)[1]
    client, chosen = bound_client(None, "SCRAM-SHA-256", ["SCRAM-SHA-256"])
    assert chosen
    assert client.response.startswith(b"n,,")


@pytest.mark.parametrize(
    ("offered", "flag"),
    [(["SCRAM-SHA-256"], b"y,,"), (["SCRAM-SHA-256", "SCRAM-SHA-1-PLUS"], b"n,,"), (BOUND_MECHANISMS, b"n,,")],
)
def test_client_with_binding_reports_missing_offer(offered, flag):
    client, _ = bound_client(name="SCRAM-SHA-256", offered=offered)
    assert client.response.startswith(flag)


@pytest.mark.parametrize(
    ("scram", "first", "text"),
    [
        (bound_server, b"n,,", "the mechanism has a channel binding, and the client sends none"),
        (bound_server, b"y,,", "the mechanism has a channel binding, and the client sends none"),
        (bound_server, b"p=tls-unique,,", "the channel binding is not tls-exporter"),
        (bound_server, b"p=,,", "the channel binding is not tls-exporter"),
        (lambda: ScramServer("SCRAM-SHA-256", store(), offers_bound=True), b"y,,", "has not seen the offer of channel"),
        (lambda: ScramServer("SCRAM-SHA-256", store(), offers_bound=True), b"p=tls-exporter,,", "is not supported"),
    ],
)
def test_binding_flag_that_contradicts_offer_is_refused(scram, first, text):
    answer = scram().step(first + b"n=user,r=abc")
    assert isinstance(answer, Failure)
    assert text in answer.text
    assert answer.credentials


def test_client_without_binding_is_served_despite_offer():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil")
    scram = ScramServer("SCRAM-SHA-256", store(), offers_bound=True)
    assert isinstance(scram.step(client.step(challenge(scram.step(client.response)))), Success)

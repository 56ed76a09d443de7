"""Names read from certificates (security.md T-20, T-21), compared with the output of the `openssl` command."""

import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type as StringType

from sluice.router.testing.certificates import subject
from tests.peer.pki import CLIENT, pki

pytestmark = pytest.mark.starts

OIDS = {
    "C": "2.5.4.6",
    "ST": "2.5.4.8",
    "L": "2.5.4.7",
    "O": "2.5.4.10",
    "OU": "2.5.4.11",
    "CN": "2.5.4.3",
    "UID": "0.9.2342.19200300.100.1.1",
    "DC": "0.9.2342.19200300.100.1.25",
    "emailAddress": "1.2.840.113549.1.9.1",
}
UTF8 = StringType.UTF8String
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*rdns, kind=UTF8):
    """Return a certificate (PEM) whose subject has these RDNs, each a mapping of attributes."""
    subject_name = x509.Name(
        [
            x509.RelativeDistinguishedName(
                [
                    x509.NameAttribute(x509.ObjectIdentifier(OIDS.get(key, key)), value, kind, _validate=False)
                    for key, value in rdn.items()
                ]
            )
            for rdn in rdns
        ]
    )
    now = datetime.now(tz=UTC)
    made = x509.CertificateBuilder(
        subject_name=subject_name,
        issuer_name=x509.Name([]),
        public_key=KEY.public_key(),
        serial_number=1,
        not_valid_before=now,
        not_valid_after=now + timedelta(days=1),
    )
    return made.sign(KEY, SHA256()).public_bytes(Encoding.PEM)


def printed(pem):
    """Return the subject as printed by `openssl`."""
    words = ["openssl", "x509", "-nameopt", "RFC2253", "-noout", "-subject"]
    done = subprocess.run(words, input=pem, capture_output=True, check=True, timeout=60)
    return done.stdout.decode("ascii").removeprefix("subject=").removesuffix("\n")


FIELDS = ({"C": "US"}, {"ST": "NC"}, {"L": "Raleigh"}, {"O": "Red Hat"}, {"OU": "Dev"}, {"CN": "alice"})


@pytest.mark.parametrize(
    ("rdns", "name"),
    [
        (FIELDS, "CN=alice,OU=Dev,O=Red Hat,L=Raleigh,ST=NC,C=US"),
        (FIELDS[::-1], "C=US,ST=NC,L=Raleigh,O=Red Hat,OU=Dev,CN=alice"),
        (({"C": "DE"}, {"O": "Müller, Söhne"}, {"CN": "host"}), r"CN=host,O=M\C3\BCller\, S\C3\B6hne,C=DE"),
        (({"O": "a=b"}, {"CN": "x;y"}), r"CN=x\;y,O=a=b"),
        (({"DC": "com"}, {"DC": "example"}, {"CN": "#lead"}), r"CN=\#lead,DC=example,DC=com"),
        (({"CN": " space "}, {"emailAddress": "a@b.c"}), r"emailAddress=a@b.c,CN=\ space\ "),
        (({"CN": 'a"b\\c<d>e+f'},), r"CN=a\"b\\c\<d\>e\+f"),
        (({"CN": "a\nb\x7f"},), r"CN=a\0Ab\7F"),
        (({"CN": "admin\0.example"},), r"CN=admin\00.example"),
        (({"CN": "\N{PILE OF POO}"},), r"CN=\F0\9F\92\A9"),
        (({"1.2.3.4": "x"},), "1.2.3.4=#0C0178"),
        ((), ""),
    ],
)
def test_full_name_follows_rfc_2253(rdns, name):
    pem = certificate(*rdns)
    assert subject(pem)[0] == name == printed(pem)


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        (StringType.PrintableString, "host", "CN=host"),
        (StringType.T61String, "Söhne", r"CN=S\C3\83\C2\B6hne"),  # octets are read as ISO 8859-1
        (StringType.BMPString, "Söhne", r"CN=S\C3\B6hne"),
        (StringType.UniversalString, "Söhne", r"CN=S\C3\B6hne"),
    ],
)
def test_full_name_of_other_string_types_equals_openssl_output(kind, value, name):
    pem = certificate({"CN": value}, kind=kind)
    assert subject(pem)[0] == name == printed(pem)


def test_rdn_of_two_attributes_is_not_two_rdns():
    """The owner of one certificate must not get the user name of the other."""
    one = certificate({"O": "Org"}, {"CN": "u", "UID": "7"})
    other = certificate({"O": "Org"}, {"CN": "u"}, {"UID": "7"})
    assert subject(one)[0] in ("UID=7+CN=u,O=Org", "CN=u+UID=7,O=Org")
    assert subject(one)[0] == printed(one)
    assert subject(other)[0] == "UID=7,CN=u,O=Org"
    assert sorted(subject(one)[1]) == sorted(subject(other)[1])


def test_certificate_with_unprintable_value_is_refused():
    """A UTF8String holds invalid UTF-8. OpenSSL would stop after `CN=admin,`, which is another user's name."""
    der = ssl.PEM_cert_to_DER_cert(certificate({"O": "Söhne"}, {"CN": "admin"}).decode())
    broken = ssl.DER_cert_to_PEM_cert(der.replace("Söhne".encode(), b"S\xff\xffhne"))
    with pytest.raises(ValueError, match="not a certificate"):
        subject(broken.encode())


def test_attributes_keep_order_of_certificate(tmp_path_factory):
    issued = pki(tmp_path_factory.getbasetemp()).client.certificate.read_bytes()
    wanted = [tuple(part.split("=")) for part in CLIENT[1:].split("/")]
    assert subject(issued) == (",".join("=".join(part) for part in reversed(wanted)), wanted)

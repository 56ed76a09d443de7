"""Certificates for tests: authorities and their certificates, made by the `openssl` command once per test run."""

import os
import ssl
import subprocess
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

CLIENT = "/C=US/ST=NC/L=Raleigh/OU=Dev/O=Client/CN=127.0.0.1"
CLIENT_USER = "CN=127.0.0.1,O=Client,OU=Dev,L=Raleigh,ST=NC,C=US"  # user name of that certificate
KEY_PASSWORD = "of the key"
FAR = datetime(2099, 12, 31, tzinfo=UTC)
_TIME = "%Y%m%d%H%M%SZ"  # time format of openssl


class Issued(NamedTuple):
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


class Pki:
    """Certificate authority with its certificates, which are made on demand."""

    def __init__(self, directory: Path, above: "Pki | None" = None) -> None:
        """above: issuer of this authority's certificate; None: self-signed."""
        self._directory = directory
        if above is None:
            self.authority = self._own("authority")
        else:
            self.authority = above.issue(directory.name, f"/CN={directory.name}", authority=True)
        self.server = self.issue("server", "/CN=localhost", names="DNS:localhost,IP:127.0.0.1")
        self.client = self.issue("client", CLIENT)

    @property
    def trusted(self) -> Path:
        """Certificate of the authority."""
        return self.authority.certificate

    def issue(
        self,
        name: str,
        subject: str,
        *,
        names: str | None = None,
        days: int = 365,
        rsa: bool = False,
        later: bool = False,
        until: datetime | None = None,
        authority: bool = False,
    ) -> Issued:
        """Issue a certificate; `names` is its subjectAltName.

        subject: `/` before each RDN, `+` between the attributes of one RDN; a backslash escapes both. days: validity;
        -1: expired. rsa: use an RSA key. later: not valid before tomorrow. until: end of validity. authority: for
        another authority.
        """
        made = self._paths(name)
        request, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(_AUTHORITY if authority else "" if names is None else f"subjectAltName={names}\n")
        new_key = _NEW_RSA_KEY if rsa else _NEW_KEY
        _openssl("req", *new_key, "-keyout", made.key, "-out", request, "-utf8", "-subj", subject)
        signer = ("-CA", self.authority.certificate, "-CAkey", self.authority.key, "-CAcreateserial", "-days", days)
        if later:
            tomorrow = datetime.now(tz=UTC) + timedelta(days=1)
            self._sign(tomorrow, FAR, request, extensions, made.certificate)
        elif until is not None:
            self._sign(datetime.now(tz=UTC) - timedelta(days=1), until, request, extensions, made.certificate)
        else:
            _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", made.certificate)
        return made

    def below(self, name: str) -> "Pki":
        """Return an intermediate authority whose certificate this authority issues."""
        directory = self._directory / name
        directory.mkdir()
        return Pki(directory, self)

    def revocations(self, *revoked: Issued, until: datetime | None = None) -> bytes:
        """Return a revocation list (PEM) of the authority with these certificates. until: its next update; None: in 30
        days."""
        for each in revoked:
            _openssl("ca", *self._as_ca(), "-revoke", each.certificate)
        made = self._directory / "revoked.pem"
        start = datetime.now(tz=UTC) - timedelta(days=2)
        end = datetime.now(tz=UTC) + timedelta(days=30) if until is None else until
        times = ("-crl_lastupdate", start.strftime(_TIME), "-crl_nextupdate", end.strftime(_TIME))
        _openssl("ca", *self._as_ca(), "-gencrl", *times, "-out", made)
        return made.read_bytes()

    def status(self, issued: Issued) -> Path:
        """Return the authority's OCSP answer about a certificate, as servers staple it."""
        request, made = self._directory / "status.request", self._directory / "status.der"
        own = ("-issuer", self.trusted, "-cert", issued.certificate)
        _openssl("ocsp", *own, "-reqout", request)
        self._as_ca()
        signer = ("-rsigner", self.trusted, "-rkey", self.authority.key, "-CA", self.trusted)
        answer = ("-index", self._directory / "index", "-ndays", 1, "-reqin", request, "-respout", made)
        _openssl("ocsp", *signer, *answer)
        return made

    def _sign(self, start: datetime, end: datetime, request: Path, extensions: Path, into: Path) -> None:
        times = ("-startdate", start.strftime(_TIME), "-enddate", end.strftime(_TIME))
        _openssl(
            "ca", *self._as_ca(), "-batch", "-notext", "-in", request, *times, "-extfile", extensions, "-out", into
        )

    def _as_ca(self) -> tuple[object, ...]:
        """Return arguments that make `openssl ca` act as the authority; only that command sets start dates and
        revocations."""
        settings = self._directory / "ca.cnf"
        if not settings.exists():
            (self._directory / "index").touch()
            lines = ["[ca]", "default_ca = here", "[here]", f"database = {self._directory / 'index'}", "policy = any"]
            lines += [
                "default_md = sha256",
                "rand_serial = yes",
                "unique_subject = no",
                f"new_certs_dir = {self._directory}",
            ]
            settings.write_text("\n".join([*lines, "[any]", "commonName = supplied", ""]))
        return "-config", settings, "-cert", self.authority.certificate, "-keyfile", self.authority.key

    def locked_key(self) -> Path:
        """Return the server's key, encrypted with KEY_PASSWORD."""
        path = self._directory / "locked.key"
        if not path.exists():
            _openssl("ec", "-in", self.server.key, "-out", path, "-aes128", "-passout", f"pass:{KEY_PASSWORD}")
        return path

    def context(self, client: Issued | None = None) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts the authority."""
        context = ssl.create_default_context(cafile=str(self.trusted))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        return context

    def server_context(self, issued: Issued, *, wants_client: bool = False) -> ssl.SSLContext:
        """Return the TLS context of a server with this certificate."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.trusted))
        context.load_cert_chain(issued.certificate, issued.key)
        context.verify_mode = ssl.CERT_REQUIRED if wants_client else ssl.CERT_NONE
        return context

    def _own(self, name: str) -> Issued:
        made = self._paths(name)
        files = ("-keyout", made.key, "-out", made.certificate)
        _openssl("req", "-x509", *_NEW_KEY, *files, "-subj", f"/CN={name}", "-days", 365)
        return made

    def _paths(self, name: str) -> Issued:
        return Issued(self._directory / f"{name}.pem", self._directory / f"{name}.key")


class SwappableCertificate:
    """Certificate and key behind a symbolic link, as Kubernetes mounts secrets."""

    def __init__(self, directory: Path, first: Issued) -> None:
        self._directory = directory
        self._turn = 0
        (directory / "tls.crt").symlink_to("data/tls.crt")
        (directory / "tls.key").symlink_to("data/tls.key")
        self.put(first.certificate.read_bytes(), first.key.read_bytes())
        self.issued = Issued(directory / "tls.crt", directory / "tls.key")

    def put(self, certificate: bytes, key: bytes) -> None:
        """Replace both files atomically."""
        self._turn += 1
        data = self._directory / f"data{self._turn}"
        data.mkdir()
        (data / "tls.crt").write_bytes(certificate)
        (data / "tls.key").touch(0o600)
        (data / "tls.key").write_bytes(key)
        link = self._directory / "link"
        link.symlink_to(data.name)
        os.replace(link, self._directory / "data")


_AUTHORITY = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\n"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
_NEW_RSA_KEY = ("-newkey", "rsa:2048", "-nodes")


@cache
def _known(base: Path, name: str) -> Pki:
    directory = base / name
    directory.mkdir()
    return Pki(directory)


def pki(base: Path, name: str = "pki") -> Pki:
    """Return the authority `name` of this test run. Its files are in `base`."""
    return _known(base, name)


def _openssl(*words: object) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)

"""Command-line tools over TLS, with each SASL mechanism (management.md 8.2)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.peer.logins import SCRAM
from tests.peer.pki import KEY_PASSWORD, Pki, pki
from tests.system.router import RouterProcess
from tests.system.secured import PASSWORD, USER, sections
from tests.system.tools import TIMEOUT, ToolResult, command, environment


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def _router(tmp_path_factory: pytest.TempPathFactory, authority: Pki) -> Iterator[RouterProcess]:
    folder = tmp_path_factory.mktemp("secured")
    (folder / "password").write_text(f"{PASSWORD}\n")
    (folder / "key-password").write_text(f" {KEY_PASSWORD}\n")
    router = RouterProcess(folder, sections(folder, authority), 1)
    router.start()
    yield router
    router.stop()


@pytest.fixture
def router(_router: RouterProcess, request: pytest.FixtureRequest) -> RouterProcess:
    request.node.routers = [_router]
    return _router


def run(tool: str, bus: str, *words: Any, **variables: str) -> ToolResult:
    """Run a tool until it exits. `variables` are added to its environment."""
    done = subprocess.run(
        [*command(tool), "-b", bus, "-t", "30", *map(str, words)],
        env=environment() | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def url(router: RouterProcess, name: str, user: str = "", scheme: str = "amqps") -> str:
    return f"{scheme}://{user}localhost:{router.ports[name]}"


def own_connection(bus: str, *words: Any, **variables: str) -> tuple[str, str, bool]:
    """Return user and mechanism of qdmanage's connection and whether it is encrypted, from the tool's own query."""
    done = run("manage", bus, *words, "QUERY", "--type", "connection", **variables)
    assert (done.code, done.err) == (0, ""), done
    (row,) = json.loads(done.out)
    return row["user"], row["sasl"], row["isEncrypted"]


LOGIN = ("--sasl-username", USER, "--sasl-password", PASSWORD)


@pytest.fixture
def trust(authority: Pki) -> tuple[Any, ...]:
    return "--ssl-trustfile", authority.trusted


def test_password_login_works_with_each_mechanism(router: RouterProcess, trust: tuple[Any, ...]) -> None:
    people = url(router, "people")
    by_file = ("--sasl-username", USER, "--sasl-password-file", router.directory / "password")
    assert own_connection(people, *trust, *by_file) == (USER, SCRAM[0], True)
    assert own_connection(url(router, "people", f"{USER}:{PASSWORD}@"), *trust) == (USER, SCRAM[0], True)
    assert own_connection(people, *trust, *LOGIN, "--sasl-mechanisms", "PLAIN") == (USER, "PLAIN", True)
    assert own_connection(people, *trust, *LOGIN, "--sasl-mechanisms", "SCRAM-SHA-1 PLAIN") == (
        USER,
        "SCRAM-SHA-1",
        True,
    )
    assert own_connection(url(router, "bare", scheme="amqp"), *LOGIN) == (USER, "PLAIN", False)
    assert own_connection(url(router, "anybody"), *trust) == ("anonymous", "ANONYMOUS", True)


def test_qdstat_shows_its_authentication(router: RouterProcess, trust: tuple[Any, ...]) -> None:
    done = run("stat", url(router, "people"), "-c", *trust, *LOGIN)
    assert (done.code, done.err) == (0, "")
    (row,) = done.rows
    assert (row["authentication"], row["security"].partition("(")[0]) == (f"{USER}({SCRAM[0]})", "TLSv1.3")


def test_certificate_login_selects_tls(router: RouterProcess, authority: Pki, trust: tuple[Any, ...]) -> None:
    """A trust file or a certificate suffices to select TLS."""
    without_scheme = url(router, "certificates").removeprefix("amqps://")
    mine = ("--ssl-certificate", authority.client.certificate, "--ssl-key", authority.client.key)
    locked = ("--ssl-certificate", authority.server.certificate, "--ssl-key", authority.locked_key())
    assert own_connection(without_scheme, *trust, *mine) == ("127.0.0.1", "EXTERNAL", True)
    for password in (("--ssl-password", KEY_PASSWORD), ("--ssl-password-file", router.directory / "key-password")):
        assert own_connection(without_scheme, *trust, *locked, *password) == ("localhost", "EXTERNAL", True)


def test_router_certificate_must_be_trusted(router: RouterProcess, authority: Pki, trust: tuple[Any, ...]) -> None:
    anybody = url(router, "anybody")
    assert own_connection(anybody, SSL_CERT_FILE=str(authority.trusted))[2], "an authority of the system"
    assert own_connection(anybody, "--ssl-disable-peer-name-verify", SSL_CERT_FILE=str(authority.trusted))[2]
    misnamed = url(router, "misnamed")
    assert own_connection(misnamed, *trust, "--ssl-disable-peer-name-verify")[2]
    for bus, words in (
        (misnamed, trust),
        (anybody, ()),
        (anybody, ("--ssl-disable-peer-name-verify",)),
        (anybody, ("--ssl-trustfile", authority.client.certificate)),
    ):
        done = run("stat", bus, *words)
        assert done.code == 1
        assert "certificate verify failed" in done.out


def test_refused_login_prints_reason_without_password(
    router: RouterProcess, authority: Pki, trust: tuple[Any, ...]
) -> None:
    people, certificates = url(router, "people"), url(router, "certificates")
    wrong = (
        "--ssl-certificate",
        authority.server.certificate,
        "--ssl-key",
        authority.locked_key(),
        "--ssl-password",
        "wrong",
    )
    cases: list[tuple[str, tuple[Any, ...], str]] = [
        (people, (*trust, "--sasl-username", USER, "--sasl-password", "wrong"), "amqp:unauthorized-access"),
        (people, trust, "[mech=none]"),
        (people, (*trust, *LOGIN, "--sasl-mechanisms", "EXTERNAL"), "[mech=none]"),
        (certificates, trust, "certificate required"),
        (
            certificates,
            (*trust, *wrong),
            f"cannot be used with the key {authority.locked_key()} and the password given",
        ),
        (people, ("--ssl-trustfile", "/nowhere"), "/nowhere has no authorities that can be read"),
        (url(router, ""), trust, "wrong version number"),
    ]
    for bus, words, text in cases:
        done = run("manage", bus, *words, "QUERY", "--type", "connection")
        assert (done.code, text in done.out, PASSWORD in done.out) == (1, True, False), done

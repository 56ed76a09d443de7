"""Locust users against a router that authenticates them, over TLS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.loadtests import secured
from tests.loadtests.secured import ASCII_PASSWORD, ASCII_USER
from tests.peer.logins import SCRAM
from tests.peer.pki import Pki, pki
from tests.sasldb import proton_has_scram
from tests.system.router import ROOT, RouterProcess

# No importorskip: locust patches the threads of the importing process.
pytestmark = pytest.mark.skipif(find_spec("locust") is None, reason="locust is not installed")

# Connects with each setting and prints the results. locust makes sockets cooperative, so it is imported first.
SCRIPT = """
import json, sys
import locust
from loadtests.users.connection import GeventConnection
from loadtests.users.errors import LocustError
from loadtests.users.security import Security
found = []
for url, security in json.loads(sys.argv[1]):
    try:
        connection = GeventConnection(url, security=Security(**security))
        connection.open()
        connection.close()
    except (LocustError, ValueError) as error:
        found.append(f"{type(error).__name__}: {error}")
    else:
        found.append("opened")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def secured_router(certificates: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    router = RouterProcess(
        tmp_path_factory.mktemp("secured"), secured.sections(tmp_path_factory.mktemp("files"), certificates), 1
    )
    router.start()
    yield router
    router.stop()


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=90,
    )


def test_connections_use_given_security(
    secured_router: RouterProcess, certificates: Pki, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    others, ca = pki(tmp_path_factory.getbasetemp(), "others"), str(certificates.trusted)
    login = {"ca": ca, "user": ASCII_USER, "password": ASCII_PASSWORD}
    own = {"ca": ca, "certificate": str(certificates.client.certificate), "key": str(certificates.client.key)}
    good: list[tuple[str, dict[str, str]]] = [("PLAIN", login), ("EXTERNAL", own), ("ANONYMOUS", {"ca": ca})]
    if proton_has_scram():
        good += [(each, {**login, "mechanisms": each}) for each in SCRAM]
    bad = [
        (
            "PLAIN",
            {**login, "password": "wrong"},
            "amqp:unauthorized-access: Authentication failed",
        ),
        ("PLAIN", {**login, "ca": str(others.trusted)}, "certificate verify failed"),
        ("elsewhere", {"ca": ca}, "certificate verify failed"),
        ("any", {"ca": str(tmp_path / "missing")}, "ValueError: a file cannot be used: "),
    ]
    before = len(secured_router.lines)
    asked = [*good, *((name, security) for name, security, _ in bad)]
    ways = [(f"amqps://localhost:{secured_router.ports[name]}", security) for name, security in asked]
    done = run("-c", SCRIPT, json.dumps(ways))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found[: len(good)] == ["opened"] * len(good), found
    for text, (_, _, wanted) in zip(found[len(good) :], bad, strict=True):
        assert wanted in text
    for mechanism, _ in good:
        secured_router.wait_log(rf"encrypted=TLSv1\.[23] auth={mechanism} user=", after=before)


def test_scenario_runs_with_command_line_security(secured_router: RouterProcess, certificates: Pki) -> None:
    """Options are given on the command line."""
    before = len(secured_router.lines)
    scenario = ROOT / "loadtests" / "scenarios" / "standalone.py"
    words = [
        "--host",
        f"amqps://localhost:{secured_router.ports['PLAIN']}",
        "--amqp-ca",
        certificates.trusted,
        "--amqp-user",
        ASCII_USER,
    ]
    run_ = ["--headless", "--only-summary", "-u", "6", "-r", "6", "-t", "2s"]
    done = run("-m", "locust", "-f", scenario, *words, *run_, AMQP_PASSWORD=ASCII_PASSWORD)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ASCII_PASSWORD not in done.stdout + done.stderr
    secured_router.wait_log(rf"encrypted=TLSv1\.[23] auth=PLAIN user={ASCII_USER} ", after=before)

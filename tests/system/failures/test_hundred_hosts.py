"""A hundred remote hosts: while one is hostile in every way that needs no password, the others log in.

`python -m loadtests.bench hostile-host` measures how quickly.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from loadtests.hostile_rows import HONEST, ROUNDS, AttackedPorts, compare
from tests.peer.logins import write_users
from tests.peer.pki import pki
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener


def sections(tmp_path: Path, tmp: Path) -> list[Section]:
    users = tmp_path / "users"
    write_users(users, alice="secret")
    made = pki(tmp)
    files = {"certFile": made.server.certificate, "privateKeyFile": made.server.key}
    return [
        ("saslUsers", {"name": "people", "file": users}),
        ("sslProfile", {"name": "keys", **files}),
        ("log", {"module": "DEFAULT", "enable": "warning+"}),
        ("log", {"module": "SERVER", "enable": "notice+"}),
        listener("users", saslUsers="people"),
        listener("tls", sslProfile="keys", requireSsl=True, saslUsers="people"),
        listener("web", http=True),
    ]


def ports(router: RouterProcess) -> AttackedPorts:
    return AttackedPorts(router.ports["users"], router.ports["tls"], router.ports["web"])


@pytest.mark.long
@pytest.mark.parametrize("workers", [2])
def test_hostile_host_does_not_prevent_logins(
    start: Start, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, workers: int
) -> None:
    configuration = sections(tmp_path, tmp_path_factory.getbasetemp())
    attacked, calm = start(configuration, workers), start(configuration, workers)
    during, beside = asyncio.run(compare(ports(attacked), ports(calm)))
    assert len(beside) == len(during) == ROUNDS * len(HONEST)

"""GSSAPI with the plugin of libsasl2: a Qpid Proton client logs in with a Kerberos ticket (security.md S-1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers.process import TOOLS
from tests.interop.conftest import ClientLauncher, require_tool
from tests.interop.kerberos import HOST, USER, Kerberos
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.long
COUNT = 20


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Kerberos]:
    require_tool(TOOLS / "kerberos" / "usr" / "sbin" / "krb5kdc", "kerberos")
    folder = tmp_path / "kerberos"
    folder.mkdir()
    with Kerberos(folder) as made:
        yield made


@pytest.fixture
def router(realm: Kerberos, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RouterProcess]:
    sasl = tmp_path / "sasl"
    sasl.mkdir()
    (sasl / "qdrouterd.conf").write_text("mech_list: GSSAPI\n")
    for name, value in realm.service.items():
        monkeypatch.setenv(name, value)
    sections = [
        ("router", {"saslConfigDir": str(sasl)}),
        listener("guarded", authenticatePeer="yes", saslMechanisms="GSSAPI"),
    ]
    made = RouterProcess(tmp_path, sections, 1)
    made.start()
    for name in realm.service:
        monkeypatch.delenv(name)
    yield made
    made.stop()


def test_client_with_ticket_is_authenticated(
    realm: Kerberos, router: RouterProcess, proton: ClientLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in realm.client.items():
        monkeypatch.setenv(name, value)
    url = f"amqp://{HOST}:{router.ports['guarded']}?mechanism=GSSAPI"
    receive = proton("simple_recv", url, "tickets", COUNT)
    assert proton("simple_send", url, "tickets", COUNT).result() == COUNT
    assert len(receive.result()) == COUNT
    router.wait_log(rf"auth=GSSAPI user={USER} ")


def test_client_without_ticket_is_refused(
    realm: Kerberos, router: RouterProcess, proton: ClientLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**realm.client, "KRB5CCNAME": "FILE:/nonexistent"}.items():
        monkeypatch.setenv(name, value)
    url = f"amqp://{HOST}:{router.ports['guarded']}?mechanism=GSSAPI"
    assert "transport: " in proton("simple_send", url, "tickets", COUNT).failure()
    assert "auth=GSSAPI" not in router.log

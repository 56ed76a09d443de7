"""Credentials of a worker: replaced by ops, with one TLS context for each use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from sluice.router.control.ops import Credentials, CredentialsGone, CredentialsOp, Profile
from sluice.router.tls.context import TlsError
from sluice.workers import credentials as module
from sluice.workers.credentials import UNKNOWN, CredentialStore
from tests.peer.pki import Pki, pki

#: Profile of a listener that verifies its clients.
PROFILE: dict[str, Any] = {
    "host": "h",
    "port": "1",
    "role": "normal",
    "cost": 1,
    "saslMechanisms": None,
    "maxFrameSize": 16384,
    "maxSessions": 10,
    "maxSessionFrames": None,
    "idleTimeoutSeconds": 16,
    "stripAnnotationsIn": True,
    "stripAnnotationsOut": True,
    "linkCapacity": 250,
    "bundleCapacity": 1000,
    "capacityAdapts": True,
    "maxBufferedMegabytes": 1,
    "openProperties": {},
    "messageLoggingComponents": "none",
    "initialHandshakeTimeoutSeconds": 0,
    "failoverServers": [],
    "tls": "p",
    "verifyPeer": True,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp())


@pytest.fixture
def protected(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Calls that forbid access to the memory of this process, in place of their effect."""
    calls: list[bool] = []
    monkeypatch.setattr(module, "forbid_memory_access", lambda: calls.append(True))
    return calls


@pytest.fixture
def store(protected: list[bool]) -> CredentialStore:
    return CredentialStore()


def text(path: Path) -> str:
    return path.read_text("ascii")


def credentials(authority: Pki, **more: Any) -> Credentials:
    given = {"certificates": text(authority.server.certificate), "key": text(authority.server.key), **more}
    return Credentials(**given)


def test_context_is_made_once_for_each_use(store: CredentialStore, authority: Pki) -> None:
    store.apply(CredentialsOp("p", credentials(authority, trusted=text(authority.trusted))))
    context = store.context("p", server=True, verify_peer=False)
    assert store.context("p", server=True, verify_peer=False) is context
    assert store.context("p", server=True, verify_peer=True) is not context
    assert store.context("p", server=False, verify_peer=True) is not context


def test_replaced_credentials_make_new_contexts(store: CredentialStore, authority: Pki) -> None:
    for name in ("p", "other"):
        store.apply(CredentialsOp(name, credentials(authority)))
    before = {name: store.context(name, server=True, verify_peer=False) for name in ("p", "other")}
    store.apply(CredentialsOp("p", credentials(authority, closes_revoked=True)))
    assert store.context("p", server=True, verify_peer=False) is not before["p"]
    assert store.context("other", server=True, verify_peer=False) is before["other"]
    assert (store.closes_revoked("p"), store.closes_revoked("other")) == (True, False)


@pytest.mark.parametrize("op", [CredentialsGone("p"), CredentialsOp("p", None), None])
def test_removed_or_invalid_credentials_are_an_error(
    store: CredentialStore, authority: Pki, op: CredentialsGone | CredentialsOp | None
) -> None:
    store.apply(CredentialsOp("p", credentials(authority, trusted=text(authority.trusted), closes_revoked=True)))
    store.context("p", server=True, verify_peer=False)
    if op is None:
        store.clear()
    else:
        store.apply(op)
    with pytest.raises(TlsError, match=UNKNOWN):
        store.context("p", server=True, verify_peer=False)
    assert not store.trusts("p")
    assert not store.closes_revoked("p")


def test_memory_is_protected_before_keys_arrive(store: CredentialStore, protected: list[bool], authority: Pki) -> None:
    store.apply(CredentialsGone("p"))
    assert protected == []
    store.apply(CredentialsOp("p", credentials(authority)))
    assert protected == [True]


@pytest.mark.parametrize(
    ("websockets", "trusts", "verifies"), [(False, True, True), (True, True, True), (True, False, False)]
)
def test_listener_for_websockets_verifies_clients_only_with_authorities(
    store: CredentialStore, authority: Pki, websockets: bool, trusts: bool, verifies: bool
) -> None:
    trusted = text(authority.trusted) if trusts else None
    store.apply(CredentialsOp("p", credentials(authority, trusted=trusted)))
    profile = msgspec.convert({**PROFILE, "websockets": websockets}, Profile)
    context = store.of_endpoint(profile, server=True)
    assert context is store.context("p", server=True, verify_peer=verifies)

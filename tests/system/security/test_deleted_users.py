"""Connections of users that are deleted from a `saslUsers` file."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from sluice.router.sasl.users import Users
from sluice.router.sasl.verifiers import make
from tests.peer.frames import AMQP_HEADER
from tests.peer.management import Management
from tests.peer.peer import AmqpPeer
from tests.system.fixtures import Start
from tests.system.router import RouterProcess, Section, listener, poll

DELETED = ("amqp:unauthorized-access", "the user of this connection has been deleted")


def write(path: Path, *names: str) -> None:
    """Write a file with these users, whose passwords are their names."""
    users = Users({}, b"k" * 32)
    for name in names:
        users = users.with_user(name, [make("SCRAM-SHA-256", name, 4096)])
    path.with_suffix(".new").write_text(users.text())
    os.replace(path.with_suffix(".new"), path)


def sections(path: Path, **attributes: str) -> list[Section]:
    return [
        ("saslUsers", {"name": "file", "file": path, **attributes}),
        listener(),
        listener("people", saslUsers="file", authenticatePeer=True),
        listener("open", saslUsers="file"),
    ]


def open_logged_in(router: RouterProcess, name: str, client: str = "people") -> AmqpPeer:
    """Open a client connection that logs in by password."""
    peer = AmqpPeer(router.ports[client])
    assert peer.sasl("PLAIN", f"\0{name}\0{name}".encode()).code == 0
    assert peer.header() == AMQP_HEADER
    peer.frame("open", container_id="client")
    peer.remote_open = peer.expect("open")
    return peer


@pytest.mark.parametrize("attributes", [{}, {"userPrefix": "file:"}])
def test_deleted_user_connections_are_closed(start: Start, tmp_path: Path, attributes: dict[str, str]) -> None:
    path = tmp_path / "users"
    write(path, "alice", "bob")
    router = start(sections(path, **attributes), 3)
    deleted = [open_logged_in(router, "alice", name) for name in ("people", "open", "people")]
    others = [open_logged_in(router, "bob"), AmqpPeer.opened(router.ports["open"])]
    write(path, "bob")
    for peer in deleted:
        assert peer.expect_close() == DELETED
    router.wait_log(r"AUTHSERVICE \(notice\) saslUsers file: 3 connections of deleted users are closed")
    write(path, "bob", "carol")
    wait_login(router, "carol")
    for peer in others:
        peer.barrier()
        peer.drop()


def test_deleted_user_connections_are_kept_with_keep_setting(start: Start, tmp_path: Path) -> None:
    """The connection stays open until a new configuration has another setting."""
    path = tmp_path / "users"
    write(path, "alice", "bob")
    router = start(sections(path, onChange="keep"))
    with open_logged_in(router, "alice") as kept, AmqpPeer.opened(router.port) as own:
        write(path, "bob")
        router.wait_log(r"saslUsers file: read \S+ again")
        kept.barrier()
        router.configure(sections(path))
        Management(own).call("RELOAD")
        assert kept.expect_close() == DELETED


def test_broken_file_and_lost_process_close_nothing(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "users"
    write(path, "alice")
    router = start(sections(path))
    with open_logged_in(router, "alice") as peer:
        path.write_text("alice\n")
        router.wait_log("the user has no verifier; the values read before stay in force")
        peer.barrier()
        write(path, "alice", "bob")
        router.wait_log(r"saslUsers file: read \S+ again")
        os.kill(authentication_process(router), signal.SIGKILL)
        router.wait_log("The authentication process .* died")
        wait_login(router, "bob")
        peer.barrier()
        write(path, "bob")
        assert peer.expect_close() == DELETED


def wait_login(router: RouterProcess, name: str) -> None:
    """Wait until a user can log in."""

    def try_once() -> bool:
        with AmqpPeer(router.ports["people"]) as peer:
            return bool(peer.sasl("PLAIN", f"\0{name}\0{name}".encode()).code == 0)

    poll(try_once, f"{name} can log in")


def authentication_process(router: RouterProcess) -> int:
    (found,) = (each.pid for each in router.family() if "sluice: authentication" in " ".join(each.cmdline()))
    return found

"""Listeners that are opened, renamed, changed and closed while the router runs, with real sockets."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

from sluice.supervisor.configuration.errors import ChangeError
from sluice.supervisor.listeners.listener import Listener
from tests.unit.supervisor.configuration.test_changes import BASE, ReconfigurableRouter

Scenario = Callable[[ReconfigurableRouter], Awaitable[None]]


def run(folder: Path, scenario: Scenario) -> None:
    async def body() -> None:
        router = ReconfigurableRouter(folder)
        try:
            await scenario(router)
        finally:
            router.close()

    asyncio.run(body())


def listener_section(name: str, port: int, host: str = "127.0.0.1", more: str = "") -> str:
    return f"listener {{\nname: {name}\nhost: {host}\nport: {port}\n{more}\n}}\n"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as opened:
        port: int = opened.getsockname()[1]
        return port


def listeners(router: ReconfigurableRouter) -> dict[str, Listener]:
    return {listener.config.name: listener for listener in router.acceptor.listeners}


def answers(port: int) -> bool:
    """Return whether a port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except ConnectionRefusedError:
        return False
    return True


def test_reload_opens_and_closes_listeners(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        one, two = free_port(), free_port()
        await router.reload(BASE + listener_section("one", one))
        assert answers(one)
        await router.reload(BASE + listener_section("two", two))
        assert (answers(one), answers(two)) == (False, True)
        assert sorted(listeners(router)) == ["main", "two"]
        assert f"Deleted Listener: 127.0.0.1:{one}" in router.lines("info")

    run(tmp_path, scenario)


def test_renamed_listener_keeps_its_sockets(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        port = free_port()
        await router.reload(BASE + listener_section("before", port))
        before = listeners(router)["before"]
        await router.reload(BASE + listener_section("after", port))
        after = listeners(router)["after"]
        assert after is before
        assert after.accepts_as is not None
        assert after.accepts_as[0].name == "after"

    run(tmp_path, scenario)


def test_port_chosen_by_kernel_belongs_to_name(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        await router.reload(BASE + listener_section("before", 0))
        before = listeners(router)["before"]
        await router.reload(BASE + listener_section("after", 0))
        assert listeners(router)["after"] is not before
        assert before.sockets[0].fileno() == -1

    run(tmp_path, scenario)


def test_changed_listener_accepts_with_new_attributes_on_same_sockets(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        port = free_port()
        await router.reload(BASE + listener_section("a", port))
        before = listeners(router)["a"]
        assert before.accepts_as is not None
        profile = before.accepts_as[1]
        await router.reload(BASE + listener_section("a", port, more="linkCapacity: 7"))
        assert listeners(router)["a"] is before
        assert before.accepts_as[0].link_capacity == 7
        assert before.accepts_as[1] != profile

    run(tmp_path, scenario)


def test_port_moves_to_listener_on_other_address(tmp_path: Path) -> None:
    """Both sockets are bound for a moment, so that no client is refused."""

    async def scenario(router: ReconfigurableRouter) -> None:
        port = free_port()
        await router.reload(BASE + listener_section("a", port))
        before = listeners(router)["a"]
        await router.reload(BASE + listener_section("a", port, host="0.0.0.0"))
        after = listeners(router)["a"]
        assert after is not before
        assert before.sockets[0].fileno() == -1
        assert answers(port)

    run(tmp_path, scenario)


def test_reload_with_second_listener_on_a_port_is_refused(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        port = free_port()
        await router.reload(BASE + listener_section("one", port))
        router.path.write_text(BASE + listener_section("one", port) + listener_section("two", port))
        error = await router.change_error(router.reloads.ask())
        assert isinstance(error, ChangeError)
        assert error.text == f"Listener error on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}"
        assert sorted(listeners(router)) == ["main", "one"]

    run(tmp_path, scenario)


def test_reload_with_unusable_new_listener_changes_nothing(tmp_path: Path) -> None:
    async def scenario(router: ReconfigurableRouter) -> None:
        kept, new = free_port(), free_port()
        await router.reload(BASE + listener_section("kept", kept))
        before = listeners(router)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            text = BASE + listener_section("kept", kept, host="0.0.0.0") + listener_section("new", new)
            router.path.write_text(text + listener_section("taken", port))
            error = await router.change_error(router.reloads.ask())
        assert isinstance(error, ChangeError)
        assert error.text == f"Listener error on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}"
        assert listeners(router) == before
        assert (answers(kept), answers(new)) == (True, False)
        (opened,) = before["kept"].sockets
        assert not opened.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT), "the port is shared no longer"

    run(tmp_path, scenario)

"""Text of the configurations of measured routers."""

from __future__ import annotations

from collections.abc import Mapping

from tests.system.router import Section, render

MULTICAST: Section = ("address", {"prefix": "multicast", "distribution": "multicast"})
INFO_LOG: Section = ("log", {"module": "DEFAULT", "enable": "info+"})


def router_section(workers: int = 1, name: str = "bench", mode: str = "standalone", **more: object) -> Section:
    """Return the section of the router itself. name: its id."""
    return _section("router", {"mode": mode, "id": name, "workerThreads": workers, **more})


def listener(name: str = "clients", **more: object) -> Section:
    """Return a listener on a free loopback port for clients that do not log in. more: attributes, which take
    precedence.
    """
    given = {"host": "127.0.0.1", "port": 0, "saslMechanisms": "ANONYMOUS"}
    return _section("listener", {"name": name, **given, **more})


def connector(port: int, **more: object) -> Section:
    """Return a connector to a loopback port."""
    return _section("connector", {"host": "127.0.0.1", "port": port, **more})


def _section(kind: str, attributes: Mapping[str, object]) -> Section:
    """Return a section without the attributes that are None."""
    return kind, {name: value for name, value in attributes.items() if value is not None}


def configuration_text(*sections: Section) -> str:
    """Return the text of these sections."""
    return render(sections)


def router_configuration(workers: int, capacity: int | None = None) -> str:
    """Return the configuration of a standalone router with one listener, and multicast under multicast/.

    capacity: linkCapacity of the listener; None: it adapts, as by default.
    """
    return configuration_text(router_section(workers), listener(linkCapacity=capacity), MULTICAST, INFO_LOG)

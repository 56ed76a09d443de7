"""Conversion of validated telemetry and placement entities to typed objects."""

from collections.abc import Iterable
from ipaddress import ip_network

from sluice.router.config.entities import ListenerConfig, PlacementConfig, TelemetryConfig
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity


def build_telemetry(entity: Entity, problems: Problems) -> TelemetryConfig:
    """Build the telemetry section. Whether its folder is usable is checked when telemetry starts."""
    path = entity.text("path")
    if not path or "\0" in path:
        problems.error(entity.line_of("path"), f"{entity.type.long_name}: path {path!r} is not a valid folder")
    interval, period = entity.number("interval"), entity.number("fileSeconds")
    if period < interval:
        text = f"fileSeconds is {period}, less than an interval of {interval} s"
        problems.error(entity.line_of("fileSeconds"), f"{entity.type.long_name}: {text}")
    return TelemetryConfig(
        name=entity.optional_text("name") or "telemetry",
        identity="telemetry/0",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        path=path,
        interval_seconds=interval,
        file_seconds=period,
        max_megabytes=entity.number("maxMegabytes"),
        keep_hours=entity.number("keepHours"),
        live=entity.flag("live"),
    )


def build_placement(entity: Entity, problems: Problems) -> PlacementConfig:
    """Build a placement. `check_placement` checks its listener and worker."""
    name = entity.text("name")
    listener, host = entity.optional_text("listener") or None, entity.optional_text("host") or None
    if listener is None and host is None:
        problems.error(entity.line, f"{entity.type.long_name}: listener or host must be given")
    if host is not None:
        try:
            ip_network(host)
        except ValueError as error:
            text = f"{entity.type.long_name}: host '{host}' is neither an address nor a network: {error}"
            problems.error(entity.line_of("host"), text)
    return PlacementConfig(
        name=name,
        identity=f"{entity.type.name}/{name}",
        named=True,
        line=entity.line or None,
        values=entity.values,
        listener=listener,
        host=host,
        worker=entity.number("worker"),
    )


def check_placement(
    placement: PlacementConfig, listeners: Iterable[EntityConfig], workers: int, entity: Entity, problems: Problems
) -> None:
    """Record an error for a placement with an unknown listener or worker."""
    names = {each.name for each in listeners if isinstance(each, ListenerConfig)}
    if placement.listener is not None and placement.listener not in names:
        problems.error(entity.line_of("listener"), f"Cannot find listener {placement.listener}")
    if placement.worker >= workers:
        text = f"{entity.type.long_name}: there is no worker {placement.worker}, only workers 0 to {workers - 1}"
        problems.error(entity.line_of("worker"), text)

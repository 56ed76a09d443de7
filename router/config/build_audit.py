"""Conversion of validated `audit` entities to typed objects."""

from sluice.router.config.entities import AuditConfig
from sluice.router.config.errors import Problems
from sluice.router.config.validate import Entity

FILE = "file"


def build_audit(entity: Entity, problems: Problems) -> AuditConfig:
    """Build an audit log. Whether its output is writable is checked when the log is opened."""
    output, path = entity.text("output"), entity.optional_text("path")
    kind = entity.type.long_name
    if output == FILE and (not path or "\0" in path):
        problems.error(entity.line_of("path"), f"{kind}: output {FILE} needs a path")
    if output != FILE and path is not None:
        problems.error(entity.line_of("path"), f"{kind}: path is only for output {FILE}, not {output}")
    name = entity.optional_text("name") or entity.type.name
    return AuditConfig(
        name=name,
        identity=f"{entity.type.name}/{name}",
        named="name" in entity.values,
        line=entity.line or None,
        values=entity.values,
        output=output,
        path=path,
        max_size=entity.number("maxSize"),
        keep=entity.number("keep"),
        max_queued=entity.number("maxQueued"),
        refuses=entity.text("onFull") == "refuse",
    )


def check_audit(audit: AuditConfig, others: list[AuditConfig], entity: Entity, problems: Problems) -> None:
    """Record an error for an audit log in the file of another one."""
    for other in others:
        if audit.path is not None and audit.path == other.path:
            text = f"'{audit.path}' is already the file of '{other.name}'"
            problems.error(entity.line_of("path"), f"{entity.type.long_name}: {text}")

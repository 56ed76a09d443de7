"""Entities telemetry and placement: values, and errors with their lines."""

import pytest

from sluice.router.config.errors import ConfigError
from sluice.router.config.load import load_text

# nine lines, counting the one that follows
BASE = "router {\n  id: R\n  workerThreads: 2\n}\nlistener {\n  name: in\n  port: 0\n}\n"


def load(section, *lines):
    return load_text("x.conf", BASE + f"{section} {{\n" + "".join(f"  {line}\n" for line in lines) + "}\n")


def test_telemetry_attributes_are_read():
    (found,) = load("telemetry", "path: /data", "interval: 5").of_type("telemetry")
    assert (found.path, found.interval_seconds, found.file_seconds) == ("/data", 5, 60)
    assert (found.max_megabytes, found.keep_hours, found.live) == (1024, 48, True)


@pytest.mark.parametrize(
    ("section", "lines", "line", "text"),
    [
        ("telemetry", ("interval: 5",), 9, "Missing required attribute 'path'"),
        ("telemetry", ("path: /d", "interval: 0"), 11, "between 1 and 3600"),
        ("telemetry", ("path: /d", "fileSeconds: 5", "interval: 20"), 11, "less than an interval of 20 s"),
        ("telemetry", ("path: /d", "}", "telemetry {", "path: /e"), 12, "duplicates unique attribute"),
        ("placement", ("name: p", "worker: 1"), 9, "listener or host must be given"),
        ("placement", ("name: p", "worker: 1", "listener: out"), 12, "Cannot find listener out"),
        ("placement", ("name: p", "worker: 2", "listener: in"), 11, "there is no worker 2, only workers 0 to 1"),
        ("placement", ("name: p", "worker: 1", "host: nowhere"), 12, "neither an address nor a network"),
    ],
)
def test_invalid_section_is_refused_with_line(section, lines, line, text):
    with pytest.raises(ConfigError) as caught:
        load(section, *lines)
    assert [(error.line, text in error.message) for error in caught.value.errors] == [(line, True)]


def test_placement_attributes_are_read():
    (found,) = load("placement", "name: p", "worker: 1", "listener: in", "host: 10.0.0.0/8").of_type("placement")
    assert (found.listener, found.host, found.worker) == ("in", "10.0.0.0/8", 1)

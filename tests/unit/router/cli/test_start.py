"""Start of a router: configuration, log and library directory."""

import re
from pathlib import Path

import pytest

from sluice.router.cli.default_config import DEFAULT_CONFIGS, EXAMPLE, default_config
from tests.unit.source_files import ROOT

pytestmark = pytest.mark.starts


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none", "Cannot find Python library path 'none': No such file or directory"),
        ("good.conf", "Run Time: Python library path 'good.conf' not a directory"),
    ],
)
def test_include_path_must_be_a_directory(shell, path, message):
    done = shell("qdrouterd", "-c", "good.conf", "-I", path)
    assert (done.returncode, done.stderr) == (1, f"bin/qdrouterd: {message}\n")


@pytest.mark.skipif(any(Path(path).exists() for path in DEFAULT_CONFIGS), reason="this machine has a configuration")
def test_default_configuration_must_exist(shell):
    done = shell("qdrouterd")
    assert done.returncode == 1
    assert f"ERROR (error) {DEFAULT_CONFIGS[0]}: the configuration file cannot be opened" in done.stderr


@pytest.mark.skipif(any(Path(path).exists() for path in DEFAULT_CONFIGS), reason="this machine has a configuration")
def test_run_without_configuration_starts_example(shell):
    done = shell("sluice", "run")
    assert done.stderr.splitlines()[:3] == [
        f"No configuration file: neither {' nor '.join(DEFAULT_CONFIGS)} exists, and there is no option -c.",
        f"Starting with the example {EXAMPLE}, for clients on this machine.",
        "In another terminal, `sluice hello` sends a first message through it.",
    ]
    assert shell.recorded()["id"] == "Standalone"


@pytest.mark.parametrize(
    ("present", "found"), [((0, 1, 2), 0), ((1, 2), 1), ((2,), 2), ((), 0)], ids=["own", "dispatch", "package", "none"]
)
def test_default_configuration_is_the_first_that_exists(monkeypatch, present, found):
    monkeypatch.setattr("os.path.exists", {DEFAULT_CONFIGS[number] for number in present}.__contains__)
    assert default_config() == DEFAULT_CONFIGS[found]


def test_example_is_the_standalone_configuration():
    assert Path(EXAMPLE).read_text() == (ROOT / "conf" / "standalone.conf").read_text()


@pytest.mark.parametrize("command", [["qdrouterd"], ["sluice", "run"]])
def test_invalid_configuration_is_reported(shell, command):
    done = shell(*command, "-c", "bad.conf")
    assert (done.returncode, done.stdout) == (1, "")
    long_name = "org.apache.qpid.dispatch.router"
    unknown = f"{long_name}: Unknown attribute 'nonsense' for '{long_name}' (line 3)"
    hostless = "org.apache.qpid.dispatch.authServicePlugin: the host of the service must be given"
    place = "Python: Exception: Cannot load configuration file bad.conf:"
    lines = done.stderr.splitlines()
    stamp = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6} [+-]\d{4} "
    assert [re.sub(stamp, "", line) for line in lines] == [
        f"ERROR (error) {place} {unknown}",
        f"ERROR (error) {place} {hostless} (line 5)",
        f"MAIN (critical) Router start-up failed: {place} {unknown}",
        f"bin/{command[0]}: {place} {unknown}",
    ]


def test_warnings_of_invalid_configuration_are_reported(shell):
    """Deprecations are reported even if another error ends the start."""
    text = "router {\n    saslConfigPath: /etc\n    id: a b\n}\n"
    (shell.folder / "old.conf").write_text(text)
    done = shell("qdrouterd", "-c", "old.conf")
    assert done.returncode == 1
    told = "Attribute 'saslConfigPath' of entity 'router' has been deprecated. Use 'saslConfigDir' instead (old.conf:2)"
    assert f"AGENT (warning) {told}" in done.stderr
    assert done.stderr.index(told) < done.stderr.index("ERROR (error)")
    last = done.stderr.splitlines()[-1]
    wrong = "Router id attribute containing character ' ' in id 'a b' is disallowed. (line 3)"
    assert last == f"bin/qdrouterd: Python: AttributeError: {wrong}"


def test_unreadable_configuration_file_is_reported(shell):
    done = shell("qdrouterd", "-c", "none.conf")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "bin/qdrouterd: Not found: Configuration file could not be opened"
    assert "none.conf: the configuration file cannot be opened: No such file or directory" in done.stderr


def test_empty_configuration_file_is_refused(shell):
    (shell.folder / "empty.conf").touch()
    done = shell("qdrouterd", "-c", "empty.conf")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "bin/qdrouterd: Configuration: Configuration file was empty"


def test_unwritable_log_file_is_reported(shell):
    (shell.folder / "log.conf").write_text("log {\n  module: AGENT\n  outputFile: /nonexistent/x\n}\n")
    done = shell("qdrouterd", "-c", "log.conf")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 3
    text = "Python: CError: Configuration: Failed to open log file '/nonexistent/x'"
    assert lines[-1] == f"bin/qdrouterd: {text}"
    assert lines[1].endswith(f"MAIN (critical) Router start-up failed: {text}")


def test_log_settings_of_the_configuration_are_used(shell):
    text = "log {\n  module: DEFAULT\n  outputFile: x.log\n  includeTimestamp: no\n}\n"
    (shell.folder / "log.conf").write_text(text)
    done = shell("qdrouterd", "-c", "log.conf")
    assert (done.returncode, done.stderr) == (7, "")
    assert (shell.folder / "x.log").read_text() == "SERVER (notice) Operational\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [((), None), (("--take-over",), 0), (("--take-over", "712"), 712), (("--take-over=712",), 712)],
)
def test_option_take_over_is_passed_with_its_process(shell, words, expected):
    shell("sluice", "run", "-c", "good.conf", *words)
    assert shell.recorded()["take_over"] == expected


@pytest.mark.parametrize("process", ["0", "x", "-1", "99999999999"])
def test_option_take_over_with_bad_process_is_refused(shell, process):
    done = shell("sluice", "run", "-c", "good.conf", f"--take-over={process}")
    assert done.returncode == 2
    assert f"'{process}' is not a process id" in done.stderr

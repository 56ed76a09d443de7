"""Commands as run from a shell: output, exit codes, arguments of the supervisor, and detached mode."""

import json
import os
import pwd
import re
import select
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from router.cli.start import DEFAULT_CONFIGS
from router.version import VERSION
from tests.other_user import modules, program_out_of_reach, python_for

ROOT = Path(__file__).parents[4]
pytestmark = pytest.mark.starts

# Supervisor that records its arguments and exits. The commands need nothing else of the real one.
RECORDER = """
import json, os
def run(configuration, log, *, program, test_hooks, become):
    log.notice("SERVER", "Operational")
    record = {"id": configuration.router.id, "program": program, "hooks": test_hooks, "pid": os.getpid(),
              "session": os.getsid(0), "directory": os.getcwd(), "stdin": os.readlink("/proc/self/fd/0"),
              "user": os.getuid(), "descriptors": len(os.listdir("/proc/self/fd"))}
    with open(os.environ["RECORD"] + ".new", "w") as file:
        json.dump(record, file)
    os.rename(os.environ["RECORD"] + ".new", os.environ["RECORD"])
    return 7
"""


class CommandRunner:
    """Runs a command in its own directory, with the recording supervisor."""

    def __init__(self, folder):
        self.folder = folder
        self.python, self.path = sys.executable, []
        self.record = folder / "record"
        package = folder / "lib" / "supervisor"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "main.py").write_text(RECORDER)
        (folder / "good.conf").write_text("router {\n  id: A\n}\n")
        (folder / "bad.conf").write_text("router {\n  id: A\n  nonsense: 1\n}\nauthServicePlugin {\n  name: x\n}\n")

    def __call__(self, command, *words):
        module = {"sluice": "main", "qdrouterd": "qdrouterd"}[command]
        program = f"import sys; sys.argv[0] = 'bin/{command}'; from router.cli.{module} import main; sys.exit(main())"
        path = os.pathsep.join([str(self.folder / "lib"), str(ROOT), *self.path])
        return subprocess.run(
            [self.python, "-c", program, *words],
            env={**os.environ, "PYTHONPATH": path, "RECORD": str(self.record)},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def recorded(self):
        return json.loads(self.record.read_text())


@pytest.fixture
def shell(tmp_path):
    return CommandRunner(tmp_path)


@pytest.mark.parametrize("words", [["-v"], ["--version"], ["--ver"], ["-Tv", "--nonsense"], ["x", "-v"]])
def test_qdrouterd_version_option_prints_version(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


@pytest.mark.parametrize("words", [["-h"], ["--help"], ["-h", "anything"], ["-h", "-c"]])
def test_qdrouterd_help_lists_options(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[:2] == ["Usage: bin/qdrouterd [OPTIONS]", ""]
    options = [line[2:].split("=")[0].split("  ")[0] for line in lines[2:]]
    assert options == [
        "-c, --config", "-I, --include", "-d, --daemon", "-P, --pidfile", "-U, --user", "-T, --test-hooks",
        "-v, --version", "-h, --help",
    ]  # fmt: skip
    assert "(/" in lines[2]
    assert "(/" in lines[3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-x"], "bin/qdrouterd: invalid option -- 'x'"),
        (["-Tx"], "bin/qdrouterd: invalid option -- 'x'"),
        (["-c"], "bin/qdrouterd: option requires an argument -- 'c'"),
        (["--config"], "bin/qdrouterd: option '--config' requires an argument"),
        (["--nonsense"], "bin/qdrouterd: unrecognized option '--nonsense'"),
        (["--daemon=x"], "bin/qdrouterd: option '--daemon' doesn't allow an argument"),
        (["a", "-T", "b"], "Unexpected arguments: a b\n"),
        (["--", "-v"], "Unexpected arguments: -v\n"),
    ],
)
def test_qdrouterd_with_invalid_options_is_refused(shell, words, message):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stderr) == (1, f"{message}\n")
    assert done.stdout.startswith("Usage: bin/qdrouterd [OPTIONS]\n")


@pytest.mark.parametrize(
    "words",
    [["-c", "good.conf"], ["-cgood.conf"], ["--config", "good.conf"], ["--config=good.conf"], ["--conf=good.conf"]],
)
def test_qdrouterd_passes_configuration_to_supervisor(shell, words):
    done = shell("qdrouterd", *words)
    assert (done.returncode, done.stdout) == (7, "")
    assert done.stderr.endswith(" SERVER (notice) Operational\n")
    recorded = shell.recorded()
    assert (recorded["id"], recorded["program"], recorded["hooks"]) == ("A", "bin/qdrouterd", False)


def test_hooks_option_is_passed_without_daemon(shell):
    done = shell("qdrouterd", "-c", "good.conf", "-T", "-P", "pid", "-U", "nobody-here", "-I", ".")
    assert done.returncode == 7
    assert shell.recorded()["hooks"] is True
    assert not (shell.folder / "pid").exists()


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


def wait_for_record(shell, done):
    """Return the record of the detached router, which may still run after its parent has exited."""
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pid = int((shell.folder / "pid").read_text())
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return shell.recorded()
    try:
        assert select.select([descriptor], [], [], 60)[0], "the detached router did not end"
    finally:
        os.close(descriptor)
    return shell.recorded()


@pytest.mark.parametrize("command", [["qdrouterd"], ["sluice", "run"]])
def test_daemon_writes_pidfile_and_detaches(shell, command):
    pidfile = shell.folder / "pid"
    done = shell(*command, "-d", "-c", "good.conf", "-P", str(pidfile))
    recorded = wait_for_record(shell, done)
    assert pidfile.read_text() == f"{recorded['pid']}\n"
    assert stat.S_IMODE(pidfile.stat().st_mode) == 0o666
    assert recorded["session"] not in (os.getsid(0), recorded["pid"])
    assert (recorded["directory"], recorded["stdin"]) == ("/", "/dev/null")
    assert recorded["descriptors"] <= 4  # null device three times, and the listed directory


def test_daemon_with_invalid_configuration_fails(shell):
    pidfile = shell.folder / "pid"
    done = shell("qdrouterd", "-d", "-c", "bad.conf", "-P", str(pidfile))
    assert done.returncode == 1
    path = shell.folder / "bad.conf"
    assert done.stderr.startswith(f"bin/qdrouterd: Python: Exception: Cannot load configuration file {path}: ")
    assert done.stderr.count("\n") == 1
    assert pidfile.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-P", "/nonexistent/pid"], "Can't write pidfile /nonexistent/pid"),
        (["-U", "nobody-has-this-name"], "Can't look up user nobody-has-this-name"),
    ],
)
def test_daemon_that_cannot_start_reports_reason(shell, words, message):
    done = shell("qdrouterd", "-d", "-c", "good.conf", *words)
    assert (done.returncode, done.stderr) == (1, f"bin/qdrouterd: {message}\n")
    assert not shell.record.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can switch users")
def test_daemon_switches_user():
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # other users may not enter pytest's folders
        folder = Path(name)
        folder.chmod(0o777)
        shell = CommandRunner(folder)
        shell.python, shell.path = python_for("nobody"), [modules()]
        done = shell("qdrouterd", "-d", "-c", "good.conf", "-P", str(folder / "pid"), "-U", "nobody")
        assert wait_for_record(shell, done)["user"] == pwd.getpwnam("nobody").pw_uid


def test_daemon_user_that_cannot_run_router_is_refused(shell):
    program_out_of_reach("nobody")  # skips the test if every user can run it
    done = shell("qdrouterd", "-d", "-c", "good.conf", "-U", "nobody")
    assert done.returncode == 1
    reason = "that user cannot run the router: the user may not enter /"
    assert f"bin/qdrouterd: Can't become user nobody: {reason}" in done.stderr
    assert not shell.record.exists()


def test_sluice_version_prints_version(shell):
    done = shell("sluice", "version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{VERSION}\n", "")


def test_sluice_check_reports_errors_and_warnings(shell):
    (shell.folder / "odd.conf").write_text("address {\n}\n")
    done = shell("sluice", "check", "good.conf")
    assert (done.returncode, done.stdout, done.stderr) == (0, "good.conf: ok\n", "")
    done = shell("sluice", "check", "good.conf", "bad.conf", "none.conf", "odd.conf")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "good.conf: ok",
        "bad.conf: 2 errors",
        "none.conf: 1 error",
        "odd.conf: ok, 1 warning",
    ]
    long_name = "org.apache.qpid.dispatch.router"
    assert done.stderr.splitlines() == [
        f"bad.conf:3: {long_name}: Unknown attribute 'nonsense' for '{long_name}'",
        "bad.conf:5: org.apache.qpid.dispatch.authServicePlugin: the host of the service must be given",
        "none.conf: the configuration file cannot be opened: No such file or directory",
        "warning: Must set either 'prefix' or 'pattern' attribute: ignoring configured address (odd.conf:1)",
    ]


def test_sluice_check_reports_warnings_of_invalid_file(shell):
    (shell.folder / "bad.json").write_text('[\n["router", {"debugDumpFile": "/x"}],\n["log", {"module": "SERVR"}]\n]')
    done = shell("sluice", "check", "bad.json")
    assert (done.returncode, done.stdout) == (1, "bad.json: 1 error, 1 warning\n")
    error, warning = done.stderr.splitlines()
    assert error.startswith("bad.json:3: org.apache.qpid.dispatch.log: Invalid value for enum['ROUTER', 'ROUTER_CORE',")
    assert error.endswith("'SERVR' (attribute 'module')")
    assert warning == "warning: Attribute 'debugDumpFile' of entity 'router' has no effect in this version (bad.json:2)"


TENANTS = """listener {
    name: tenants
    port: 5672
    multiTenant: yes
}
vhost {
    hostname: red/inner
}
"""


def test_sluice_check_reports_dangerous_settings(shell):
    (shell.folder / "tenants.conf").write_text(TENANTS)
    tenants = "multiTenant does not isolate tenants, since clients choose their own; set enableVhostPolicy: yes"
    slash = "clients of multiTenant listeners never get this vhost, because its name has a slash"
    worst = [
        f"danger: listener 'tenants': {tenants} (tenants.conf:1)",
        f"danger: vhost 'red/inner': {slash} (tenants.conf:6)",
    ]
    done = shell("sluice", "check", "tenants.conf")
    assert (done.returncode, done.stdout) == (0, "tenants.conf: ok, 2 dangers\n")
    assert done.stderr.splitlines() == worst
    done = shell("sluice", "check", "--strict", "tenants.conf")
    assert done.returncode == 1
    found = done.stderr.splitlines()
    assert set(worst) < set(found)
    assert any("clients need not log in" in line and "(tenants.conf:1)" in line for line in found)
    done = shell("sluice", "check", "--strict", str(ROOT / "conf" / "standalone.conf"))
    assert (done.returncode, done.stderr) == (0, "")


def test_sluice_check_accepts_example_configuration(shell):
    done = shell("sluice", "check", str(ROOT / "conf" / "standalone.conf"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [[], ["nonsense"], ["check"], ["run", "x"]])
def test_sluice_with_invalid_arguments_prints_usage(shell, words):
    done = shell("sluice", *words)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: sluice")


def test_help_lists_tools(shell):
    done = shell("sluice", "--help")
    assert done.returncode == 0
    for tool in ("stat", "manage", "top", "explain", "trace", "reload"):
        assert re.search(rf"^ +{tool} ", done.stdout, re.MULTILINE)
        help_text = shell("sluice", tool, "--help")
        assert (help_text.returncode, help_text.stderr) == (0, "")
        assert help_text.stdout.startswith(f"usage: sluice {tool} ")
        assert shell("sluice", tool, "--version").stdout == f"{VERSION}\n"


def test_router_commands_load_no_client_libraries(shell):
    """The commands that run a router, and the list of commands, load no libraries of the tools."""
    modules = "router.cli.main, router.cli.qdrouterd, supervisor.main, workers.main"
    program = f"import sys; import {modules}; print(sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    ).stdout
    assert "'router.cli.main'" in loaded
    assert "'proton'" not in loaded
    assert "'rich'" not in loaded

"""`sluice check`: errors, warnings and dangers of configuration files."""

import pytest

from sluice.router import json_codec
from tests.unit.router.cli.commands import ROOT

pytestmark = pytest.mark.starts


def test_sluice_check_reports_errors_and_warnings(shell):
    (shell.folder / "odd.conf").write_text("address {\n}\nlistener {\n  host: localhost\n}\n")
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


ABSENT = """listener {
    host: localhost
    sslProfile: p
    saslUsers: u
}
sslProfile {
    name: p
    certFile: /no/such/file
    password: env:NO_SUCH_VARIABLE
}
saslUsers {
    name: u
    file: /no/such/file
}
policy {
    policyDir: /no/such/directory
}
"""


def test_sluice_check_without_files_accepts_configuration_of_another_machine(shell):
    (shell.folder / "absent.conf").write_text(ABSENT)
    done = shell("sluice", "check", "absent.conf")
    assert (done.returncode, done.stdout) == (1, "absent.conf: 3 errors\n")
    done = shell("sluice", "check", "--no-files", "absent.conf")
    assert (done.returncode, done.stdout, done.stderr) == (0, "absent.conf: ok\n", "")


def test_sluice_check_prints_results_as_json(shell):
    (shell.folder / "odd.conf").write_text("address {\n}\nlistener {\n  host: 0.0.0.0\n}\n")
    done = shell("sluice", "check", "--json", "odd.conf", "bad.conf", "none.conf")
    assert (done.returncode, done.stderr) == (1, "")
    odd, bad, none = json_codec.decode(done.stdout)
    assert [result["valid"] for result in (odd, bad, none)] == [True, False, False]
    assert (odd["warnings"][0]["file"], odd["warnings"][0]["line"]) == ("odd.conf", 1)
    assert odd["warnings"][0]["text"].startswith("Must set either 'prefix' or 'pattern'")
    assert odd["dangers"][0]["line"] == 3
    assert [error["line"] for error in bad["errors"]] == [3, 5]
    assert none["errors"][0]["line"] is None


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
    login = "clients need not log in; set authenticatePeer: yes, with saslUsers, tokenIssuers or certificates"
    worst = [
        f"danger: listener 'tenants': {tenants} (tenants.conf:1)",
        f"danger: listener 'tenants': {login} (tenants.conf:1)",
        f"danger: vhost 'red/inner': {slash} (tenants.conf:6)",
    ]
    done = shell("sluice", "check", "tenants.conf")
    assert (done.returncode, done.stdout) == (0, "tenants.conf: ok, 1 warning, 3 dangers\n")
    assert done.stderr.splitlines()[1:] == worst
    done = shell("sluice", "check", "--strict", "tenants.conf")
    assert done.returncode == 1
    found = done.stderr.splitlines()
    assert set(worst) < set(found)
    assert any("messages may be sent unencrypted" in line and "(tenants.conf:1)" in line for line in found)
    done = shell("sluice", "check", "--strict", str(ROOT / "conf" / "standalone.conf"))
    assert (done.returncode, done.stderr) == (0, "")


def test_sluice_check_accepts_example_configuration(shell):
    done = shell("sluice", "check", str(ROOT / "conf" / "standalone.conf"))
    assert (done.returncode, done.stderr) == (0, "")

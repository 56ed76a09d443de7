"""`sluice check` of sslProfiles: each fault is reported with file, line and reason."""

import pytest

from sluice.router.cli.check import check
from tests.peer.pki import pki


@pytest.fixture(scope="module")
def certs(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp())


def checked(tmp_path, capsys, text):
    path = tmp_path / "x.conf"
    path.write_text(text)
    status = check([str(path)])
    out, err = capsys.readouterr()
    return status, out.replace(str(path), "x.conf"), err.replace(str(path), "x.conf").splitlines()


def test_valid_profile_is_accepted(certs, tmp_path, capsys):
    text = f"sslProfile {{\nname: p\ncertFile: {certs.server.certificate}\nprivateKeyFile: {certs.server.key}\n}}\n"
    assert checked(tmp_path, capsys, text + "listener {\nhost: localhost\nsslProfile: p\n}\n") == (
        0,
        "x.conf: ok\n",
        [],
    )


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("ciphers: ECDHE+AESGCM\n", True),
        ("ciphers: ECDHE+AESGCM\nprotocols: TLSv1.2\n", False),
        ("protocols: TLSv1.3\n", False),
    ],
)
def test_profile_with_ciphers_without_protocols_gives_warning(certs, tmp_path, capsys, more, named):
    """Dispatch allowed TLS 1.0 and 1.1 for such profiles."""
    text = (
        f"sslProfile {{\nname: p\ncertFile: {certs.server.certificate}\nprivateKeyFile: {certs.server.key}\n{more}}}\n"
    )
    status, out, lines = checked(tmp_path, capsys, text + "listener {\nhost: localhost\nsslProfile: p\n}\n")
    assert (status, out) == (0, "x.conf: ok, 1 warning\n" if named else "x.conf: ok\n")
    assert (
        lines
        == [
            "warning: sslProfile 'p': it has ciphers and no protocols: TLS 1.2 and 1.3 are used, but not 1.0 and 1.1, "
            "which Dispatch allowed"
        ]
        * named
    )


def test_profile_faults_are_reported_with_line(certs, tmp_path, capsys):
    text = (
        f"sslProfile {{\nname: p\ncertFile: {certs.server.certificate}\nprivateKeyFile: {certs.client.key}\n"
        "uidFormat: n\nuidNameMappingFile: /none\npassword: secret\n}\n"
        "listener {\nhost: localhost\nsslProfile: p\n}\nconnector {\nname: c\nsslProfile: q\n}\n"
        "authServicePlugin {\nname: s\nhost: h\nsslProfile: q\n}\n"
    )
    status, out, lines = checked(tmp_path, capsys, text)
    assert (status, out) == (1, "x.conf: 4 errors, 2 warnings\n")
    assert lines == [
        f"x.conf:4: sslProfile 'p': privateKeyFile {certs.client.key}: key values mismatch",
        "x.conf:6: sslProfile 'p': uidNameMappingFile /none: No such file or directory",
        "x.conf:13: connector 'c': there is no sslProfile 'q'",
        "x.conf:17: authServicePlugin 's': there is no sslProfile 'q'",
        "warning: It is unsafe to provide plain text passwords in the config file",
        "warning: authServicePlugin 's' is not used: no listener names it (x.conf:17)",
    ]

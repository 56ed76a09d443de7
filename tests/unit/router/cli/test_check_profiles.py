"""`sluice check` on sslProfiles: each fault with the file, the line, and the reason."""

import pytest

from router.cli.check import check
from tests.peer.pki import pki


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return pki(tmp_path_factory.getbasetemp())


def checked(tmp_path, capsys, text):
    path = tmp_path / "x.conf"
    path.write_text(text)
    status = check([str(path)])
    out, err = capsys.readouterr()
    return status, out.replace(str(path), "x.conf"), err.replace(str(path), "x.conf").splitlines()


def test_all_is_well(made, tmp_path, capsys):
    text = f"sslProfile {{\nname: p\ncertFile: {made.server.certificate}\nprivateKeyFile: {made.server.key}\n}}\n"
    assert checked(tmp_path, capsys, text + "listener {\nsslProfile: p\n}\n") == (0, "x.conf: ok\n", [])


def test_faults(made, tmp_path, capsys):
    text = (
        f"sslProfile {{\nname: p\ncertFile: {made.server.certificate}\nprivateKeyFile: {made.client.key}\n"
        "uidFormat: n\nuidNameMappingFile: /none\npassword: secret\n}\n"
        "listener {\nsslProfile: p\n}\nconnector {\nname: c\nsslProfile: q\n}\n"
        "authServicePlugin {\nname: s\nhost: h\nsslProfile: q\n}\n"
    )
    status, out, lines = checked(tmp_path, capsys, text)
    assert (status, out) == (1, "x.conf: 4 errors, 1 warning\n")
    assert lines == [
        f"x.conf:4: sslProfile 'p': privateKeyFile {made.client.key}: key values mismatch",
        "x.conf:6: sslProfile 'p': uidNameMappingFile /none: No such file or directory",
        "x.conf:12: connector 'c': there is no sslProfile 'q'",
        "x.conf:16: authServicePlugin 's': there is no sslProfile 'q'",
        "warning: It is unsafe to provide plain text passwords in the config file",
    ]

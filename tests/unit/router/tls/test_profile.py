"""Files of an sslProfile: their contents and faults (security.md T-1 to T-3, T-11, T-12, T-25)."""

import json
import re
import time

import pytest

from sluice.router.config.load import load_text
from sluice.router.tls.context import SERVER_CIPHERS, default_ciphers
from sluice.router.tls.profile import CredentialUse, credential_uses_of, files_of, read_profile
from tests.peer.pki import KEY_PASSWORD, pki

SERVER = CredentialUse(server=True, verify_peer=False)
STRICT = CredentialUse(server=True, verify_peer=True)
CLIENT = CredentialUse(server=False, verify_peer=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    found = pki(tmp_path_factory.getbasetemp())
    found.locked_key()  # so that no test starts a process
    return found


@pytest.fixture(scope="module")
def revoked(authority):
    return authority.revocations().decode()


def profile(**attributes):
    lines = "".join(f"{name}: {value}\n" for name, value in attributes.items())
    return load_text("x.conf", f"sslProfile {{\nname: p\n{lines}}}\n").ssl_profiles[0]


def server(authority, **attributes):
    return profile(**{"certFile": authority.server.certificate, "privateKeyFile": authority.server.key, **attributes})


def faults(config, *uses):
    return [str(fault) for fault in read_profile(config, uses).faults]


def test_valid_profile_has_no_faults(authority):
    found = read_profile(server(authority, caCertFile=authority.trusted), [SERVER, STRICT, CLIENT])
    assert (found.faults, found.names, found.names_fault, found.remarks) == ([], None, None, [])
    assert found.credentials.certificates == authority.server.certificate.read_text()
    assert found.credentials.key == authority.server.key.read_text()
    assert found.credentials.trusted == authority.trusted.read_text()
    assert found.expires is not None
    assert abs(found.expires - time.time() - 365 * 86400) < 86400
    assert "PRIVATE" not in repr(found)


def test_digest_depends_on_contents(authority, tmp_path):
    copy = tmp_path / "copy.pem"
    copy.write_bytes(authority.server.certificate.read_bytes())
    digests = [
        read_profile(config, [SERVER]).digest
        for config in (
            server(authority),
            server(authority, certFile=copy),
            server(authority, ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"),
        )
    ]
    assert digests[0] == digests[1] != digests[2]


def test_certificate_and_key_may_share_a_file(authority, tmp_path):
    both = tmp_path / "both.pem"
    both.write_bytes(authority.server.certificate.read_bytes() + authority.server.key.read_bytes())
    both.chmod(0o600)
    assert faults(profile(certFile=both), SERVER) == []


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({"certFile": "/none"}, "certFile /none: No such file or directory"),
        ({"privateKeyFile": "/none"}, "privateKeyFile /none: No such file or directory"),
        ({"caCertFile": "/none"}, "caCertFile /none: No such file or directory"),
        ({"certFile": "/dev/null"}, "certFile /dev/null: Not a regular file"),
        ({"ciphers": "nonsense"}, "ciphers nonsense: no cipher match"),
        ({"protocols": "TLSv1.2 SSLv9"}, "protocols TLSv1.2 SSLv9: 'SSLv9' is none of "),
    ],
)
def test_profile_fault_is_reported(authority, attributes, fault):
    for use in (SERVER, CLIENT):
        (found,) = faults(server(authority, **attributes), use)
        assert found.startswith(fault)


def test_key_of_other_certificate_is_fault(authority):
    (fault,) = faults(server(authority, privateKeyFile=authority.client.key), SERVER)
    assert fault == f"privateKeyFile {authority.client.key}: key values mismatch"


def test_damaged_trusted_file_is_fault(authority, revoked, tmp_path):
    """An unreadable revocation list must not count as absent."""
    good, path = authority.trusted.read_text(), tmp_path / "trusted.pem"
    for text in (
        good + revoked[: len(revoked) // 2],
        good + revoked.replace(revoked.splitlines()[3][:8], "!!!!!!!!"),
        good + revoked.replace(revoked.splitlines()[1], "AAAA" * 16),
        good + good.replace("-----END CERTIFICATE", "-----END CRTIFICATE"),
    ):
        path.write_text(text)
        for use in (SERVER, CLIENT):
            (fault,) = faults(server(authority, caCertFile=path), use)
            assert fault.startswith(f"caCertFile {path}: ")
    path.write_text(good + revoked + "and a remark\n")
    assert faults(server(authority, caCertFile=path), SERVER, STRICT, CLIENT) == []
    path.write_text(authority.server.certificate.read_text() + good[:200])
    (fault,) = faults(server(authority, certFile=path), SERVER)
    assert fault.startswith(f"certFile {path}: ")


def test_unknown_uid_format_letter_gives_remark(authority):
    """The letter is no fault: users get their whole name (security.md T-21)."""
    found = read_profile(server(authority, uidFormat="on,"), [SERVER])
    assert found.faults == []
    assert found.remarks == [
        (
            "CONN_MGR",
            "warning",
            "sslProfile 'p': Unrecognized component ',' in uidFormat: users get the whole subject as name",
        )
    ]
    assert read_profile(server(authority, uidFormat="csloun125die"), [SERVER]).remarks == []


def test_key_file_without_key_is_fault(authority):
    (fault,) = faults(profile(certFile=authority.server.certificate), SERVER)
    assert fault == f"privateKeyFile {authority.server.certificate}: there is no private key"


def test_server_needs_certificate_and_trust(authority):
    assert faults(profile(), CLIENT) == []
    assert faults(profile(), SERVER) == ["certFile: there is no certificate"]
    (fault,) = faults(server(authority), SERVER, STRICT)
    assert fault.startswith("caCertFile: ")


def test_old_attribute_names_are_accepted(authority):
    config = server(authority)
    old = profile(certDb=authority.trusted, keyFile=authority.server.key, displayNameFile="/names")
    assert (old.key_file, old.trusted_file, old.uid_mapping_file) == (config.key_file, str(authority.trusted), "/names")


@pytest.mark.parametrize("form", ["{}", "pass:{}", "literal:{}", "env:SLUICE_TEST_KEY", "file:/password"])
def test_password_of_key_is_found(authority, tmp_path, monkeypatch, form):
    monkeypatch.setenv("SLUICE_TEST_KEY", KEY_PASSWORD)
    (tmp_path / "password").write_text(KEY_PASSWORD + "\nnot this\n")
    text = form.format(KEY_PASSWORD).replace("file:", f"file:{tmp_path}")
    config = server(authority, privateKeyFile=authority.locked_key(), password=text)
    assert faults(config, SERVER) == []
    unsafe = "It is unsafe to provide plain text passwords in the config file"
    remarks = [text for _, _, text in read_profile(config, [SERVER]).remarks]
    assert remarks == ([] if form.startswith(("env", "file")) else [unsafe])
    assert KEY_PASSWORD not in repr(config) or form.startswith("env")


def test_locked_key_without_password_is_fault(authority):
    (fault,) = faults(server(authority, privateKeyFile=authority.locked_key()), SERVER)
    assert fault == f"privateKeyFile {authority.locked_key()}: it is encrypted, and no password is given"


def test_locked_key_with_wrong_password_is_fault(authority):
    # Enough attempts for a wrong password to decrypt the key to something that looks valid.
    key = authority.locked_key()
    said = {tuple(faults(server(authority, privateKeyFile=key, password=f"wrong{i}"), SERVER)) for i in range(700)}
    assert said == {(f"privateKeyFile {key}: the given password does not decrypt it",)}


def test_password_file_opens_key(authority, tmp_path):
    path = tmp_path / "password"
    path.write_text(KEY_PASSWORD)
    config = server(authority, privateKeyFile=authority.locked_key(), passwordFile=path)
    assert faults(config, SERVER) == []
    assert str(path) in files_of(config)


def test_missing_password_file_gives_remark(authority):
    found = read_profile(server(authority, password="file:/none"), [SERVER])
    text = "Unable to open password file /none, error: No such file or directory"
    assert (found.remarks, found.faults) == ([("CONN_MGR", "error", text)], []), "the key needs none"


def test_key_readable_by_others_gives_remark(authority, tmp_path):
    key = tmp_path / "key"
    key.write_bytes(authority.server.key.read_bytes())
    key.chmod(0o640)
    (remark,) = read_profile(server(authority, privateKeyFile=key), [SERVER]).remarks
    assert remark == ("CONN_MGR", "warning", f"Private key {key} can be read by others (mode 0640)")


@pytest.mark.parametrize(
    ("text", "names"),
    [('{"a": "alice"}', {"a": "alice"}), ("[]", None), ('{"a": 1}', None), ("{", None), ("[" * 100_000, None)],
)
def test_name_mapping_file_is_read(tmp_path, text, names):
    path = tmp_path / "names.json"
    path.write_text(text)
    found = read_profile(profile(uidFormat="n", uidNameMappingFile=path), [CLIENT])
    assert found.names == names
    assert (found.names_fault is None) == (names is not None)


def test_uses_of_profile_are_collected():
    text = (
        "sslProfile {\nname: p\n}\nlistener {\nport: 1\nsslProfile: p\nsaslMechanisms: EXTERNAL ANONYMOUS\n}\n"
        "listener {\nport: 2\nsslProfile: p\n}\nlistener {\nport: 3\n}\nconnector {\nsslProfile: q\n}\n"
    )
    assert credential_uses_of(load_text("x.conf", text)) == {"p": {SERVER, STRICT}, "q": {CLIENT}}


def test_password_variable_that_is_unset_is_refused(monkeypatch):
    monkeypatch.delenv("SLUICE_TEST_KEY", raising=False)
    with pytest.raises(Exception, match="x.conf:3: Failed to find a password in the environment variable"):
        profile(password="env:SLUICE_TEST_KEY")


def test_contents_are_hidden_in_repr(authority):
    assert json.dumps(KEY_PASSWORD) not in repr(read_profile(server(authority, password=KEY_PASSWORD), [SERVER]))


def test_default_ciphers_depend_on_protocols():
    """Versions that work only with other ciphers than the usual ones get OpenSSL's default list."""
    assert default_ciphers([]) == default_ciphers(["TLSv1.2"]) == SERVER_CIPHERS
    assert default_ciphers(["TLSv1.2", "TLSv1.1"]) is default_ciphers(["TLSv1"]) is None


def test_certificate_outside_its_validity_is_untimely(authority):
    found = read_profile(server(authority), [SERVER])
    assert found.valid is not None
    start, end = found.valid
    assert found.validity_fault(start) is None
    assert re.fullmatch(r"the certificate is not valid before \d{4}-.* UTC", found.validity_fault(start - 1) or "")
    assert re.fullmatch(r"the certificate expired on \d{4}-.* UTC", found.validity_fault(end) or "")
    assert read_profile(profile(caCertFile=authority.trusted), [CLIENT]).validity_fault(end) is None, "there is none"


def test_revocation_list_past_next_update_is_stale(authority, revoked, tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(authority.trusted.read_text() + revoked)
    found = read_profile(profile(caCertFile=both), [CLIENT])
    assert found.stale_lists(time.time()) == []
    assert found.stale_lists(time.time() + 31 * 86400) == ["/CN=authority"]

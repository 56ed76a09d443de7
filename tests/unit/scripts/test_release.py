"""Checks before a release, and its checksums."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.release import PUBLIC_KEY, SUMS, has_secret_key, problems, write_signed_sums, write_sums

GOOD: dict[str, Any] = {
    "own": "1.2.3",
    "changelog": "# Changelog\n\n## 1.2.3 - 2026-12-01\n\n- A change.\n",
    "chart": 'apiVersion: v2\nversion: 1.2.3\nappVersion: "1.2.3"\n',
    "status": "",
    "tags": ["v1.2.2"],
}


def test_checkout_that_fits_has_no_problem():
    assert problems("1.2.3", **GOOD) == []


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"own": "1.2.2"}, "router/version.py says 1.2.2"),
        ({"changelog": "## Unreleased\n\n- A change.\n"}, "has no section '## 1.2.3'"),
        ({"chart": 'version: 1.2.3\nappVersion: "1.2.2"\n'}, "Chart.yaml says 1.2.2, 1.2.3"),
        ({"status": " M README.md"}, "not committed"),
        ({"tags": ["v1.2.3"]}, "the tag v1.2.3 exists"),
    ],
)
def test_checkout_that_does_not_fit_is_refused_by_name(changed, text):
    (problem,) = problems("1.2.3", **{**GOOD, **changed})
    assert text in problem


def test_sums_have_the_form_of_sha256sum(tmp_path):
    (tmp_path / "a.whl").write_bytes(b"one")
    (tmp_path / "b.tar.gz").write_bytes(b"two")
    (tmp_path / "SHA256SUMS.asc").write_bytes(b"of an earlier try")
    sums = write_sums(tmp_path)
    assert sums.read_text() == (
        "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed  a.whl\n"
        "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3  b.tar.gz\n"
    )


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[list[Path]]:
    """Yield two empty folders of keys of GnuPG, for a maintainer and for a user."""
    if shutil.which("gpg") is None:
        pytest.skip("GnuPG is not installed")
    folders = [tmp_path / "maintainer", tmp_path / "user"]
    for folder in folders:
        folder.mkdir(mode=0o700)
    yield folders
    for folder in folders:
        subprocess.run(["gpgconf", "--homedir", folder, "--kill", "all"], capture_output=True, timeout=60)


def gpg(*words: str | Path) -> int:
    return subprocess.run(["gpg", "--batch", "--quiet", *words], capture_output=True, timeout=60).returncode


@pytest.mark.starts
def test_user_can_verify_signed_sums_with_published_key(tmp_path, keys, monkeypatch):
    maintainer, user = keys
    monkeypatch.setenv("GNUPGHOME", str(maintainer))
    key = "release@sluice.example"
    assert not has_secret_key(key)
    assert gpg("--passphrase", "", "--quick-gen-key", key, "ed25519", "sign") == 0
    assert has_secret_key(key)
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.whl").write_bytes(b"one")
    write_signed_sums(files, key)

    monkeypatch.setenv("GNUPGHOME", str(user))
    signed = ("--verify", files / f"{SUMS}.asc", files / SUMS)
    assert gpg(*signed) != 0
    assert gpg("--import", files / PUBLIC_KEY) == 0
    assert gpg(*signed) == 0
    assert subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=files, capture_output=True).returncode == 0
    assert PUBLIC_KEY in (files / SUMS).read_text()

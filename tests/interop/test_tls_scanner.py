"""Scan of TLS listeners with sslyze: an sslProfile that names only files has no weakness."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop.brokers.process import TOOLS
from tests.interop.conftest import require_tool
from tests.peer.pki import Pki, pki
from tests.system.router import RouterProcess, listener

#: Scans by the option that requests them.
OPTIONS = {
    "sslv2": "ssl_2_0_cipher_suites",
    "sslv3": "ssl_3_0_cipher_suites",
    "tlsv1": "tls_1_0_cipher_suites",
    "tlsv1_1": "tls_1_1_cipher_suites",
    "tlsv1_2": "tls_1_2_cipher_suites",
    "tlsv1_3": "tls_1_3_cipher_suites",
    "certinfo": "certificate_info",
    "compression": "tls_compression",
    "early_data": "tls_1_3_early_data",
    "openssl_ccs": "openssl_ccs_injection",
    "fallback": "tls_fallback_scsv",
    "heartbleed": "heartbleed",
    "robot": "robot",
    "reneg": "session_renegotiation",
    "elliptic_curves": "elliptic_curves",
    "ems": "tls_extended_master_secret",
}
#: Finding of Mozilla's rules against every private authority.
PRIVATE = {"certificate_path_validation"}
#: Scans that give no result for a listener that requires a client certificate.
WITHOUT_CERTIFICATE = {"tls_1_3_early_data", "session_renegotiation"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return pki(tmp_path_factory.getbasetemp(), "scanned")


def scan(port: int, into: Path) -> tuple[dict[str, Any], str]:
    """Scan a port; return the results by scan, and the text about Mozilla's rules."""
    program = require_tool(TOOLS / "scanner" / "bin" / "sslyze", "scanner")
    asked = [f"--{name}" for name in OPTIONS]
    options = [*asked, "--mozilla_config", "intermediate", "--json_out", str(into), "--slow_connection"]
    done = subprocess.run(
        [str(program), *options, f"localhost:{port}"], capture_output=True, text=True, timeout=120, check=False
    )
    assert into.exists(), done.stdout + done.stderr
    (found,) = json.loads(into.read_text())["server_scan_results"]
    assert found["scan_status"] == "COMPLETED", found
    return found["scan_result"], done.stdout.partition("COMPLIANCE AGAINST")[2]


pytestmark = pytest.mark.long
KINDS: dict[str, dict[str, Any]] = {
    "amqp": {},
    "https": {"http": True},
    "mutual": {"saslMechanisms": "EXTERNAL"},
}


@pytest.fixture(scope="module", params=["ECDSA", "RSA"])
def key(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def scanned(authority: Pki, tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[RouterProcess]:
    """Router with a key of type `key` and a listener of each kind."""
    own = authority.issue(f"scanned-{key}", "/CN=localhost", names="DNS:localhost", rsa=key == "RSA")
    profile = {"name": "p", "certFile": own.certificate, "privateKeyFile": own.key, "caCertFile": authority.trusted}
    listeners = [listener(name, sslProfile="p", requireSsl=True, **more) for name, more in KINDS.items()]
    router = RouterProcess(tmp_path_factory.mktemp(key), [("sslProfile", profile), *listeners])
    router.start()
    yield router
    router.stop()


@pytest.mark.parametrize("kind", list(KINDS))
def test_default_profile_passes_scan(scanned: RouterProcess, key: str, tmp_path: Path, kind: str) -> None:
    results, rules = scan(scanned.ports[kind], tmp_path / "result.json")
    seen = {}
    for name in OPTIONS.values():
        if kind == "mutual" and name in WITHOUT_CERTIFICATE:
            continue
        assert results[name]["status"] == "COMPLETED", (name, results[name])
        seen[name] = results[name]["result"]

    accepted = {
        name: {suite["cipher_suite"]["name"] for suite in result["accepted_cipher_suites"]}
        for name, result in seen.items()
        if name.endswith("_cipher_suites")
    }
    endings = ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")
    assert accepted == {
        "ssl_2_0_cipher_suites": set(),
        "ssl_3_0_cipher_suites": set(),
        "tls_1_0_cipher_suites": set(),
        "tls_1_1_cipher_suites": set(),
        "tls_1_2_cipher_suites": {f"TLS_ECDHE_{key}_WITH_{ending}" for ending in endings},
        "tls_1_3_cipher_suites": {f"TLS_{ending}" for ending in endings},
    }
    assert seen["tls_compression"]["supports_compression"] is False
    assert seen["openssl_ccs_injection"]["is_vulnerable_to_ccs_injection"] is False
    assert seen["tls_fallback_scsv"]["supports_fallback_scsv"] is True
    assert seen["heartbleed"]["is_vulnerable_to_heartbleed"] is False
    assert seen["robot"]["robot_result"] == "NOT_VULNERABLE_RSA_NOT_SUPPORTED"
    assert seen["tls_extended_master_secret"]["supports_ems_extension"] is True
    if kind != "mutual":
        assert seen["tls_1_3_early_data"]["supports_early_data"] is False
        renegotiation = seen["session_renegotiation"]
        assert renegotiation["supports_secure_renegotiation"] is True
        assert renegotiation["is_vulnerable_to_client_renegotiation_dos"] is False
        assert set(re.findall(r"\* (\w+):", rules)) == PRIVATE

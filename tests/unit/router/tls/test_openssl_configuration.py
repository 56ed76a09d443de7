"""OpenSSL configuration that allows no cipher, like a FIPS configuration without the FIPS module."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.starts

CONFIGURATION = """openssl_conf = all
[all]
alg_section = algorithms
[algorithms]
default_properties = fips=yes
"""
PROGRAM = """
from sluice.router.tls.context import TlsContext, TlsError
from sluice.router.control.ops import Credentials
for server in (True, False):
    try:
        TlsContext(Credentials(), server=server)
    except TlsError as error:
        print(error.part, error)
"""


def test_configuration_without_ciphers_is_profile_fault(tmp_path):
    path = tmp_path / "openssl.cnf"
    path.write_text(CONFIGURATION)
    environment = {**os.environ, "OPENSSL_CONF": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["ciphers OpenSSL allows none: library has no ciphers"] * 2

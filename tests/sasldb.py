"""Password files for libsasl2. The library itself writes the sasldb file, as `saslpasswd2` does."""

import ctypes
import ctypes.util
import subprocess
import sys
from pathlib import Path

import proton
import pytest

LIBRARY = "libsasl2.so.2"
PLUGINS = [Path("/usr/lib/x86_64-linux-gnu/sasl2"), Path("/usr/lib/aarch64-linux-gnu/sasl2"), Path("/usr/lib/sasl2")]

# A process can read the configuration of the library only once, so the library runs in another process.
SCRIPT = """
import ctypes, sys
library = ctypes.CDLL("libsasl2.so.2")
folder, name, realm = (each.encode() for each in sys.argv[1:4])
library.sasl_errdetail.restype = ctypes.c_char_p
def check(result, connection=None):
    assert result == 0, (result, connection and library.sasl_errdetail(connection))
check(library.sasl_set_path(1, folder))
check(library.sasl_server_init(None, name))
connection = ctypes.c_void_p()
check(library.sasl_server_new(b"amqp", None, realm or None, None, None, None, 0, ctypes.byref(connection)))
for user, password in zip(sys.argv[4::2], sys.argv[5::2]):
    password = password.encode()
    check(library.sasl_setpass(connection, user.encode(), password, len(password), None, 0, 1), connection)
"""


def proton_has_scram() -> bool:
    """Return True if proton's clients can use SCRAM, which needs Cyrus SASL and its plugin."""
    return proton.SASL.extended() and any(any(each.glob("libscram.so*")) for each in PLUGINS if each.is_dir())


def needed() -> pytest.MarkDecorator:
    """Return a mark that skips tests if the library or its sasldb plugin is missing."""
    try:
        ctypes.CDLL(LIBRARY)
        missing = "" if any(folder.glob("libsasldb.so*") for folder in PLUGINS if folder.is_dir()) else "libsasldb"
    except OSError:
        missing = LIBRARY
    return pytest.mark.skipif(bool(missing), reason=f"{missing} is not installed (libsasl2-2, libsasl2-modules-db)")


def make(
    folder: Path, users: dict[str, str], *, mechanisms: str = "", name: str = "qdrouterd", realm: str = ""
) -> None:
    """Write `NAME.conf` and the passwords of `users`. An empty `realm` means the realm of this host."""
    lines = ["pwcheck_method: auxprop", "auxprop_plugin: sasldb", f"sasldb_path: {folder / 'users.sasldb'}"]
    if mechanisms:
        lines.append(f"mech_list: {mechanisms}")
    (folder / f"{name}.conf").write_text("\n".join(lines) + "\n")
    words = [word for pair in users.items() for word in pair]
    subprocess.run([sys.executable, "-c", SCRIPT, str(folder), name, realm, *words], check=True, timeout=60)

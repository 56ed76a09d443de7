"""Kerberos realm on loopback, served by MIT's KDC."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.interop.brokers.process import TOOLS
from tests.system.router import free_port, poll

REALM = "SLUICE.TEST"
#: Host name that clients use for the router; the service key is issued for this name only.
HOST = "localhost"
USER = "alice"

CLIENT = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    ignore_acceptor_hostname = true
    udp_preference_limit = 1
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    {host} = {realm}
"""
SERVER = """\
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
    }}
[dbmodules]
    db_module_dir = {modules}
    {realm} = {{
        db_library = db2
        database_name = {folder}/principal
    }}
"""


class Kerberos:
    """Kerberos realm as a context manager: USER has a ticket, and the service amqp at HOST has a key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._root = TOOLS / "kerberos"
        (self._libraries,) = (self._root / "usr" / "lib").glob("*-linux-gnu*")
        self._server: subprocess.Popen[bytes] | None = None
        self._log = folder / "krb5kdc.log"

    def __enter__(self) -> Kerberos:
        port = free_port()
        modules = self._libraries / "krb5" / "plugins" / "kdb"
        (self.folder / "krb5.conf").write_text(CLIENT.format(realm=REALM, port=port, host=HOST))
        (self.folder / "kdc.conf").write_text(
            SERVER.format(realm=REALM, port=port, folder=self.folder, modules=modules)
        )
        self._run("sbin/kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        for query in (
            f"addprinc -pw password {USER}",
            f"addprinc -randkey amqp/{HOST}",
            f"ktadd -k {self.folder}/keytab amqp/{HOST}",
        ):
            self._run("sbin/kadmin.local", "-r", REALM, "-q", query)
        with self._log.open("wb") as log:
            words = [str(self._root / "usr" / "sbin" / "krb5kdc"), "-n"]
            self._server = subprocess.Popen(words, env=self._environment(), stdout=log, stderr=log)
        poll(self._has_ticket, "a ticket")
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    @property
    def client(self) -> dict[str, str]:
        """Environment of a client of USER."""
        return {**self._both, "KRB5CCNAME": f"FILE:{self.folder}/tickets"}

    @property
    def service(self) -> dict[str, str]:
        """Environment of a router at HOST."""
        return {**self._both, "KRB5_KTNAME": f"{self.folder}/keytab"}

    @property
    def _both(self) -> dict[str, str]:
        return {"KRB5_CONFIG": f"{self.folder}/krb5.conf", "SASL_PATH": str(self._libraries / "sasl2")}

    def _environment(self) -> dict[str, str]:
        own = {"LD_LIBRARY_PATH": str(self._libraries), "KRB5_KDC_PROFILE": f"{self.folder}/kdc.conf"}
        return {**os.environ, **self.client, **own}

    def _run(self, program: str, *words: str, given: str = "") -> None:
        """Run a program of the realm with `given` as its input. Raises CalledProcessError."""
        command = [str(self._root / "usr" / program), *words]
        subprocess.run(command, env=self._environment(), input=given, text=True, check=True, capture_output=True)

    def _has_ticket(self) -> bool:
        assert self._server is not None
        assert self._server.poll() is None, self._log.read_text()
        try:
            self._run("bin/kinit", USER, given="password\n")
        except subprocess.CalledProcessError:
            return False
        return True

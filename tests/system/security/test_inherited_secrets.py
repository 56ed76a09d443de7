"""Secrets from environment, descriptors and systemd credentials: used, kept, and hidden from other processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.http import get
from tests.system.router import RouterProcess, Section, command, listener, poll

SECRETS = {"env:TOKEN": "1-from-a-variable", "fd:7": "2-from-a-descriptor", "credential:token": "3-from-systemd"}
UNRELATED = "4-not-named-by-anybody"


def web(port: int, form: str) -> Section:
    return listener(f"l{port}", http=True, metricsToken=form)


def sections() -> list[Section]:
    files = [web(number, form) for number, form in enumerate(SECRETS)]
    return [*files, listener(), ("connector", {"host": "127.0.0.1", "port": 1, "saslUsername": "u"})]


class RouterWithSecrets(RouterProcess):
    """A router started by a shell with a variable, a descriptor and a directory of credentials."""

    def prepare(self) -> RouterWithSecrets:
        credentials = self.directory / "credentials"
        credentials.mkdir()
        (credentials / "token").write_text(f"{SECRETS['credential:token']}\n")
        (self.directory / "descriptor").write_text(f"{SECRETS['fd:7']}\n")
        self.program = ("sh", "-c", f'exec "$@" 7<{self.directory}/descriptor', "sh", *command())
        return self

    def environment(self) -> dict[str, str]:
        own = {
            "TOKEN": SECRETS["env:TOKEN"],
            "OTHER": UNRELATED,
            "CREDENTIALS_DIRECTORY": f"{self.directory}/credentials",
        }
        return {**super().environment(), **own}


@pytest.fixture
def router(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RouterWithSecrets]:
    made = RouterWithSecrets(tmp_path, sections(), 2).prepare()
    request.node.routers = [made]
    made.start()
    yield made
    made.stop()


def statuses(router: RouterProcess, names: list[str]) -> list[int]:
    return [
        get(router.ports[name], "/metrics", Authorization=f"Bearer {token}").status
        for name, token in zip(names, SECRETS.values(), strict=True)
    ]


def environments(router: RouterProcess) -> dict[int, str]:
    return {each.pid: Path(f"/proc/{each.pid}/environ").read_text() for each in router.family()}


def test_secrets_are_used_and_hidden_from_processes(router: RouterWithSecrets) -> None:
    assert statuses(router, ["l0", "l1", "l2"]) == [200, 200, 200]
    assert get(router.ports["l1"], "/metrics", Authorization="Bearer fd:7").status == 401
    first = router.worker_pids()
    os.kill(first[0], signal.SIGKILL)
    poll(lambda: len(router.worker_pids()) == 2 and first[0] not in router.worker_pids(), "another worker", 30.0)
    found = environments(router)
    assert len(found) >= 4
    for pid, text in found.items():
        assert SECRETS["env:TOKEN"] not in text, pid
        assert (UNRELATED in text) is (pid == router.pid), "what nobody needs is with the supervisor only"
        opened = []
        for each in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                opened.append(os.readlink(each.path))
        assert not any(path.endswith("/descriptor") for path in opened), opened


def test_reload_uses_values_read_at_start(router: RouterWithSecrets) -> None:
    (router.directory / "descriptor").write_text("another")
    before = len(router.lines)
    router.configure(
        [*sections(), *(listener(f"m{number}", http=True, metricsToken=form) for number, form in enumerate(SECRETS))]
    )
    os.kill(router.pid, signal.SIGHUP)
    for name in ("m0", "m1", "m2"):
        router.ports[name] = int(router.wait_log(rf"Listening on \S*?:(\d+) \({name}\)", after=before)[1])
    assert statuses(router, ["m0", "m1", "m2"]) == [200, 200, 200]
    assert SECRETS["env:TOKEN"] not in "".join(environments(router).values())


def test_reload_with_new_descriptor_is_refused_with_line(router: RouterWithSecrets) -> None:
    router.configure([*sections(), listener("m", http=True, metricsToken="fd:8")])
    os.kill(router.pid, signal.SIGHUP)
    found = router.wait_log(
        r"unchanged: (\S+?):(\d+): .*metricsToken: descriptor 8 was not read when the router started"
    )
    assert "fd:8" in router.config.read_text().splitlines()[int(found[2]) - 1]


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("fd:9", "descriptor 9: Bad file descriptor"),
        ("credential:none", "there is no credential 'none': .*/credentials/none: No such file or directory"),
        ("credential:../token", r"'\.\./token' is not a valid name of a credential"),
    ],
)
def test_start_with_missing_secret_is_refused_with_line(tmp_path: Path, form: str, reason: str) -> None:
    router = RouterWithSecrets(tmp_path, [listener(), web(1, form)]).prepare()
    router.spawn()
    line = router.config.read_text().splitlines().index(f"    metricsToken: {form}") + 1
    router.wait_log(rf"metricsToken: {reason} \(line {line}\)", timeout=30.0)
    assert router.wait_exit() == 1


def test_encrypted_key_uses_password_from_descriptor(tmp_path: Path) -> None:
    """The key's password comes from a descriptor, and the listener speaks TLS."""
    made = RouterWithSecrets(tmp_path, ()).prepare()
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=localhost", "-days", "2"]
    words += ["-keyout", str(key), "-out", str(certificate), "-passout", f"file:{tmp_path}/descriptor"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    files = {"certFile": certificate, "privateKeyFile": key, "password": "fd:7"}
    made.configure(
        [("sslProfile", {"name": "p", **files}), listener("tls", sslProfile="p", requireSsl=True), listener()]
    )
    made.start()
    words = ["openssl", "s_client", "-connect", f"127.0.0.1:{made.ports['tls']}", "-brief"]
    shown = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    assert "CONNECTION ESTABLISHED" in shown.stderr
    made.stop()

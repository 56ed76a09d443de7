"""Files of `httpRootDir` (brokers-and-edge.md H-2), and hostile requests for them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from tests.system.http import PATIENCE, get
from tests.system.router import RouterProcess, listener

pytestmark = pytest.mark.adversarial

SECRET = b"secret of another directory"


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RouterProcess]:
    """Yield a router that serves files from a listener without the attribute `http`."""
    tmp_path = tmp_path_factory.mktemp("web")
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (tmp_path / "root2").mkdir()
    (tmp_path / "secret.txt").write_bytes(SECRET)
    (tmp_path / "root2" / "secret.txt").write_bytes(SECRET)
    (root / "index.html").write_text("<h1>top</h1>")
    (root / "sub" / "index.html").write_text("<h1>sub</h1>")
    (root / "app.js").write_text("let x = 1;")
    (root / "a name.txt").write_text("blank")
    (root / "metrics").write_text("never")
    (root / "nothing.unknown").write_bytes(bytes(range(256)))
    (root / ".hidden").write_bytes(SECRET)
    (root / "out.txt").symlink_to(tmp_path / "secret.txt")
    (root / "in.txt").symlink_to(root / "a name.txt")
    (root / "up").symlink_to(tmp_path)
    os.mkfifo(root / "pipe")
    with open(root / "large", "wb") as large:
        large.truncate(17 << 20)
    router = RouterProcess(tmp_path_factory.mktemp("router"), [listener(), listener("web", httpRootDir=root)], 1)
    router.start()
    yield router
    router.stop()


def send_request(router: RouterProcess, octets: bytes) -> bytes:
    """Send a request and return the whole response."""
    found = b""
    with socket.create_connection(("127.0.0.1", router.ports["web"]), PATIENCE) as raw:
        raw.sendall(octets)
        with contextlib.suppress(ConnectionResetError):
            while piece := raw.recv(65536):
                found += piece
    return found


def test_files_are_served_with_headers(web: RouterProcess) -> None:
    port = web.ports["web"]
    for path, kind, body in (
        ("/", "text/html; charset=utf-8", b"<h1>top</h1>"),
        ("/index.html?x=1", "text/html; charset=utf-8", b"<h1>top</h1>"),
        ("/sub/", "text/html; charset=utf-8", b"<h1>sub</h1>"),
        ("/app.js", "text/javascript; charset=utf-8", b"let x = 1;"),
        ("/a%20name.txt", "text/plain; charset=utf-8", b"blank"),
        ("/in.txt", "text/plain; charset=utf-8", b"blank"),
        ("/nothing.unknown", "application/octet-stream", bytes(range(256))),
    ):
        reply = get(port, path)
        assert (reply.status, reply.headers["Content-Type"], reply.body) == (200, kind, body)
        assert reply.headers["Cache-Control"] == "no-store"
        assert reply.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'self'" in reply.headers["Content-Security-Policy"]
        again = get(port, path, **{"If-None-Match": f'"other", {reply.headers["ETag"]}'})
        assert (again.status, again.body) == (304, b"")
    head = get(port, "/app.js", "HEAD")
    assert (head.status, head.headers["Content-Length"], head.body) == (200, "10", b"")
    assert get(port, "/metrics").body.startswith(b"# HELP qdr_")
    assert get(port, "/healthz").body == b"OK\n"
    assert get(port, "/large").status == 503


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt", "/sub/../../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/..%5csecret.txt",
        "//secret.txt", "/./app.js", "/../root2/secret.txt", "/.hidden", "/out.txt", "/up/secret.txt", "/pipe", "/sub",
        "/none", "/app.js/", "/app.js%00.html", "/%252e%252e/secret.txt", "/app.js/x",
    ],
)  # fmt: skip
def test_path_outside_root_is_not_found(web: RouterProcess, path: str) -> None:
    found = send_request(web, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert found.split(b" ")[1] in (b"404", b"400")
    assert SECRET not in found
    if found.split(b" ")[1] == b"404":
        assert b"Content-Type: text/html" in found
        assert b"<h1>404</h1>" in found


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="two lengths"),
        pytest.param(b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", id="length twice"),
        pytest.param(b"Content-Length: +4\r\n\r\nabcd", id="sign"),
        pytest.param(b"Host: 127.0.0.1\r\n\r\n", id="host twice"),
        pytest.param(b"X: a\r\n b\r\n\r\n", id="folded"),
        pytest.param(b"X : a\r\n\r\n", id="blank before the colon"),
        pytest.param(b"X: a\nY: b\r\n\r\n", id="bare line feed"),
        pytest.param(b"X: a\rY: b\r\n\r\n", id="bare carriage return"),
    ],
)
def test_smuggled_request_is_bad_request(web: RouterProcess, octets: bytes) -> None:
    found = send_request(
        web,
        b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n" + octets + b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1 ") == 1

"""Schema registry on loopback with the requests that Sluice makes of Confluent's REST API."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RegistryServer:
    """Registry whose schemas a test registers.

    requests: paths, in order. faults: statuses of the next answers, instead of their content;
    faults_of: the same of a path. credentials: user and
    password that requests must have, None for none. location: target of redirections, instead of all answers. body:
    octets instead of all answers. headers: added to all answers. trickle: seconds before each octet of an answer's
    content, 0 for all at once.
    """

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.faults: list[int] = []
        self.faults_of: dict[str, list[int]] = {}
        self.credentials: tuple[str, str] | None = None
        self.location = ""
        self.body: bytes | None = None
        self.headers: dict[str, str] = {}
        self.trickle = 0.0
        self._stopped = threading.Event()
        registry = self

        class RegistryHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                registry.answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), RegistryHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def register(self, number: int, subject: str, schema: Any, kind: str = "AVRO", **references: str) -> None:
        """Register a schema: JSON, or for Protobuf a FileDescriptorProto. references: subjects by name."""
        if kind == "PROTOBUF":
            schema = base64.b64encode(schema.SerializeToString()).decode()
        elif not isinstance(schema, str):
            schema = json.dumps(schema)
        found = {"schema": schema, "references": [
            {"name": name, "subject": each, "version": len(self.subjects[each])} for name, each in references.items()
        ]}  # fmt: skip
        self.schemas[number] = found if kind == "AVRO" else {**found, "schemaType": kind}
        self.subjects.setdefault(subject, []).append(number)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(request.path)
        status, content = self._content(request)
        for faults in (self.faults, self.faults_of.get(request.path)):
            if faults:
                status = faults.pop(0)
        octets = json.dumps(content).encode() if self.body is None else self.body
        request.send_response(status)
        if self.location:
            request.send_header("Location", self.location)
        for name, value in self.headers.items():
            request.send_header(name, value)
        request.send_header("Content-Length", str(len(octets)))
        request.end_headers()
        if not self.trickle:
            request.wfile.write(octets)
            return
        with contextlib.suppress(OSError):  # the client has given up
            for at in range(len(octets)):
                request.wfile.write(octets[at : at + 1])
                self._stopped.wait(self.trickle)

    def _content(self, request: BaseHTTPRequestHandler) -> tuple[int, Any]:
        if self.location:
            return 302, {}
        if self.credentials is not None:
            wanted = base64.b64encode(":".join(self.credentials).encode()).decode()
            if request.headers.get("Authorization") != f"Basic {wanted}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        path, _, query = request.path.partition("?")
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in self.schemas:
                found = self.schemas[int(number)]
            case ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                found = self.schemas[self.subjects[subject][-1]]
            case ["subjects", subject, "versions", version] if subject in self.subjects:
                found = self.schemas[self.subjects[subject][int(version) - 1]]
            case ["schemas", *_]:
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case _:
                return 404, {"error_code": 40401, "message": "Subject not found"}
        if (found.get("schemaType") == "PROTOBUF") != (query == "format=serialized"):
            return 400, {"error_code": 400, "message": "the test expects format=serialized for Protobuf alone"}
        return 200, found

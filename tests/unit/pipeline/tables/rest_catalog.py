"""Catalog of Iceberg on loopback with the requests of the REST protocol that Sluice makes, kept by SQLite.

The names of namespaces are of one level.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest import CreateTableRequest, TableResponse
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table import CommitTableRequest, StagedTable
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

#: Status and type of an error by its exception.
ERRORS = {
    NoSuchNamespaceError: (404, "NoSuchNamespaceException"),
    NoSuchTableError: (404, "NoSuchTableException"),
    NamespaceAlreadyExistsError: (409, "AlreadyExistsException"),
    TableAlreadyExistsError: (409, "AlreadyExistsException"),
    CommitFailedException: (409, "CommitFailedException"),
}


class RestCatalogServer:
    """Catalog whose tables are in a folder. lost: answers of commits to replace by status 500 after the commit."""

    def __init__(self, folder: Path) -> None:
        self.lost = 0
        self._catalog = SqlCatalog("test", uri=f"sqlite:///{folder}/rest.db", warehouse=f"file://{folder}/warehouse")
        self._lock = threading.Lock()
        catalog = self

        class RestCatalogHandler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                catalog.answer(self, {})

            def do_POST(self) -> None:
                octets = self.rfile.read(int(self.headers["Content-Length"]))
                catalog.answer(self, json.loads(octets))

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), RestCatalogHandler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._catalog.close()

    def answer(self, request: BaseHTTPRequestHandler, content: Any) -> None:
        try:
            with self._lock:
                status, text = 200, self._content(request.command, request.path.partition("?")[0], content)
        except tuple(ERRORS) as error:
            status, kind = ERRORS[type(error)]
            text = json.dumps({"error": {"message": str(error), "type": kind, "code": status}})
        except ConnectionResetError:
            status, text = 500, json.dumps({"error": {"message": "lost", "type": "InternalServerError", "code": 500}})
        octets = text.encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/json")
        request.send_header("Content-Length", str(len(octets)))
        request.end_headers()
        request.wfile.write(octets)

    def _content(self, method: str, path: str, content: Any) -> str:
        match method, path.strip("/").split("/"):
            case "GET", ["v1", "config"]:
                return json.dumps({"defaults": {}, "overrides": {}})
            case "POST", ["v1", "namespaces"]:
                self._catalog.create_namespace(tuple(content["namespace"]))
                return json.dumps({"namespace": content["namespace"], "properties": {}})
            case "GET", ["v1", "namespaces", name]:
                self._catalog.load_namespace_properties(name)
                return json.dumps({"namespace": [name], "properties": {}})
            case "POST", ["v1", "namespaces", namespace, "tables"]:
                wanted = CreateTableRequest.model_validate(
                    {"location": None, "partition-spec": None, "write-order": None, **content}
                )
                if self._catalog.table_exists((namespace, wanted.name)):
                    raise TableAlreadyExistsError(wanted.name)
                staged = self._catalog._create_staged_table(
                    (namespace, wanted.name), wanted.table_schema, wanted.location,
                    wanted.partition_spec or UNPARTITIONED_PARTITION_SPEC, wanted.write_order or UNSORTED_SORT_ORDER,
                    wanted.properties,
                )  # fmt: skip
                return TableResponse(metadata=staged.metadata).model_dump_json(by_alias=True)
            case "GET", ["v1", "namespaces", namespace, "tables", name]:
                found = self._catalog.load_table((namespace, name))
                answer = TableResponse.model_validate(
                    {"metadata-location": found.metadata_location, "metadata": found.metadata}
                )
                return answer.model_dump_json(by_alias=True)
            case "POST", ["v1", "namespaces", namespace, "tables", name]:
                return self._commit((namespace, name), CommitTableRequest.model_validate(content))
        raise NoSuchTableError(path)

    def _commit(self, name: tuple[str, str], request: CommitTableRequest) -> str:
        try:
            table: Any = self._catalog.load_table(name)
        except NoSuchTableError:
            table = StagedTable(name, None, "", None, self._catalog)  # type: ignore[arg-type]
        answer = self._catalog.commit_table(table, request.requirements, request.updates)
        if self.lost:
            self.lost -= 1
            raise ConnectionResetError
        return answer.model_dump_json(by_alias=True)

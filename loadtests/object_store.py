"""S3 server on loopback that records the requests of its clients."""

from __future__ import annotations

import threading
from typing import Any


class RecordingObjectStore:
    """S3 server in a thread of this process. Its buckets are in memory."""

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.requests: list[str] = []
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._serve, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def bucket(self, name: str) -> str:
        """Create a bucket. Return the URL of a landing folder in it."""
        from pyarrow import fs

        host = f"127.0.0.1:{self._server.port}"
        fs.S3FileSystem(
            access_key="a", secret_key="b", endpoint_override=host, scheme="http", allow_bucket_creation=True
        ).create_dir(name)
        return f"s3://a:b@{name}/landing?endpoint_override={host}&scheme=http"

    def _serve(self, environment: dict[str, Any], start: Any) -> Any:
        self.requests.append(" ".join(environment[name] for name in ("REQUEST_METHOD", "PATH_INFO", "QUERY_STRING")))
        return self._application(environment, start)

    def __enter__(self) -> RecordingObjectStore:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

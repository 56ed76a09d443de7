"""HTTP server of /metrics for Prometheus, for the commands of the pipeline that run as services."""

from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from sluice.pipeline.errors import PipelineError


def serve(collector: Collector, where: str) -> str:
    """Serve the metrics of a collector from daemon threads; return the URL of the page.

    where: "[HOST:]PORT", the value of an option `--metrics`; without a host, of this machine only. Raises
    PipelineError.
    """
    name, _, port = where.rpartition(":")
    host = name.strip("[]") or "127.0.0.1"
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    try:
        server: Any = start_http_server(int(port), host, registry)[0]
    except (OSError, ValueError, OverflowError) as error:
        raise PipelineError(f"--metrics {where}: {error}") from error
    return f"http://{host}:{int(server.server_port)}/metrics"

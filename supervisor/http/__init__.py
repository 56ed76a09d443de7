"""HTTP of the router: /metrics for Prometheus, /healthz, /livez and /readyz. Runs in the supervisor's event loop."""

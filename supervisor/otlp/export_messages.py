"""Messages between the supervisor and the export process: JSON objects.

To the process:

- `setup`: `targets` (by signal: endpoint, and the fields of CollectorTls), `router` (id), `began` (start of
  the router, in ns since the Unix epoch). Sent first, and again whenever a target changes.
- `spans`: the fields of each DeliverySpan.
- `lines`: for each entry of the log the number of the worker (null: the supervisor) and the fields of the LogEntry.
- `page`: null before the metrics of a page, its time in ns after them. Between both, `family`: the fields of a
  MetricFamily.

To the supervisor, each with `signal`: `exported` with `dropped` (numbers of spans, records or data points since the
start of the process), `log` (level) with `text`.
"""

from typing import Final

MAX_REQUEST: Final = 8 << 20  # octets of a message to the process, and of all that wait for it
MAX_REPORT: Final = 1 << 16  # octets of a message to the supervisor

TRACES: Final = "traces"
LOGS: Final = "logs"
METRICS: Final = "metrics"
SIGNALS: Final = (TRACES, LOGS, METRICS)

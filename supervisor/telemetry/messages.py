"""Messages between the supervisor and the telemetry process: JSON objects.

To the process: `setup`, `rows` (of a table), `link`, `peer`, `gone` (a peer), and `described`, the answer to
`describe`. To the supervisor: `describe`, `saved` (the last `describe` whose rows are in files), `live` (rows for
receivers), `lost` (number of rows lost since the last such message), `log`.
"""

from typing import Final

MAX_REQUEST: Final = 64 << 20  # octets of a message to the process, and of all that wait for it
MAX_REPORT: Final = 16 << 20  # octets of a message to the supervisor

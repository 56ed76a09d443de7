"""Messages between the supervisor and the export process: JSON objects.

To the process: `setup` (once), `spans` (the fields of each DeliverySpan). To the supervisor: `exported` with `dropped`
(numbers of spans since the start of the process), `log` (level) with `text`.
"""

from typing import Final

MAX_REQUEST: Final = 8 << 20  # octets of a message to the process, and of all that wait for it
MAX_REPORT: Final = 1 << 16  # octets of a message to the supervisor

"""Errors of the exchange between workers."""


class MalformedRecordError(Exception):
    """Raised for a record of another worker that no encoder writes.

    Neither this record nor any later one of that ring can be trusted, so its port stops reading
    (`WorkerPort.close_ring`).
    """

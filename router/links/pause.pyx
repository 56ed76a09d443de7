"""Reasons beside PAUSE_ATTACH for leaving a connection's frames in its transport: bits of Connection.pause."""
from enum import IntFlag

RouterPause = IntFlag("RouterPause", {
    "PAUSE_RING": PAUSE_RING, "PAUSE_DRAIN": PAUSE_DRAIN, "PAUSE_LOCAL": PAUSE_LOCAL, "PAUSE_CONTROL": PAUSE_CONTROL,
}, module=__name__)

from enum import IntFlag

class RouterPause(IntFlag):
    PAUSE_RING = 256
    PAUSE_DRAIN = 512
    PAUSE_LOCAL = 1024
    PAUSE_CONTROL = 2048

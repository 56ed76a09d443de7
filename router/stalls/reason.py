"""Stall reasons of links: the numbers in link slots, and the words that tools show."""

import enum


class StallReason(enum.IntEnum):
    """Stall reason as workers store it in link slots. The numbers are those of `Stall` in stall.pxd."""

    UNREAD = 1
    MEMORY = 2
    RING = 3
    SUPERVISOR = 4
    CREDIT = 5
    WINDOW = 6
    NO_CONSUMER = 7
    UNSETTLED = 8
    QUOTA = 9
    ROUTED = 10


class StallWord(enum.StrEnum):
    """Stall reason as tools show it.

    HOP stands for CREDIT, WINDOW and UNREAD if the peer is a router, BROKER if it is a route container.
    """

    CREDIT = "credit"
    WINDOW = "window"
    UNREAD = "unread"
    HOP = "hop"
    BROKER = "broker"
    NO_CONSUMER = "no-consumer"
    UNSETTLED = "unsettled"
    MEMORY = "memory"
    QUOTA = "quota"
    RING = "ring"
    SUPERVISOR = "supervisor"

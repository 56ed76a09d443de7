"""Reasons why no delivery moves on a link: as slots of links number them, and as users know them."""

import enum


class Reason(enum.IntEnum):
    """A reason as a worker finds it: Stall in stall.pxd."""

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


class Word(enum.StrEnum):
    """A reason as tools show it. CREDIT, WINDOW and UNREAD of a router are HOP, of a route container BROKER."""

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

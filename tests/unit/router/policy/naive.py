"""Naive implementation of the address rules, item by item (security.md P-24, P-25)."""

import re

from sluice.router.policy.names import USER


def listed(items: list[str], address: str, user: str) -> bool:
    """Return True if a list allows an address."""
    return bool(address) and any(one_listed(item, address, user) for item in items)


def one_listed(item: str, address: str, user: str) -> bool:
    if item.count(USER) > 1 or (item == f"{USER}*" and not user):
        return False
    if item.endswith("*"):
        return address.startswith(item[:-1].replace(USER, user))
    return address == item.replace(USER, user)


def matched(items: list[str], address: str, user: str) -> bool:
    """Return True if patterns allow an address."""
    return bool(address) and any(one_matched(item, address, user) for item in items)


def one_matched(item: str, address: str, user: str) -> bool:
    address = address.lstrip("./")
    if address[-1:] in (".", "/"):
        address = address[:-1]
    if not item.strip("./") or item.count(USER) > 1:
        return False
    if item.strip("./") == USER:
        return bool(user) and address == user
    if item.startswith(USER) and item[len(USER)] in "./":
        behind = address[len(user) :]
        return bool(user) and address.startswith(user) and behind[:1] in ("", ".", "/") and (
            fits(canonical(item[len(USER) :]), split(behind[1:]) if behind else [])
        )  # fmt: skip
    if item.endswith(USER) and item[-len(USER) - 1] in "./":
        before = address[: len(address) - len(user)]
        return bool(user) and address.endswith(user) and before[-1:] in (".", "/") and (
            fits(canonical(item[: -len(USER)]), split(before[:-1]))
        )  # fmt: skip
    return USER not in item and fits(canonical(item), split(address) if address else [])


def split(text: str) -> list[str]:
    return re.split("[./]", text)


def canonical(item: str) -> list[str]:
    return split(item.strip("./"))


def fits(pattern: list[str], tokens: list[str]) -> bool:
    if not pattern:
        return not tokens
    if pattern[0] == "#":
        return any(fits(pattern[1:], tokens[at:]) for at in range(len(tokens) + 1))
    return bool(tokens) and pattern[0] in ("*", tokens[0]) and fits(pattern[1:], tokens[1:])

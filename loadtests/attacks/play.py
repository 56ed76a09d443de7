"""`python -m loadtests.attacks.play ATTACK CLIENTS BROKERS BEYOND SECONDS`: one attacker. The others are ports.

Prints a line of JSON at the end.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from loadtests.attacks.attacker import RefusedError
from loadtests.attacks.plays import ATTACKS, Ports

#: On few cores the pairs' processes take precedence: the test judges the router.
NICE = 10
#: Seconds before an attacker whose connection was refused connects again.
BETWEEN = 0.1


def main(words: Sequence[str]) -> int:
    name, clients, brokers, beyond, seconds = words
    ports = Ports(int(clients), int(brokers), int(beyond))
    os.nice(NICE)
    end = time.monotonic() + float(seconds)
    played, ended, last = 0, 0, ""
    while time.monotonic() < end:
        try:
            ATTACKS[name](ports)
            played += 1
        except (RefusedError, OSError) as error:
            ended += 1
            last = f"{type(error).__name__}: {error}"[:160]
            time.sleep(BETWEEN)
    print(json.dumps({"played": played, "ended": ended, "last": last}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Default configuration file of the router, and the example that `sluice run` starts without one."""

import os
import sys
from typing import Final

# In order of preference. The second one is that of Dispatch. The Debian package and the units bring the third one, an
# example at first, which must not hide a file of Dispatch.
DEFAULT_CONFIGS: Final = (
    "/etc/sluice/qdrouterd.conf",
    "/etc/qpid-dispatch/qdrouterd.conf",
    "/etc/sluice/router.conf",
)
CONFIG_HELP: Final = f"configuration file; default: the first of {', '.join(DEFAULT_CONFIGS)} that exists"
#: The example configuration in the installed package; in the repository a link to conf/standalone.conf.
EXAMPLE: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "config", "standalone.conf")


def default_config() -> str:
    """Return the first default configuration file that exists, else the first."""
    return next((path for path in DEFAULT_CONFIGS if os.path.exists(path)), DEFAULT_CONFIGS[0])


def config_or_example() -> str:
    """Return the first default configuration file that exists. Without one, print so, and return the example."""
    found = default_config()
    if os.path.exists(found):
        return found
    print(
        f"No configuration file: neither {' nor '.join(DEFAULT_CONFIGS)} exists, and there is no option -c.\n"
        f"Starting with the example {EXAMPLE}, for clients on this machine.\n"
        "In another terminal, `sluice hello` sends a first message through it.",
        file=sys.stderr,
    )
    return EXAMPLE

"""Parameters of every scenario: on locust's command line, in its web UI, and sent to all its processes.

Importing this module adds them. A parameter that is not given leaves the scenario classes' value.
"""

from __future__ import annotations

from typing import Any

from locust import events


def _add(parser: Any) -> None:
    group = parser.add_argument_group("AMQP", "for all senders and requesters of the scenario")
    group.add_argument("--rate", default="", help="tasks a second for each of them; max: without pauses (the class's)")
    group.add_argument("--body-size", type=int, default=0, help="octets of each body (the class's)")
    group.add_argument("--window", type=int, default=0, help="unsettled messages a sender may have (the class's)")
    group.add_argument(
        "--settle",
        choices=["", "unsettled", "presettled"],
        default="",
        help="how senders send (the class's)",
    )
    group.add_argument("--amqp-user", default="", env_var="AMQP_USER", help="who all users are (the host's)")
    # Outside the group: locust can hide only such an option from its web UI.
    parser.add_argument(
        "--amqp-password", default="", env_var="AMQP_PASSWORD", include_in_web_ui=False, help="of the --amqp-user"
    )
    group.add_argument("--amqp-mechanisms", default="", help="SASL mechanisms, separated by blanks (PLAIN with a user)")
    group.add_argument("--amqp-ca", default="", help="file of trusted authorities, for amqps:// (the system's)")
    group.add_argument("--amqp-certificate", default="", help="certificate of all users, for amqps:// and EXTERNAL")
    group.add_argument("--amqp-key", default="", help="its key (in the file of the certificate)")
    group.add_argument("--address-prefix", default="", help="put before every address, for example multicast/")


events.init_command_line_parser.add_listener(_add)

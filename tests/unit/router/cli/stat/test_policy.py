"""Displays of the policy, vhosts and their groups."""

from tests.unit.router.cli.stat.rows import Stat

VHOST = {
    "hostname": "h", "maxConnections": 10, "maxMessageSize": None, "maxConnectionsPerUser": 5,
    "maxConnectionsPerHost": 6, "allowUnknownUser": True,
    "groups": {"admin": {"users": "a,b", "maxSenders": 3, "allowDynamicSource": True}, "$default": {}},
}  # fmt: skip


def test_policy_configuration_and_status_are_shown(stat: Stat) -> None:
    policy = {"maxConnections": 65535, "maxMessageSize": 0, "enableVhostPolicy": False,
              "enableVhostNamePatterns": False, "policyDir": "", "defaultVhost": "", "connectionsProcessed": 3,
              "connectionsDenied": 1, "connectionsCurrent": 2, "linksDenied": 4, "maxMessageSizeDenied": 5,
              "totalDenials": 10}  # fmt: skip
    assert stat({"policy": [policy]}, "-p") == (
        "Policy Configuration\n"
        "  attr                            value\n"
        "  =======================================\n"
        "  Maximum Concurrent Connections  65535\n"
        "  Maximum Message Size            0\n"
        "  Enable Vhost Policy             False\n"
        "  Enable Vhost Name Patterns      False\n"
        "  Policy Directory                \n"
        "  Default Vhost                   (nil)\n"
        "\n"
        "Policy Status\n"
        "  attr                         value\n"
        "  ====================================\n"
        "  Connections Processed        3\n"
        "  Connections Denied           1\n"
        "  Connections Current          2\n"
        "  Links Denied                 4\n"
        "  Maximum Message Size Denied  5\n"
        "  Total Denials                10\n"
    )


def test_vhosts_table_shows_limits(stat: Stat) -> None:
    assert stat({"vhost": [VHOST]}, "--vhosts") == (
        "Vhosts\n"
        "  hostname  maxConnections  maxMessageSize  maxConnectionsPerUser  maxConnectionsPerHost  "
        "allowUnknownUser  groups\n"
        f"  {'=' * 114}\n"
        f"  h         10{' ' * 30}5                      6                      True              2\n"
    )
    assert stat({"vhost": []}, "--vhosts") == "No Vhosts\n"


def test_vhost_groups_are_shown_with_defaults(stat: Stat) -> None:
    attributes = {"maxFrameSize": {"type": "integer", "default": 2147483647}, "maxSenders": {"type": "integer"}}
    schema = {"entityTypes": {"vhostUserGroupSettings": {"attributes": attributes}}}
    lines = stat({"vhost": [VHOST]}, "--vhostgroups", "--csv", calls={"GET-SCHEMA": schema}).splitlines()
    assert lines[0] == "Vhost Groups"
    assert lines[2] == (
        '"h","admin","(nil)","(nil)","(nil)","2147483647","(nil)","(nil)","3","(nil)",'
        '"True","False","False","False","False","False","False"'
    )
    assert lines[4:9] == ["", "Vhost 'h' UserGroup 'admin'", '"attr","value"', '"vhost","h"', '"group","admin"']
    assert lines[9:16] == [
        '"users","a,b"', '"remoteHosts","(nil)"', '"sources","(nil)"', '"targets","(nil)"', '"sourcePattern","(nil)"',
        '"targetPattern","(nil)"', "",
    ]  # fmt: skip
    assert lines[16] == "Vhost 'h' UserGroup '$default'"


def test_vhost_stats_are_shown_with_users(stat: Stat) -> None:
    stats = {"hostname": "h", "connectionsApproved": 4, "connectionsDenied": 1, "connectionsCurrent": 2,
             "sessionDenied": 0, "senderDenied": 0, "receiverDenied": 0, "maxMessageSizeDenied": 0,
             "perUserState": {"u": ["1.2.3.4:5", "1.2.3.4:6"]}}  # fmt: skip
    lines = stat({"vhostStats": [stats]}, "--vhoststats").splitlines()
    assert lines[0] == "Vhost Stats"
    assert lines[3].split() == ["h", "4", "1", "2", "0", "0", "0", "0"]
    assert lines[4:] == [
        "",
        "Vhost User Stats",
        "  vhost  user  remote hosts",
        "  ===================================",
        "  h      u     1.2.3.4:5, 1.2.3.4:6",
    ]
    assert stat({"vhostStats": []}, "--vhoststats") == "No Vhost Stats\n"

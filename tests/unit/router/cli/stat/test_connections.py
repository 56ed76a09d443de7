"""Displays of connections and of edge connections."""

from tests.unit.router.cli.stat.rows import CONNECTION, Stat

TLS = {"isEncrypted": True, "sslProto": "TLSv1.3", "sslCipher": "AES"}


def test_connections_table_shows_security_and_authentication(stat: Stat) -> None:
    rows = [
        CONNECTION,
        {**CONNECTION, **TLS, "identity": "2", "isAuthenticated": True, "sasl": "PLAIN", "user": "u", "tenant": "t.x/"},
        {**CONNECTION, "identity": "3", "isAuthenticated": True, "sasl": "ANONYMOUS", "user": "anonymous",
         "lastDlvSeconds": 3661},
        {**CONNECTION, **TLS, "identity": "4", "isAuthenticated": True, "sasl": "GSSAPI", "user": "k"},
        {**CONNECTION, "identity": "5", "isAuthenticated": True, "sasl": "EXTERNAL", "user": None, "container": None},
    ]  # fmt: skip
    up = "000:00:00:59"
    assert stat({"connection": rows}, "-c") == (
        "Connections\n"
        "  id  host         container  role    proto  dir  security      authentication  tenant  last dlv      uptime\n"
        f"  {'=' * 114}\n"
        f"  1   127.0.0.1:4  c          normal  amqp   in   no-security   no-auth                 -             {up}\n"
        f"  2   127.0.0.1:4  c          normal  amqp   in   TLSv1.3(AES)  u(PLAIN)        t.x     -             {up}\n"
        f"  3   127.0.0.1:4  c          normal  amqp   in   no-security   anonymous-user          000:01:01:01  {up}\n"
        f"  4   127.0.0.1:4  c          normal  amqp   in   Kerberos      k(Kerberos)             -             {up}\n"
        f"  5   127.0.0.1:4             normal  amqp   in   no-security   x.509                   -             {up}\n"
    )


def test_edge_connections_are_shown(stat: Stat) -> None:
    edge = {**CONNECTION, "identity": "2", "role": "edge"}
    assert stat({"connection": [CONNECTION, edge]}, "-e") == (
        "Connections\n"
        "  id  host         container  role  dir  security     authentication  tenant  active\n"
        "  ====================================================================================\n"
        "  2   127.0.0.1:4  c          edge  in   no-security  no-auth                 True\n"
    )
    assert stat({"connection": [CONNECTION]}, "-e") == ""
    assert stat({"connection": []}, "-e") == "No Edge Router Connections\n"

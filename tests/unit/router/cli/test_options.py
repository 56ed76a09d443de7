"""Options that select a router and the connection to it."""

from pathlib import Path

import pytest

from sluice.router.cli.options import (
    ManagementUrl,
    Parser,
    QueryTarget,
    add_connection_options,
    add_target_options,
    target,
)


def parse(*words: str) -> QueryTarget:
    parser = Parser("tool", "A tool.")
    add_target_options(parser, all_routers=True)
    add_connection_options(parser)
    return target(parser.parse_args(words))


@pytest.mark.parametrize(
    ("text", "shown", "user", "password", "path"),
    [
        ("0.0.0.0", "amqp://0.0.0.0:5672", None, None, ""),
        ("host:1234", "amqp://host:1234", None, None, ""),
        (":1234", "amqp://0.0.0.0:1234", None, None, ""),
        ("host:amqps", "amqp://host:5671", None, None, ""),
        ("amqps://host", "amqps://host:5671", None, None, ""),
        ("amqp://u:p%40w@host/x/y", "amqp://host:5672", "u", "p@w", "x/y"),
        ("u@host", "amqp://host:5672", "u", None, ""),
        ("amqp://[::1]:77/$management", "amqp://[::1]:77", None, None, "$management"),
        ("[::1]", "amqp://[::1]:5672", None, None, ""),
    ],
)
def test_url_is_parsed_with_defaults(text: str, shown: str, user: str | None, password: str | None, path: str) -> None:
    url = ManagementUrl.parse(text)
    assert (url.text, url.user, url.password, url.path) == (shown, user, password, path)


@pytest.mark.parametrize("text", ["http://x", "host:x", "host:0", "host:65536", "[::1", "[::1]x"])
def test_invalid_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^Invalid URL"):
        ManagementUrl.parse(text)


@pytest.mark.parametrize(
    ("words", "address"),
    [
        ((), "$management"),
        (("-r", "B"), "_topo/0/B/$management"),
        (("--router=B",), "_topo/0/B/$management"),
        (("-d", "E1"), "_edge/E1/$management"),
        (("--edge", "E1"), "_edge/E1/$management"),
        (("-b", "host/_local/$management", "-r", "B"), "_local/$management"),
    ],
)
def test_address_options_select_management_node(words: tuple[str, ...], address: str) -> None:
    assert parse(*words).address == address


def test_plain_target_has_neither_tls_nor_sasl() -> None:
    plain = parse()
    assert (plain.tls, plain.sasl, plain.timeout, plain.url.text) == (None, None, 5.0, "amqp://0.0.0.0:5672")
    assert parse("-t", "0.25").timeout == 0.25


@pytest.mark.parametrize(
    ("words", "sasl"),
    [
        (("--sasl-mechanisms", "PLAIN EXTERNAL"), ("PLAIN EXTERNAL", None, None)),
        (("--sasl-username", "u", "--sasl-password", "p"), (None, "u", "p")),
        (("-b", "amqp://u:p@h"), (None, "u", "p")),
        (("-b", "amqp://u:p@h", "--sasl-username", "v"), (None, "v", "p")),
        (("-b", "amqps://h"), (None, None, None)),
    ],
)
def test_sasl_options_are_taken(words: tuple[str, ...], sasl: tuple[str | None, ...]) -> None:
    found = parse(*words).sasl
    assert found is not None
    assert (found.mechanisms, found.user, found.password) == sasl


def test_passwords_are_read_from_files(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("  secret\n")
    sasl = parse("--sasl-password-file", str(file)).sasl
    assert sasl is not None
    assert sasl.password == "secret"
    tls = parse("--ssl-certificate", "c", "--ssl-password-file", str(file)).tls
    assert tls is not None
    assert tls.password == "secret"


def test_tls_options_select_amqps() -> None:
    found = parse("-b", "host", "--ssl-trustfile", "ca.pem", "--ssl-disable-peer-name-verify")
    assert found.url.text == "amqps://host:5671"
    assert found.sasl is not None
    assert found.tls is not None
    assert (found.tls.trust_file, found.tls.certificate, found.tls.verify_name) == ("ca.pem", None, False)
    assert parse("-b", "host:99", "--ssl-certificate", "c", "--ssl-key", "k").url.text == "amqps://host:99"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("-r", "A", "-d", "B"), "argument -d/--edge-router: not allowed with argument -r/--router"),
        (("--all-routers", "-r", "A"), "argument -r/--router: not allowed with argument --all-routers"),
        (("-t", "x"), "argument -t/--timeout: invalid float value: 'x'"),
        (("--ssl-p", "x"), "ambiguous option: --ssl-p could match --ssl-password, --ssl-password-file"),
        (("x",), "unrecognized arguments: x"),
    ],
)
def test_usage_error_names_option(words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(*words)
    out, err = capsys.readouterr()
    assert (ended.value.code, out) == (2, "")
    assert err.startswith("usage: tool ")
    assert err.endswith(f"tool: error: {error}\n")

"""Options of the tools for running routers: selection of the router, and connection (management.md 8.2)."""

import argparse
from urllib.parse import unquote

from msgspec import Struct
from msgspec.structs import replace

from sluice.router.version import VERSION

DEFAULT_URL = "0.0.0.0"
DEFAULT_TIMEOUT = 5.0  # seconds
MANAGEMENT = "$management"
_SCHEMES = {"amqp": 5672, "amqps": 5671}  # default ports by scheme; the schemes are also accepted as port names


class ManagementUrl(Struct, frozen=True):
    """Parsed URL `[amqp[s]://][user[:pass]@]host[:port][/path]`."""

    scheme: str
    user: str | None
    password: str | None
    host: str
    port: int | None
    path: str

    @classmethod
    def parse(cls, text: str) -> "ManagementUrl":
        """Parse `text`. Raises ValueError for an invalid URL."""
        scheme, separator, rest = text.partition("://")
        if not separator:
            scheme, rest = "amqp", text
        if scheme not in _SCHEMES:
            raise ValueError(f"Invalid URL '{text}': the scheme is neither amqp nor amqps")
        authority, _, path = rest.partition("/")
        userinfo, at, place = authority.rpartition("@")
        user, colon, password = userinfo.partition(":")
        host, port = _host_and_port(place, text)
        return cls(
            scheme,
            unquote(user) if at else None,
            unquote(password) if colon else None,
            host or DEFAULT_URL,
            port,
            path,
        )

    @property
    def text(self) -> str:
        """URL of the peer, without user, password and path."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{_SCHEMES[self.scheme] if self.port is None else self.port}"


def _host_and_port(place: str, text: str) -> tuple[str, int | None]:
    if place.startswith("["):
        host, bracket, rest = place[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"Invalid URL '{text}': bad address in brackets")
        port = rest[1:]
    else:
        host, _, port = place.rpartition(":") if ":" in place else (place, "", "")
    if not port:
        return host, None
    number = _SCHEMES.get(port) or (int(port) if port.isascii() and port.isdigit() else 0)
    if not 0 < number < 65536:
        raise ValueError(f"Invalid URL '{text}': bad port '{port}'")
    return host, number


class TlsOptions(Struct, frozen=True):
    """TLS options; None for those not given."""

    certificate: str | None
    key: str | None
    trust_file: str | None
    password: str | None
    verify_name: bool


class SaslOptions(Struct, frozen=True):
    """SASL options, including user and password from the URL."""

    mechanisms: str | None
    user: str | None
    password: str | None


class QueryTarget(Struct, frozen=True):
    """Router to query, and options of the connection.

    `tls` None: no TLS, or with `amqps` the system's defaults. `sasl` None: no SASL layer.
    """

    url: ManagementUrl
    address: str
    timeout: float
    tls: TlsOptions | None
    sasl: SaslOptions | None


class Parser(argparse.ArgumentParser):
    """Parser of a tool's command line, with common options. Errors print usage and text on stderr; exit code 2."""

    def __init__(self, prog: str, description: str, usage: str | None = None) -> None:
        super().__init__(prog=prog, description=description, usage=usage)
        self.add_argument("--version", action="version", version=VERSION)
        self.add_argument("-v", "--verbose", action="store_true", help="Show maximum detail")


def add_target_options(parser: argparse.ArgumentParser, *, all_routers: bool = False) -> None:
    """Add the mutually exclusive options that select a router (brokers-and-edge.md ED-23)."""
    group = parser.add_mutually_exclusive_group(required=False)
    if all_routers:
        group.add_argument("--all-routers", action="store_true", help="Show entities for all routers in the network")
    group.add_argument("-r", "--router", metavar="ROUTER-ID", help="Router to be queried")
    group.add_argument("-d", "--edge-router", metavar="EDGE-ROUTER-ID", help="Edge router to be queried")


def add_connection_options(parser: argparse.ArgumentParser, *, bus: bool = True) -> None:
    """Add the options of the connection; with `bus`, also the one for its URL.

    Commands of `sluice` also get --context. Their values of `bus` and `timeout` are None if not given; `target` fills
    them in.
    """
    group = parser.add_argument_group("Connection", "Connection Options")
    add = group.add_argument
    contexts = bus and parser.prog.startswith("sluice ")
    if bus:
        default = f"that of the context, or {DEFAULT_URL}" if contexts else DEFAULT_URL
        add(
            "-b",
            "--bus",
            default=None if contexts else DEFAULT_URL,
            metavar="URL",
            help=f"URL of the router: [amqp[s]://][user[:pass]@]host[:port][/path], default {default}",
        )
    if contexts:
        add("--context", metavar="NAME", help="context with the router and its options: see `sluice context`")
    add(
        "-t",
        "--timeout",
        type=float,
        default=None if contexts else DEFAULT_TIMEOUT,
        metavar="SECS",
        help=f"Maximum time to wait for the connection and for each answer in seconds, default {DEFAULT_TIMEOUT:g}",
    )
    add("--ssl-certificate", metavar="CERT", help="Client SSL certificate (PEM Format)")
    add("--ssl-key", metavar="KEY", help="Client SSL private key (PEM Format)")
    add("--ssl-trustfile", metavar="TRUSTED-CA-DB", help="Trusted Certificate Authority Database file (PEM Format)")
    add("--ssl-password", metavar="PASSWORD", help="Certificate password")
    add("--ssl-password-file", metavar="SSL-PASSWORD-FILE", help="File of the certificate password")
    add("--sasl-mechanisms", metavar="SASL-MECHANISMS", help="SASL mechanisms that may be used, separated by blanks")
    add("--sasl-username", metavar="SASL-USERNAME", help="User name for SASL plain authentication")
    add("--sasl-password", metavar="SASL-PASSWORD", help="Password for SASL plain authentication")
    add("--sasl-password-file", metavar="SASL-PASSWORD-FILE", help="File of the password for SASL plain authentication")
    add(
        "--ssl-disable-peer-name-verify",
        action="store_true",
        help="Disables SSL peer name verification. WARNING - This option is insecure and must not be used in "
        "production environments",
    )


def target(options: argparse.Namespace) -> QueryTarget:
    """Evaluate the options. Raises ValueError for an invalid URL, OSError for an unreadable password file.

    `options.bus` is the URL afterwards, if it was that of a context.
    """
    _apply_context(options)
    url = ManagementUrl.parse(options.bus)
    tls = None
    if options.ssl_certificate or options.ssl_trustfile:
        url = replace(url, scheme="amqps")
        tls = TlsOptions(
            options.ssl_certificate,
            options.ssl_key,
            options.ssl_trustfile,
            _secret(options.ssl_password, options.ssl_password_file),
            not options.ssl_disable_peer_name_verify,
        )
    elif url.scheme == "amqps" and options.ssl_disable_peer_name_verify:
        tls = TlsOptions(None, None, None, None, verify_name=False)
    user = options.sasl_username or url.user
    password = _secret(options.sasl_password or url.password, options.sasl_password_file)
    sasl = None
    if options.sasl_mechanisms or user or password is not None or url.scheme == "amqps":
        sasl = SaslOptions(options.sasl_mechanisms, user, password)
    return QueryTarget(url, address(url.path, options.router, options.edge_router), options.timeout, tls, sasl)


def _apply_context(options: argparse.Namespace) -> None:
    """Fill in what the command line does not say: from the context in use, else defaults. Raises ContextError."""
    name = getattr(options, "context", None)
    if options.bus is None or name is not None:
        from sluice.router.cli.contexts import SECRETS, active_options, secret  # not needed with -b

        for option, value in active_options(name).items():
            if option == "url":
                options.bus = options.bus or value
                continue
            attribute = option.replace("-", "_")
            given = getattr(options, attribute) or getattr(options, f"{attribute}_file", None)
            if not given:
                setattr(options, attribute, secret(str(value)) if option in SECRETS else value)
    options.bus = options.bus or DEFAULT_URL
    options.timeout = DEFAULT_TIMEOUT if options.timeout is None else options.timeout


def _secret(text: str | None, path: str | None) -> str | None:
    if not path:
        return text
    with open(path) as file:
        return file.read().strip()


def router_of(address: str) -> str | None:
    """Return the router id in the management address of a remote router, interior or edge; None for other addresses."""
    match address.split("/"):
        case ["_topo", _, router, _] | ["_edge", router, _]:
            return router
    return None


def address(path: str, router: str | None, edge_router: str | None) -> str:
    """Return the management address: the path of the URL, else the address of the named router."""
    if path:
        return path
    if router:
        return f"_topo/0/{router}/{MANAGEMENT}"
    if edge_router:
        return f"_edge/{edge_router}/{MANAGEMENT}"
    return MANAGEMENT

"""Connection of a tool to a router, on the project's client (management.md 8.1 and 8.2)."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn, TypeVar

from sluice.router.cli.errors import SendException, SSLException, Timeout, connection_error, link_error
from sluice.router.cli.options import QueryTarget, TlsOptions
from sluice.router.client.attach import Terminus
from sluice.router.client.blocking import SyncConnection, SyncReceiver, SyncSender, connect
from sluice.router.client.errors import ClientError, ConnectionFailedError, LinkDetachedError, UnsettledError
from sluice.router.client.message import Message
from sluice.router.client.outcome import Rejected, Released
from sluice.router.client.tls import Tls

#: Octets of an answer. Pages of 500 rows have about a megabyte. A router that sends more than this is not believed.
ANSWER_MOST: Final = 1 << 26
CLOSE_PATIENCE: Final = 1.0  # seconds, at most, that `close` waits for the router's close

T = TypeVar("T")


class ToolConnection:
    """Connection to a router. Not thread-safe. Raises the errors of `errors`."""

    def __init__(self, target: QueryTarget, *, idle: float = 0.0) -> None:
        """Connect. idle: seconds after which a silent router is disconnected. 0: never, for a tool that waits for its
        user and then reads nothing; each of its requests has a limit of its own."""
        self._url = target.url.text
        self._host = target.url.host
        self._timeout = target.timeout
        self._layer: str | None = "AMQP" if target.sasl is None else "SASL"
        self._container = str(uuid.uuid4())
        self._links: list[tuple[str, SyncSender | SyncReceiver]] = []  # each with the words that name it in errors
        with self.translated("Opening connection"):
            options = _options(target, self._container)
            self._connection = connect(self._url, timeout=target.timeout, idle=idle, **options)
        self._layer = None

    @property
    def client(self) -> SyncConnection:
        """Connection of the client, for calls within `translated`."""
        return self._connection

    def close(self) -> None:
        """Close the connection; ignore a router that does not answer."""
        with contextlib.suppress(ClientError):  # all answers have been read, so errors do not matter
            self._connection.close(timeout=min(self._timeout, CLOSE_PATIENCE))

    def sender(self, address: str) -> SyncSender:
        """Attach a sender."""
        name = f"{self._container}-{address}"
        with self.translated(f"Opening link {name}", f"sender {name} to {address}"):
            sender = self._connection.sender(address, name=name, timeout=self._timeout)
        self._links.append((f"sender {name} to {address}", sender))
        return sender

    def receiver(self) -> SyncReceiver:
        """Attach a receiver with an address that the router generates, without credit."""
        name = f"{self._container}-{uuid.uuid4()}"
        with self.translated(f"Opening link {name}", f"receiver {name} from None"):
            source = Terminus(dynamic=True)
            receiver = self._connection.receiver(
                None, source=source, name=name, window=0, max_message_size=ANSWER_MOST, timeout=self._timeout
            )
        self._links.append((f"receiver {name} from None", receiver))
        return receiver

    def send(self, sender: SyncSender, message: Message) -> None:
        """Send a message and wait until the router has settled it. Raises SendException if it was not accepted."""
        name = sender.state.name
        with self.translated(f"Sending on sender {name}", f"sender {name} to {sender.address}"):
            try:
                outcome = sender.send(message, timeout=self._timeout)
            except UnsettledError as error:
                sender.state.check()
                raise self._connection.core.error or ConnectionFailedError() from error
        if isinstance(outcome, Rejected | Released):
            raise SendException(str(outcome.code))

    def wait(self, condition: Callable[[], T], timeout: float | None, what: str = "") -> T:
        """Run the connection until `condition()` is true, and return its value. `timeout` None: no limit."""

        def checked() -> T:
            value = condition()
            if not value:
                self._check_links()
            return value

        with self.translated(what):
            return self._connection.wait(checked, timeout)

    def _check_links(self) -> None:
        for what, link in self._links:
            try:
                link.state.check()
            except LinkDetachedError as error:
                raise link_error(what, error) from error

    @contextlib.contextmanager
    def translated(self, what: str, link: str = "") -> Iterator[None]:
        """Replace errors of the client by those of the tools. what: is waited for; link: names the link used."""
        try:
            yield
        except TimeoutError as error:
            raise Timeout(f"Connection {self._url} timed out{what and ': ' + what}") from error
        except LinkDetachedError as error:
            raise link_error(link, error) from error
        except ConnectionFailedError as error:
            self._raise_failure(error)

    def _raise_failure(self, error: ConnectionFailedError) -> NoReturn:
        raise connection_error(self._url, self._host, error, layer=self._layer) from error


def _options(target: QueryTarget, container: str) -> dict[str, Any]:
    """Return the options of the client."""
    options: dict[str, Any] = {
        "container": container,
        "sasl": target.sasl is not None,
        "allow_insecure_mechs": True,  # as in 1.19, whose tools send PLAIN without TLS, too
        "handshake": 0.0,  # limited by the time-out of `connect`
    }
    if target.sasl is not None:
        from sluice.router.sasl.client import CLIENT_MECHANISMS  # 20 ms that tools without SASL do not need

        sasl = target.sasl
        # All mechanisms: a user may log in as ANONYMOUS if the router offers nothing else, as with 1.19's tools.
        options["mechanisms"] = tuple((sasl.mechanisms or "").split()) or CLIENT_MECHANISMS
        if sasl.user is not None and sasl.password is not None:
            options["login"] = (sasl.user, sasl.password)
    if target.tls is not None:
        options["tls"] = _tls(target.tls)
    return options


def _tls(given: TlsOptions) -> Tls:
    """Return the client's TLS settings. Raises SSLException for a file that cannot be used."""
    authorities = Tls(ca_file=given.trust_file or None, verify_host=given.verify_name)
    with _with_error_text(f"{given.trust_file} has no authorities that can be read"):
        authorities.context()
    if not given.certificate:
        return authorities
    key = given.key or given.certificate
    text = f"the certificate {given.certificate} cannot be used with the key {key} and the password given"
    settings = Tls(
        ca_file=authorities.ca_file,
        certificate=given.certificate,
        key=given.key or None,
        password=given.password,
        verify_host=given.verify_name,
    )
    with _with_error_text(text):
        settings.context()
    return settings


@contextlib.contextmanager
def _with_error_text(text: str) -> Iterator[None]:
    """Replace the error for a file by an SSLException with this text."""
    try:
        yield
    except OSError as error:
        raise SSLException(text) from error

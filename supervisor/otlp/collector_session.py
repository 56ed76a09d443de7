"""HTTP requests to a collector, and the check of the collector's answers (OTLP 1.x, "OTLP/HTTP Response").

The exporter of OpenTelemetry's SDK sends its requests through a session of the library `requests`. It ignores the
content of answers, takes redirections for success, and reads answers of any size. This session checks them.
"""

import ssl
from collections.abc import Callable
from typing import Any, Final

import requests
from google.protobuf.message import DecodeError
from requests.exceptions import RequestException, SSLError, Timeout
from urllib3 import Timeout as TotalTimeout
from urllib3.exceptions import ReadTimeoutError

from sluice.router.answer_deadline import DeadlineAdapter

MOST_ANSWER: Final = 1 << 16  # octets of an answer, decompressed; an answer has a number and an error text
READ_SIZE: Final = 4096
_TYPE: Final = "application/x-protobuf"


# Decode the content of an answer to an export, and return its number of rejected spans, records or data points. Raises
# DecodeError.
Rejected = Callable[[bytes], int]


class AnswerError(Exception):
    """Answer of a collector that is none to an export. Its text is for the log."""


class CollectorSession(requests.Session):
    """Session of the exporter of one signal for one collector. Owner: its `Exporter`."""

    def __init__(self, rejected: Rejected) -> None:
        super().__init__()
        self._decode: Final = rejected
        self.failure = ""  # why the last request failed, for the log; empty if it succeeded
        self.rejected = 0  # spans, records or data points that the last answer does not accept
        for scheme in ("http://", "https://"):
            self.mount(scheme, DeadlineAdapter())

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """Send a request, and return the collector's answer, which is read and closed.

        kwargs: `timeout` in seconds for the request and its answer; others as of `requests`. Raises AnswerError, and
        the exceptions of `requests`.
        """
        self.failure, self.rejected = "", 0
        total = TotalTimeout(total=kwargs["timeout"])
        kwargs |= {"stream": True, "allow_redirects": False, "timeout": total}
        if self.verify is not True:
            kwargs["verify"] = self.verify  # otherwise REQUESTS_CA_BUNDLE of the environment overrides caCertFile
        try:
            found = super().send(request, **kwargs)
            try:
                self._check(found)
            finally:
                found.close()
        except Exception as error:
            self.failure = _reason(error)
            raise
        return found

    def _check(self, found: requests.Response) -> None:
        """Read an answer. Raises AnswerError unless it is one to an export, or an error that the SDK handles."""
        if found.status_code >= 400:
            self.failure = f"HTTP status {found.status_code}"
            return
        if not 200 <= found.status_code < 300:
            raise AnswerError(f"HTTP status {found.status_code}, which is neither success nor an error")
        content = b""
        for octets in found.iter_content(READ_SIZE):
            content += octets
            if len(content) > MOST_ANSWER:
                raise AnswerError(f"the collector's answer has more than {MOST_ANSWER} octets")
        self.rejected = self._count_rejected(content, found.headers.get("content-type", _TYPE))

    def _count_rejected(self, content: bytes, media_type: str) -> int:
        """Return the number of rejected spans, records or data points; no content: 0. Raises AnswerError."""
        if not content:
            return 0
        if media_type.split(";")[0].strip().lower() != _TYPE:
            raise AnswerError(f"the collector's answer is not of the type {_TYPE}")
        try:
            return max(self._decode(content), 0)
        except DecodeError:
            raise AnswerError("the collector's answer cannot be decoded") from None


def _tls_reason(error: BaseException) -> str:
    """Return the reason of a failure of TLS, in the words of OpenSSL."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        # urllib3 passes the error of OpenSSL as an argument of its own.
        inner = cause.args[0] if cause.args else None
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the collector's certificate is not trusted: {cause.verify_message}"
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "TLS fails: the collector ended the connection"
    words = None if cause is None else cause.reason
    return f"TLS fails: {(words or 'unknown error').replace('_', ' ').lower()}"


def _reason(error: Exception) -> str:
    """Return the reason of a failure, without text of the peer."""
    if isinstance(error, AnswerError):
        return str(error)
    if isinstance(error, SSLError):
        return _tls_reason(error)
    # `requests` reports a time-out within the content as a ConnectionError.
    if isinstance(error, Timeout) or (error.args and isinstance(error.args[0], ReadTimeoutError)):
        return "the collector does not answer in time"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "no connection, or it is closed without an answer"
    if isinstance(error, OSError) and not isinstance(error, RequestException):
        return str(error)  # of the file caCertFile
    return type(error).__name__

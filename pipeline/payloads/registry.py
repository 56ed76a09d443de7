"""Client of a schema registry with the REST API of Confluent (also Karapace, Apicurio's `ccompat`, Redpanda).

Schemas with an id never change, so each process asks for one once. The password is read in each process, so that it is
in no plan and no log.
"""

import os
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import requests
from requests.auth import HTTPBasicAuth
from urllib3 import Timeout
from urllib3.util.retry import Retry

from sluice.pipeline.errors import PipelineOptionError, RegistryError
from sluice.pipeline.options import RegistryOptions
from sluice.router import json_codec
from sluice.router.answer_deadline import DeadlineAdapter

#: Seconds to connect, and for a request with its whole answer.
CONNECT_SECONDS, ANSWER_SECONDS = 5, 25
#: Octets of an answer.
ANSWER_MOST = 1 << 20
#: Schemas, and octets of their texts, that a process keeps.
KEPT_MOST, KEPT_OCTETS = 1000, 32 << 20
#: Schemas that a schema may refer to, directly or not.
REFERENCES_MOST = 100
#: Codes of the API for a schema, a subject or a version that does not exist.
MISSING = (40401, 40402, 40403)
#: Form of Protobuf schemas: a FileDescriptorProto in base64, instead of the text of a .proto file.
SERIALIZED = "?format=serialized"


class Reference(NamedTuple):
    """Schema of a subject to which another one refers, by a name that depends on the format."""

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """Schema of the registry. kind: "avro", "json" or "protobuf"."""

    kind: str
    text: str
    references: tuple[Reference, ...]


class CountedRetry(Retry):
    """Repetitions of a request, of which `count` is notified with the request's path and its error."""

    @staticmethod
    def count(path: str, reason: str) -> None:
        """Count a repetition; replaced for each registry."""

    def new(self, **words: Any) -> Self:
        following = super().new(**words)
        following.count = self.count  # type: ignore[method-assign]
        return following

    def increment(
        self,
        method: str | None = None,
        url: str | None = None,
        response: Any = None,
        error: Exception | None = None,
        _pool: Any = None,
        _stacktrace: Any = None,
    ) -> Self:
        following = super().increment(method, url, response, error, _pool, _stacktrace)
        self.count(url or "", f"status {response.status}" if response is not None else type(error).__name__)
        return following


#: Repetitions of a request that got no answer, or one of these statuses; after 0, 1, 2 and 4 s, because a registry's
#: header Retry-After may ask for hours.
RETRIES = CountedRetry(
    4,
    backoff_factor=0.5,
    status_forcelist=(429, 500, 502, 503, 504),
    raise_on_status=False,
    respect_retry_after_header=False,
)


class SchemaRegistry:
    """Registry at a URL. Instances are pickled, without the password and the count of retries."""

    def __init__(self, options: RegistryOptions) -> None:
        self.url = options.url.rstrip("/")
        self._options = options
        self._session: requests.Session | None = None
        self._retries = 0  # since `take_retries`
        self._retry_error: str | None = None  # last one, after its time (UTC), so that the latest is the greatest

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None, "_retries": 0, "_retry_error": None}

    def take_retries(self) -> tuple[int, str | None]:
        """Return the number of requests that were repeated since the last call, and the last reason for one."""
        taken = self._retries, self._retry_error
        self._retries, self._retry_error = 0, None
        return taken

    def _count_retry(self, path: str, reason: str) -> None:
        self._retries += 1
        self._retry_error = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {path}: {reason}"

    def schema(self, number: int, kind: str) -> RegisteredSchema | None:
        """Return the schema with an id; None if there is none. Raises RegistryError."""
        return self._kept(f"/schemas/ids/{number}", kind)

    def latest(self, subject: str, kind: str) -> RegisteredSchema | None:
        """Return the latest schema of a subject; None if there is no such subject. Raises RegistryError."""
        return self._parsed(f"/subjects/{quote(subject, safe='')}/versions/latest", kind)

    def references(self, schema: RegisteredSchema) -> list[tuple[str, RegisteredSchema]]:
        """Return the schemas to which one refers, with their names; each after those that it refers to itself.

        Raises RegistryError.
        """
        found: dict[str, RegisteredSchema] = {}
        self._collect(schema, found, ())
        return list(found.items())

    def _collect(self, schema: RegisteredSchema, found: dict[str, RegisteredSchema], inside: tuple[str, ...]) -> None:
        for name, subject, version in schema.references:
            if name in found:
                continue
            if name in inside or len(found) + len(inside) >= REFERENCES_MOST:
                raise RegistryError(f"schema registry {self.url}: schema {name!r} refers to itself, or to too many")
            path = f"/subjects/{quote(subject, safe='')}/versions/{version}"
            one = self._kept(path, schema.kind)
            if one is None:
                raise RegistryError(f"schema registry {self.url}: {path} does not exist, and a schema refers to it")
            self._collect(one, found, (*inside, name))
            found[name] = one

    def _kept(self, path: str, kind: str) -> RegisteredSchema | None:
        """Return the schema at a path whose content never changes."""
        key = (self.url, path, kind)
        found = _kept.get(key)
        if found is None:
            found = self._parsed(path, kind)
            if found is not None:
                _kept[key] = found
                while len(_kept) > KEPT_MOST or sum(len(each.text) for each in _kept.values()) > KEPT_OCTETS:
                    _kept.popitem(last=False)
        return found

    def _parsed(self, path: str, kind: str) -> RegisteredSchema | None:
        answer = self._get(path + (SERIALIZED if kind == "protobuf" else ""))
        if answer is None:
            return None
        try:
            references = tuple(
                Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in answer.get("references") or ()
            )
            return RegisteredSchema(str(answer.get("schemaType") or "AVRO").lower(), str(answer["schema"]), references)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise RegistryError(f"schema registry {self.url}: {path} has no schema") from None

    def _get(self, path: str) -> Any:
        """Return the answer to a request; None if what it asks for does not exist. Raises RegistryError."""
        where = f"schema registry {self.url}: {path}"
        if self._session is None:
            self._session = self._made_session()
        timeout: Any = Timeout(connect=CONNECT_SECONDS, total=ANSWER_SECONDS)  # not in the types of requests
        try:
            # `verify` of a session is overridden by the environment's REQUESTS_CA_BUNDLE, that of a request is not.
            with self._session.get(
                self.url + path,
                timeout=timeout,
                allow_redirects=False,
                stream=True,
                verify=self._options.ca_file or None,
            ) as response:
                octets = response.raw.read(ANSWER_MOST + 1)
                status = response.status_code
        except (requests.RequestException, OSError, ValueError) as error:
            raise RegistryError(f"{where}: no answer ({type(error).__name__})") from None
        except Exception as error:  # urllib3's errors while the content is read  # noqa: BLE001
            raise RegistryError(f"{where}: the answer is cut short ({type(error).__name__})") from None
        if len(octets) > ANSWER_MOST:
            raise RegistryError(f"{where}: the answer has more than {ANSWER_MOST} octets")
        if status in (401, 403):
            raise RegistryError(f"{where}: status {status}: it does not accept the user and password")
        try:
            answer = json_codec.decode(octets)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            if status == 200:
                return answer
            if status == 404 and answer.get("error_code") in MISSING:
                return None
        raise RegistryError(f"{where}: status {status}, and not an answer of a schema registry")

    def _made_session(self) -> requests.Session:
        session = requests.Session()
        session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
        if self._options.user:
            session.auth = HTTPBasicAuth(self._options.user.encode(), self._password().encode())
        session.headers["Accept-Encoding"] = "identity"  # a compressed answer could expand to any size
        retries = RETRIES.new()
        retries.count = self._count_retry  # type: ignore[method-assign]
        for scheme in ("http://", "https://"):
            session.mount(scheme, DeadlineAdapter(max_retries=retries))
        return session

    def _password(self) -> str:
        """Return the password. Raises PipelineOptionError."""
        name = self._options.password_env
        if name:
            found = os.environ.get(name)
            if found is None:
                raise PipelineOptionError(f"option schemaRegistryPasswordEnv: {name} is not set here")
            return found
        try:
            return Path(self._options.password_file).read_text(encoding="utf-8").partition("\n")[0]
        except (OSError, UnicodeDecodeError) as error:
            raise PipelineOptionError(f"option schemaRegistryPasswordFile: {error}") from None


#: Schemas of this process, by (URL, path, kind).
_kept: OrderedDict[tuple[str, str, str], RegisteredSchema] = OrderedDict()

"""Choice of the authentication provider for a listener, and the configuration of the authentication process."""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from sluice.router.config.entities import (
    AuthServiceConfig,
    Configuration,
    ListenerConfig,
    RouterConfig,
    SaslUsersConfig,
    TokenIssuerConfig,
)
from sluice.router.config.entity import EntityConfig
from sluice.router.config.schema import SCHEMA
from sluice.supervisor.auth.messages import (
    Configure,
    ExchangeContext,
    LibrarySettings,
    Service,
    ServiceTls,
    TokenIssuer,
    UsersFile,
)

# Mechanisms that need no provider.
PLAIN_MECHANISMS: Final = frozenset({"ANONYMOUS", "EXTERNAL"})
_DEFAULT_NAME: Final = SCHEMA.types["router"].attributes["saslConfigName"].default

_Entity = TypeVar("_Entity", bound=EntityConfig)
FindPassword = Callable[[str], str]  # return the password that `password` of an sslProfile refers to


def uses_library(listener: ListenerConfig, router: RouterConfig) -> bool:
    """True if libsasl2 serves a listener (security.md S-1).

    The listener must name no other provider. In addition the library must be configured, or the listener must demand
    mechanisms that only the library can offer.
    """
    if listener.sasl_plugin is not None or listener.sasl_users is not None or listener.token_issuers:
        return False
    if router.sasl_config_dir is not None or router.sasl_config_name != _DEFAULT_NAME:
        return True
    if listener.sasl_mechanisms is None:
        return listener.authenticate_peer and listener.values.get("sslProfile") is None
    return not PLAIN_MECHANISMS.issuperset(listener.sasl_mechanisms)


def asks_supervisor(listener: ListenerConfig, router: RouterConfig) -> bool:
    """True if workers must ask the supervisor about logins at a listener; otherwise they decide without it."""
    if not listener.speaks_amqp:
        return False
    named = listener.sasl_plugin is not None or listener.sasl_users is not None or bool(listener.token_issuers)
    return named or uses_library(listener, router)


def exchange_context(
    listener: ListenerConfig,
    router: RouterConfig,
    connection: int,
    peer: str,
    external: str | None,
    encryption: int,
    binding: bytes | None = None,
) -> ExchangeContext:
    """Return the context of a SASL exchange. peer: `ip:port`. Other parameters: see ExchangeContext."""
    return ExchangeContext(
        connection=connection,
        host=peer.rpartition(":")[0],
        users=listener.sasl_users,
        issuers=list(listener.token_issuers),
        service=listener.sasl_plugin,
        library=uses_library(listener, router),
        mechanisms=None if listener.sasl_mechanisms is None else list(listener.sasl_mechanisms),
        anonymous=not listener.authenticate_peer,
        external=external,
        encryption=encryption,
        binding=binding,
    )


def providers(configuration: Configuration, serial: int, find_password: FindPassword) -> Configure | None:
    """Return the configuration of all providers; None if no listener needs any."""
    router = configuration.router
    listeners = [each for each in configuration.listeners if asks_supervisor(each, router)]
    if not listeners:
        return None
    library = any(uses_library(each, router) for each in listeners)
    profiles = {each.name: each for each in configuration.of_type("sslProfile")}
    return Configure(
        serial=serial,
        users=[UsersFile(each.name, each.users_file, each.user_prefix) for each in _of(configuration, SaslUsersConfig)],
        issuers=[_issuer(each) for each in _of(configuration, TokenIssuerConfig)],
        services=[
            _service(each, profiles.get(each.ssl_profile or ""), find_password)
            for each in _of(configuration, AuthServiceConfig)
        ],
        library=LibrarySettings(name=router.sasl_config_name, folder=router.sasl_config_dir) if library else None,
    )


def _of(configuration: Configuration, kind: type[_Entity]) -> Iterable[_Entity]:
    return (each for each in configuration.of_type(kind.type) if isinstance(each, kind))


def _issuer(config: TokenIssuerConfig) -> TokenIssuer:
    return TokenIssuer(
        name=config.name,
        issuer=config.issuer,
        audiences=config.audiences,
        algorithms=config.algorithms,
        jwks_file=config.jwks_file,
        jwks_url=config.jwks_url,
        ca_file=config.ca_cert_file,
        refresh_seconds=config.refresh_seconds,
        leeway_seconds=config.leeway_seconds,
        user_claim=config.user_claim,
        group_claim=config.group_claim,
        user_prefix=config.user_prefix,
    )


def _service(config: AuthServiceConfig, profile: EntityConfig | None, find_password: FindPassword) -> Service:
    tls = None
    if profile is None and config.ssl_profile is not None:
        tls = ServiceTls(fault=f"there is no sslProfile '{config.ssl_profile}'")
    elif profile is not None:
        values: Any = profile.values
        written = values.get("password")
        tls = ServiceTls(
            ca_file=values.get("caCertFile"),
            cert_file=values.get("certFile"),
            key_file=values.get("privateKeyFile"),
            password=None if written is None else find_password(written),
            ciphers=values.get("ciphers"),
            protocols=values.get("protocols"),
        )
    return Service(name=config.name, host=config.host, port=config.port, realm=config.realm, tls=tls)

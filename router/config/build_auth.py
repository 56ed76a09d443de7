"""Conversion of validated authentication entities to typed objects: users, token issuers, authentication services."""

from collections.abc import Iterable
from typing import Any

from sluice.router.config.entities import AuthServiceConfig, ListenerConfig, SaslUsersConfig, TokenIssuerConfig
from sluice.router.config.entity import EntityConfig
from sluice.router.config.errors import Problems
from sluice.router.config.ports import port_number
from sluice.router.config.validate import Entity
from sluice.router.config.web_urls import web_url_fault
from sluice.router.sasl import users

# Algorithms of signatures with public keys (RFC 7518, RFC 8037). HMACs are excluded, since their key also signs.
TOKEN_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


def split_words(text: str | None) -> tuple[str, ...]:
    """Split names separated by blanks or commas."""
    return tuple((text or "").replace(",", " ").split())


def build_sasl_users(entity: Entity) -> SaslUsersConfig:
    """Build a saslUsers entity. Whether its file is readable is checked by `check_users_file`."""
    return SaslUsersConfig(
        **_common(entity),
        users_file=entity.text("file"),
        user_prefix=entity.text("userPrefix"),
        closes_deleted=entity.text("onChange") == "close",
    )


def check_users_file(entity: Entity, problems: Problems) -> None:
    """Record an error for an invalid file of users. Reading it may block, so do not call this in the event loop."""
    path = entity.text("file")
    try:
        users.read(path)
    except OSError as error:
        problems.error(entity.line_of("file"), f"{entity.type.long_name}: file '{path}': {error.strerror or error}")
    except ValueError as error:  # UsersError, or a NUL in the path
        problems.error(entity.line_of("file"), f"{entity.type.long_name}: file '{path}': {error}")


def build_token_issuer(entity: Entity, problems: Problems) -> TokenIssuerConfig:
    """Build a token issuer."""
    file, url = entity.optional_text("jwksFile"), entity.optional_text("jwksUrl")
    if (file is None) == (url is None):
        problems.error(entity.line, f"{entity.type.long_name}: one of jwksFile and jwksUrl must be given")
    fault = None if url is None else web_url_fault(url, ("https",))
    if fault is not None:
        problems.error(entity.line_of("jwksUrl"), f"{entity.type.long_name}: jwksUrl: {fault}")
    audiences = split_words(entity.optional_text("audience"))
    if not audiences:
        text = f"{entity.type.long_name}: attribute 'audience' must name the recipients of the tokens"
        problems.error(entity.line_of("audience"), text)
    asked = split_words(entity.optional_text("algorithms"))
    unknown = [name for name in asked if name not in TOKEN_ALGORITHMS]
    if unknown:
        allowed = " ".join(TOKEN_ALGORITHMS)
        text = f"{entity.type.long_name}: algorithm '{unknown[0]}' is not supported (supported: {allowed})"
        problems.error(entity.line_of("algorithms"), text)
    return TokenIssuerConfig(
        **_common(entity),
        issuer=entity.text("issuer"),
        audiences=audiences,
        algorithms=asked or TOKEN_ALGORITHMS,
        jwks_file=file,
        jwks_url=url,
        ca_cert_file=entity.optional_text("caCertFile"),
        refresh_seconds=entity.number("refreshSeconds"),
        leeway_seconds=entity.number("leewaySeconds"),
        user_claim=entity.text("userClaim"),
        group_claim=entity.optional_text("groupClaim"),
        user_prefix=entity.text("userPrefix"),
    )


def build_auth_service(entity: Entity, problems: Problems) -> AuthServiceConfig:
    """Build an authentication service. Without `host`, the deprecated `authService: HOST:PORT` is used."""
    host, port_text = entity.text("host").strip(), entity.text("port").strip()
    written = entity.optional_text("authService")
    if written is not None:
        text = (
            "Attribute 'authService' of entity 'authServicePlugin' has been deprecated. Use 'host' and 'port' instead"
        )
        problems.warn("CONN_MGR", entity.line_of("authService"), text)
        if not host:
            host, colon, port = written.strip().rpartition(":")
            host, port_text = (host.strip("[]"), port) if colon else (port, port_text)
    if not host:
        problems.error(entity.line, f"{entity.type.long_name}: the host of the service must be given")
    return AuthServiceConfig(
        **_common(entity),
        host=host,
        port_text=port_text,
        port=port_number(port_text, entity, problems),
        realm=entity.optional_text("realm") or None,
        ssl_profile=entity.optional_text("sslProfile"),
    )


def _common(entity: Entity) -> dict[str, Any]:
    """Return the fields that entities with required names have in common."""
    name = entity.text("name")
    return {
        "name": name,
        "identity": f"{entity.type.name}/{name}",
        "named": True,
        "line": entity.line or None,
        "values": entity.values,
    }


def check_providers(
    listener: ListenerConfig, others: Iterable[EntityConfig], entity: Entity, problems: Problems
) -> None:
    """Record an error for a listener that names unknown providers, or providers that exclude each other."""
    known: dict[str, set[str]] = {}
    for other in others:
        known.setdefault(other.type, set()).add(other.name)
    if listener.sasl_plugin is not None and listener.sasl_plugin not in known.get(AuthServiceConfig.type, ()):
        problems.error(entity.line_of("saslPlugin"), f"Cannot find sasl plugin {listener.sasl_plugin}")
    if listener.sasl_users is not None and listener.sasl_users not in known.get(SaslUsersConfig.type, ()):
        problems.error(entity.line_of("saslUsers"), f"Cannot find saslUsers {listener.sasl_users}")
    for name in listener.token_issuers:
        if name not in known.get(TokenIssuerConfig.type, ()):
            problems.error(entity.line_of("tokenIssuers"), f"Cannot find tokenIssuer {name}")
    if listener.sasl_plugin is not None and (listener.sasl_users is not None or listener.token_issuers):
        text = f"{entity.type.long_name}: saslPlugin cannot be combined with saslUsers or tokenIssuers"
        problems.error(entity.line_of("saslPlugin"), text)

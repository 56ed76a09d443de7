"""TLS with OpenSSL: checked credentials, and facts about a connection's peer. Independent of sockets and processes."""

"""TLS by OpenSSL: credentials that were checked, and what a peer has presented. Knows no socket and no process."""

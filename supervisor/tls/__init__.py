"""TLS: credentials of sslProfiles on their way from files to workers, and user names from certificates."""

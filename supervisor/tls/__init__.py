"""TLS: the credentials of sslProfiles, from the files to the workers, and the names of users in certificates."""

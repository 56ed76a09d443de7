"""Authentication of clients: the authentication process, its providers, and the supervisor's end of it."""

"""Who clients are: the authentication process, what it holds, and the supervisor's end of it."""

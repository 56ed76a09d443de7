"""Child processes of the supervisor: programs of their own that it starts, restarts and ends."""

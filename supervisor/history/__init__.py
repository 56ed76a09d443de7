"""History of the router: its main figures over the last hour, day and month, and events. Decision 0080."""

"""Management agent: requests over AMQP, answered from the router's live state (management.md 5 and 6).

`request` and `response` decode requests and encode answers. `agent` decides which half answers: `core` the types with
columns (`links`, `addresses`, `connections`, `router`, `settings`), `store` all others (`entities`), and `operations`
the operations of the management entity.
"""

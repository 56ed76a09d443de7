"""The management agent: requests over AMQP, answered from the router's live state (management.md 5 and 6).

`request` and `response` turn octets into requests and answers into octets. `agent` decides which half answers: `core`
the types with columns (`links`, `addresses`, `connections`, `router`, `settings`), `store` all others (`entities`) and
`operations` what the management entity can do.
"""

"""Typed payloads: bodies of messages as columns of Spark, from JSON, Avro or Protobuf.

A codec has an Arrow type and turns the octets of one body into a value of it. Bodies come from clients: each codec
bounds what a body can make it allocate by the size of the body.
"""

FORMATS = ("json", "avro", "protobuf")
PAYLOAD, ERROR = "payload", "payload_error"

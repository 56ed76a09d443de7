"""Typed payloads: bodies of messages as columns of Spark, from JSON, Avro or Protobuf.

A codec has an Arrow type and turns the octets of one body into a value of it. Bodies come from clients: each codec
bounds what a body can make it allocate by the size of the body.
"""

FORMATS = ("json", "avro", "protobuf")
PAYLOAD, ERROR = "payload", "payload_error"
#: Columns of the option schemaRegistryRetries: requests that the task repeated since an earlier row; the last error.
RETRIES, RETRY_ERROR = "registry_retries", "registry_error"
#: Columns that the source makes from payloads.
MADE = (PAYLOAD, ERROR, RETRIES, RETRY_ERROR)

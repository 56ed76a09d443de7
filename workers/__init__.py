"""The worker process: event loop, transports, and the glue between engine, loop and supervisor."""

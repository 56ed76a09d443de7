"""Worker process: event loop, transports, and the code that connects the engine, the loop and the supervisor."""

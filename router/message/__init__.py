"""Messages: their sections, their content in chunks, and the annotations that routers write."""

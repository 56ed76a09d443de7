"""Links of a worker, from attach to detach."""

"""The links of a worker, from attach to detach."""

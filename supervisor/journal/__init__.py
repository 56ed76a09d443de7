"""Journal of changes for the workers: ops, epochs, acknowledgements, and the state of each worker's replica."""

"""Random legal misbehaviour from a seed; then all parties behave, and all work must complete."""

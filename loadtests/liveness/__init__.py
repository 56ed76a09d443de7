"""Random misbehaviour within the protocol from a seed; then everybody behaves, and everything must come to rest."""

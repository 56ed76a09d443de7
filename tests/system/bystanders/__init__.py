"""Well-behaved clients beside those of adversarial tests: docs/internals/tests.md, "Bystanders"."""

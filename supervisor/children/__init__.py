"""Child processes of the supervisor: the zygote and the workers, and programs of their own such as telemetry."""

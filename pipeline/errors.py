"""Exceptions for users of the pipeline. Each text is one line that names the fault and the remedy."""


class PipelineError(Exception):
    """Base class of all pipeline errors. `sluice pipeline` prints the text and exits with status 1."""


class MissingError(PipelineError):
    """Raised if a prerequisite is not installed or does not exist."""


class LandingError(PipelineError):
    """Raised if a landing folder or its content cannot be used."""


class OtherLogError(LandingError):
    """Raised for a segment of a log with another identity than expected: the log was made anew."""


class LockedError(LandingError):
    """Raised if another lander with the same id is running."""


class PipelineOptionError(PipelineError):
    """Raised for a wrong option of the source or sink, or for a wrong schema."""


class DataLossError(LandingError):
    """Raised if expected segments are missing."""


class PublishError(PipelineError):
    """Raised if messages could not be sent or were not accepted."""


class PermanentPublishError(PublishError):
    """Raised if sending again would fail in the same way: a message is rejected, an address is refused."""


class PayloadRefusedError(PipelineError):
    """Raised for a body that cannot be decoded, if the source is to fail at it."""


class RegistryError(PipelineError):
    """Raised if a schema registry cannot be reached, or answers otherwise than its API says."""


class FileError(PipelineError):
    """Raised if a telemetry file cannot be read."""

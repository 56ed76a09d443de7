"""What the pipeline raises for its user: each text is one line that says what is wrong and what to do."""


class PipelineError(Exception):
    """Base of all. `sluice pipeline` prints it as it is, and ends with 1."""


class MissingError(PipelineError):
    """Something that has to be installed, or to exist, is not there."""


class LandingError(PipelineError):
    """A landing folder, or what lies in it, cannot be used."""


class LockedError(LandingError):
    """Another lander has this id."""


class OptionError(PipelineError):
    """An option of the source or sink, or the schema that it is used with."""


class DataLossError(LandingError):
    """Segments that should be there are gone."""


class PublishError(PipelineError):
    """Messages could not be sent, or were not accepted."""


class FileError(PipelineError):
    """A file of telemetry cannot be read."""

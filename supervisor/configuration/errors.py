"""Error of a refused change of the configuration."""


class ChangeError(Exception):
    """Raised when a change cannot be made; nothing has changed. status: status code of a management response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text

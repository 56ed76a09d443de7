"""Why a change of the configuration was refused."""


class ChangeError(Exception):
    """A change that cannot be made; nothing has changed. `status`: as in an answer of the management protocol."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text

    def __str__(self) -> str:
        return self.text

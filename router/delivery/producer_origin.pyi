from sluice.router.policy.messages import MessageRules

class ProducerOrigin:
    def __init__(
        self,
        *,
        honour: bool = False,
        tenant: str | None = None,
        container: bool = False,
        rules: MessageRules | None = None,
        edge: int = 0,
        mark: bytes | None = None,
        checks: bool = False,
    ) -> None: ...

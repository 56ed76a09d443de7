from sluice.router.links.consumer_link import ConsumerLink

class LimitedConsumerLink(ConsumerLink):
    def limit_messages(self, octets: int) -> None: ...

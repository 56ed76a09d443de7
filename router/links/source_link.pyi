from sluice.router.links.consumer_link import ConsumerLink

class SourceLink(ConsumerLink):
    def produce(self, settled: bool) -> None: ...

from sluice.router.links.consumer_link import ConsumerLink
from sluice.router.ring.port_out import PortOut

def move_waiting(link: ConsumerLink, port: PortOut, slot: int, generation: int, most: int) -> bool: ...

from sluice.router.ring.port import WorkerPort
from sluice.router.routed.routed_link import OtherEnd

class RemoteEnd(OtherEnd):
    def __init__(self, port: WorkerPort, slot: int, generation: int, own_slot: int, own_generation: int) -> None: ...

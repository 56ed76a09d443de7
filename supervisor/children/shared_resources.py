"""Resources that the supervisor shares with its workers. They exist before the zygote, which inherits them."""

import os
from typing import Final

from sluice.router.ring.region import Region
from sluice.supervisor.children.channels import make_keys
from sluice.supervisor.children.private_directory import PrivateDirectory


class SharedResources:
    """Memory, signals, keys and directory that the supervisor and its workers share. Owner: `main`."""

    def __init__(self, workers: int, links_per_worker: int, addresses: int, ring_octets: int) -> None:
        """Create all resources. Raises OSError and RuntimeError.

        links_per_worker: link slots of a worker. addresses: address slots. ring_octets: size of the ring of each
        ordered pair of workers.
        """
        self.keys: Final = make_keys()  # of the channels between the processes
        self.region: Final = Region.create(workers, links_per_worker, addresses, ring_octets)
        # Event descriptors that wake a worker, by its index.
        self.eventfds: Final = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(workers)]
        self.directory: Final = PrivateDirectory()  # of the sockets between the processes

    def close(self) -> None:
        """Release all resources after the last worker has ended."""
        self.directory.remove()
        for descriptor in self.eventfds:
            os.close(descriptor)
        self.region.close()

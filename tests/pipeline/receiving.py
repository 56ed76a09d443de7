"""Receiver of the messages that a sink sends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from sluice.router.client.blocking import connect
from sluice.router.client.errors import ClientError
from sluice.router.client.links import Delivery
from sluice.router.client.message import Message

Settle = Callable[[Delivery], Any]


class ReceivingThread:
    """Receiver in a thread, until exit of the context; `settle` decides the outcome of each delivery."""

    def __init__(self, url: str, address: str, settle: Settle = Delivery.accept, window: int = 250) -> None:
        self.messages: list[Message] = []
        self.news = threading.Condition()
        self._ended = threading.Event()
        self._settle = settle
        self._connection = connect(url, timeout=10)
        self._receiver = self._connection.receiver(address, timeout=10, window=window)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._ended.is_set():
                try:
                    delivery = self._receiver.receive(timeout=0.1)
                except TimeoutError:
                    continue
                with self.news:
                    self.messages.append(delivery.message)
                    self.news.notify_all()
                self._settle(delivery)
        except ClientError as error:
            self._error = error
        finally:
            self._connection.close()

    def wait(self, count: int, timeout: float = 60.0) -> list[Message]:
        """Wait for `count` messages, and return all received ones."""
        with self.news:
            assert self.news.wait_for(lambda: len(self.messages) >= count, timeout), len(self.messages)
            return list(self.messages)

    def __enter__(self) -> ReceivingThread:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(10)

"""Blocking API: send COUNT messages to ADDRESS in one thread and receive them in another; print the bodies."""

import json
import sys
import threading

from proton import Message
from proton.utils import BlockingConnection

url, address, count = f"amqp://127.0.0.1:{sys.argv[1]}", sys.argv[2], int(sys.argv[3])
attached = threading.Event()
bodies: list[object] = []


def take() -> None:
    """Receive and accept all messages."""
    connection = BlockingConnection(url, timeout=20, allowed_mechs="ANONYMOUS")
    receiver = connection.create_receiver(address, credit=5)
    attached.set()
    for _ in range(count):
        bodies.append(receiver.receive(timeout=20).body)
        receiver.accept()
    connection.close()


thread = threading.Thread(target=take)
thread.start()
attached.wait(20)
connection = BlockingConnection(url, timeout=20, allowed_mechs="ANONYMOUS")
sender = connection.create_sender(address)
for number in range(count):
    sender.send(Message(body=number), timeout=20)
connection.close()
thread.join()
print(json.dumps(bodies))

"""Naive reader of WebSocket frames, written after RFC 6455 without regard for speed."""

from __future__ import annotations

CLOSES = {*range(1000, 1004), *range(1007, 1015), *range(3000, 5000)}


class NaiveFrameReader:
    """Reader of a complete input. payload, fault, closed, ping: as in the compiled reader."""

    def __init__(self, octets: bytes, masked: bool) -> None:
        self.payload = b""
        self.fault = 0
        self.closed = 0
        self.ping: bytes | None = None
        fragmented = False
        while octets and not self.fault and not self.closed:
            if len(octets) < 2:
                return
            final, opcode = bool(octets[0] & 0x80), octets[0] & 0x0F
            control = opcode >= 8
            size = octets[1] & 0x7F
            if (
                (octets[0] & 0x70)
                or bool(octets[1] & 0x80) != masked
                or opcode not in (0, 1, 2, 8, 9, 10)
                or (control and (size > 125 or not final))
                or (not control and fragmented != (opcode == 0))
            ):
                self.fault = 1002
            elif opcode == 1:
                self.fault = 1003
            extended = {126: 2, 127: 8}.get(size, 0)
            start = 2 + extended + 4 * masked
            if self.fault or len(octets) < start:
                return
            if extended:
                size = int.from_bytes(octets[2 : 2 + extended], "big")
                if size < {2: 126, 8: 65536}[extended] or size >= 1 << 63:
                    self.fault = 1002
                    return
                if size >= 1 << 32:
                    self.fault = 1009
                    return
            mask = octets[start - 4 : start] if masked else bytes(4)
            data = bytes(octet ^ mask[at % 4] for at, octet in enumerate(octets[start : start + size]))
            octets = octets[start + size :] if len(data) == size else b""
            if not control:
                self.payload += data
                fragmented = not final
            elif len(data) == size:
                self._control(opcode, data)

    def _control(self, opcode: int, data: bytes) -> None:
        if opcode == 9:
            self.ping = data
        elif opcode == 8 and not data:
            self.closed = 1005
        elif opcode == 8 and (len(data) == 1 or int.from_bytes(data[:2], "big") not in CLOSES):
            self.fault = 1002
        elif opcode == 8:
            try:
                data[2:].decode()
            except UnicodeDecodeError:
                self.fault = 1007
            else:
                self.closed = int.from_bytes(data[:2], "big")

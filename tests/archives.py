"""Archives of arrays that no writer of ours makes: what a reader of `.npz` files must refuse."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return sink.getvalue()


def array(header_text: str, data: bytes = b"") -> bytes:
    text = header_text.encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def shared_bytes() -> bytes:
    """Many members of an archive that all point at the same bytes."""
    content = archive(
        {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (1000,)}", b"\0" * 8000)}
    )
    start = content.rindex(b"PK\x01\x02")
    end = content.rindex(b"PK\x05\x06")
    entry = content[start:end]
    entries = b"".join(entry.replace(b"a.npy", bytes([97 + i]) + b".npy") for i in range(20))
    tail = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 20, 20, len(entries), start, 0)
    return content[:start] + entries + tail


def encrypted() -> bytes:
    """A member that says it needs a password."""
    content = bytearray(archive({"a.npy": array(PLAIN, b"\0" * 16)}))
    content[6] |= 1
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


PLAIN = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}"
MANY = "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000,)}"
BAD_ARRAYS: dict[str, Callable[[], bytes]] = {
    "compressed": lambda: archive({"a.npy": array(PLAIN, b"\0" * 16)}, zipfile.ZIP_DEFLATED),
    "objects": lambda: archive(
        {"a.npy": array("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", b"\0" * 16)}
    ),
    "absurd shape": lambda: archive(
        {"a.npy": array("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,)}", b"\0" * 16)}
    ),
    "a header that is code": lambda: archive({"a.npy": array("__import__('os').system('true')", b"")}),
    "shared bytes": shared_bytes,
    "a path outside": lambda: archive({"../a.npy": array(PLAIN, b"\0" * 16)}),
    "another file": lambda: archive({"a.txt": b"hello"}),
    "nothing": lambda: archive({}),
    "columns first": lambda: archive(
        {"a.npy": array("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 2)}", b"\0" * 16)}
    ),
    "a header hard to parse": lambda: archive({"a.npy": array("-" * 9000 + "1")}),
    "encrypted": encrypted,
    "a bomb": lambda: archive({"a.npy": array(MANY, b"\0" * 8_000_000)}, zipfile.ZIP_DEFLATED),
    "no archive": lambda: b"PK\x03\x04" + b"\0" * 100,
}

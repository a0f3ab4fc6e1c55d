"""Runs in a guest as root, and searches or fills memory and disk.

    canary.py fill HEX MIB        fills MIB of memory and MIB of disk with the canary, and stays until its input ends
    canary.py search HALF SHA256  prints how many pieces of the memory and of the disk have the canary

The searcher must not find itself: it is given the first half of the canary and the digest of the whole."""
import hashlib
import mmap
import os
import struct
import sys

STEP = 8 << 20


def count(pieces, half, digest):
    """How many pieces have it. One that lies across two pieces is not seen: there are many more."""
    found = 0
    for piece in pieces:
        at = piece.find(half)
        while at >= 0 and hashlib.sha256(piece[at:at + 2 * len(half)]).hexdigest() != digest:
            at = piece.find(half, at + 1)
        found += at >= 0
    return found


def memory():
    """All of the RAM, through the kernel's own map of it."""
    with open("/proc/kcore", "rb", buffering=0) as f:
        head = f.read(64)
        offset, = struct.unpack_from("<Q", head, 32)
        size, number = struct.unpack_from("<HH", head, 54)
        f.seek(offset)
        headers = f.read(size * number)
        for i in range(number):
            kind, flags, place, address, physical, length = struct.unpack_from("<IIQQQQ", headers, size * i)
            # The kernel's direct map alone: not its virtual areas (no physical address), not its text.
            if kind != 1 or physical == (1 << 64) - 1 or address >= 0xffffffff80000000:
                continue
            f.seek(place)
            while length > 0:
                piece = f.read(min(STEP, length))
                if not piece:
                    break
                length -= len(piece)
                yield piece


def disk():
    """All of the disk, past the page cache."""
    buffer = mmap.mmap(-1, STEP)
    f = os.open("/dev/vda", os.O_RDONLY | os.O_DIRECT)
    while (n := os.readv(f, [buffer])) > 0:
        yield buffer if n == STEP else buffer[:n]


if sys.argv[1] == "fill":
    canary, mib = bytes.fromhex(sys.argv[2]), int(sys.argv[3])
    block = canary * ((1 << 20) // len(canary))
    held = mmap.mmap(-1, mib << 20)
    for _ in range(mib):
        held.write(block)
    with open("/var/canary", "wb") as f:
        for _ in range(mib):
            f.write(block)
        os.fsync(f.fileno())
    print("filled", flush=True)
    sys.stdin.read()
else:
    half, digest = bytes.fromhex(sys.argv[2]), sys.argv[3]
    print(count(memory(), half, digest), count(disk(), half, digest))

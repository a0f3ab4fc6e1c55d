"""Runs in a guest as root, and searches or fills memory and disk.

    canary.py fill HEX MIB        fills MIB of memory and MIB of disk with the canary, and stays until its input ends
    canary.py search HALF SHA256  prints how often the canary is in memory and on the disk

The searcher must not find itself: it is given the first half of the canary and the digest of the whole."""
import hashlib
import mmap
import os
import struct
import sys

STEP = 8 << 20


def count(pieces, half, digest):
    found, tail = 0, b""
    for piece in pieces:
        data = tail + piece
        at = data.find(half)
        while at >= 0:
            whole = data[at:at + 2 * len(half)]
            if len(whole) == 2 * len(half) and hashlib.sha256(whole).hexdigest() == digest:
                found += 1
                if found == 1000:
                    return found
            at = data.find(half, at + 1)
        tail = data[-2 * len(half) + 1:]
    return found


def memory():
    """All of the RAM, through the kernel's own map of it."""
    with open("/proc/kcore", "rb", buffering=0) as f:
        head = f.read(64)
        offset, = struct.unpack_from("<Q", head, 32)
        size, number = struct.unpack_from("<HH", head, 54)
        f.seek(offset)
        headers = f.read(size * number)
        total = 0
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
                total += len(piece)
                length -= len(piece)
                yield piece
    print("memory read", total >> 20, "MiB", file=sys.stderr)


def disk():
    total = 0
    with open("/dev/vda", "rb", buffering=0) as f:
        while piece := f.read(STEP):
            total += len(piece)
            yield piece
    print("disk read", total >> 20, "MiB", file=sys.stderr)


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
    with open("/proc/sys/vm/drop_caches", "w") as f:
        f.write("3")
    print(count(memory(), half, digest), count(disk(), half, digest))

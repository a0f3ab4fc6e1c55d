"""Runs in a guest as root: reads every item of QEMU's firmware configuration device and writes all bytes to the file
that is named; prints the names in its directory, one a line."""
import ctypes
import mmap
import struct
import sys

SELECTOR, DATA = 0x510, 0x511


def machine_code(code, *arguments):
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(code))
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    call = ctypes.CFUNCTYPE(None, *arguments)(address)
    call.page = page
    return call


out16 = machine_code("89fa 89f0 66ef c3", ctypes.c_uint, ctypes.c_uint)  # mov edx,edi; mov eax,esi; out dx,ax
in_many = machine_code("4889d1 89fa 4889f7 f36c c3", ctypes.c_uint, ctypes.c_void_p, ctypes.c_ulong)  # rep insb

libc = ctypes.CDLL(None, use_errno=True)
if libc.iopl(3) != 0:
    raise OSError(ctypes.get_errno(), "iopl")


def item(key, size):
    buffer = ctypes.create_string_buffer(size)
    out16(SELECTOR, key)
    in_many(DATA, buffer, size)
    return buffer.raw[:size]


if item(0, 4) != b"QEMU":
    raise SystemExit("the device does not answer")
(count,) = struct.unpack(">I", item(0x19, 4))
directory = item(0x19, 4 + 64 * count)[4:]
sizes = {}
for i in range(count):
    size, key, _, name = struct.unpack(">IHH56s", directory[64 * i:64 * i + 64])
    print(name.rstrip(b"\0").decode())
    sizes[key] = size
with open(sys.argv[1], "wb") as f:
    for base in (0x0000, 0x8000):  # common and of this machine; 0x4000 asks for writing
        for key in range(base, base + 0x100):
            f.write(b"\n%04x:" % key + item(key, min(sizes.get(key, 4096), 1 << 20)))

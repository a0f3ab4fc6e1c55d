"""Runs in a guest: prints every device that the guest can see, one a line, sorted, the same on every host.

Left out: buses that stand for software or for the shape (processors, memory, clocks, perf events, work queues)."""
import os
import re

SOFTWARE = {"clockevents", "clocksource", "cpu", "event_source", "memory", "memory_tiering", "node", "workqueue"}
found = set()


def read(path):
    with open(path) as f:
        return f.read()


def ls(path):
    return os.listdir(path) if os.path.isdir(path) else []


for bus in set(ls("/sys/bus")) - SOFTWARE:
    for device in ls(f"/sys/bus/{bus}/devices"):
        kind = f"/sys/bus/virtio/devices/{device}/device"
        found.add(f"bus {bus} {device}" + (" " + read(kind).strip() if bus == "virtio" else ""))
for line in read("/proc/ioports").splitlines():
    found.add("ioport " + line.strip())
for line in read("/proc/iomem").splitlines():
    name = line.split(" : ")[1]
    if not re.match(r"System RAM|Kernel |Reserved", name):
        found.add("iomem " + name)
for line in read("/proc/interrupts").splitlines():
    m = re.match(r" *\d+:.*-(?:edge|fasteoi|level) +(.+)$", line)
    if m:
        found.add("interrupt " + m.group(1).strip())
for name in ls("/sys/class/block"):
    found.add("block " + name)
for name in ls("/sys/class/net"):
    found.add("net " + name)
for port in ls("/sys/class/virtio-ports"):
    found.add(f"virtio-port {port} " + read(f"/sys/class/virtio-ports/{port}/name").strip())
for name in ls("/sys/class/misc"):
    found.add("misc " + name)
for name in ls("/sys/firmware"):
    found.add("firmware " + name)
for folder, folders, files in os.walk("/sys/firmware/acpi/tables"):
    for name in files:
        found.add("acpi-table " + name)
found.add("hwrng " + read("/sys/class/misc/hw_random/rng_current").strip())
for line in read("/proc/modules").splitlines():
    found.add("module " + line.split()[0])
found.add("command-line " + re.sub(r"tsc_early_khz=\d+", "tsc_early_khz=N", read("/proc/cmdline").strip()))
for folder, folders, files in os.walk("/dev"):
    folders[:] = [f for f in folders if f not in ("pts", "shm")]
    for name in files:
        found.add("dev " + re.sub(r"^tty[0-9]+$", "ttyN", os.path.join(folder, name)[5:]))
flags = set(re.search(r"^flags\s*:(.*)$", read("/proc/cpuinfo"), re.M).group(1).split())
for flag in ("vmx", "svm", "hypervisor"):
    if flag in flags:
        found.add("cpu-flag " + flag)
print("\n".join(sorted(found)))

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A guest under QEMU, without KVM: Debian's kernel with Soft-RoCE (rdma_rxe), reached over a TAP
device of the current network namespace.

The kernel and a static busybox are downloaded as Debian packages, once; all other programs in the
guest are this machine's own, with the libraries that they need.

As a program, `guest.py ADDRESS COMMAND...` runs a command in a guest: its output and its status.
"""
import os
import pathlib
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
PORT = 7000
MODULES = ["virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "rdma_ucm"]
PROVIDER = "/usr/lib/x86_64-linux-gnu/libibverbs"
UNWINDER = "/lib/x86_64-linux-gnu/libgcc_s.so.1"  # the C library opens it when a thread ends early
SETUP = ["ip", "rdma"]
LONGEST_BOOT = 180  # seconds
LARGEST_MTU = 9000


def cache_folder():
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return pathlib.Path(base) / "verbena" / "guest"


def run(words, **options):
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)


def unpacked(package, cache):
    """The folder with a package's files."""
    folder = cache / package
    if folder.exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as work:
        if subprocess.run(["apt-get", "-q", "download", package], cwd=work, capture_output=True).returncode:
            sys.exit(f"guest: {package} cannot be downloaded (apt-get update?), and is not in {cache}")
        archive, = pathlib.Path(work).glob("*.deb")
        run(["dpkg-deb", "-x", archive, pathlib.Path(work) / "files"])
        try:
            (pathlib.Path(work) / "files").rename(folder)
        except OSError:  # somebody else was quicker
            if not folder.exists():
                raise
    return folder


def kernel(cache):
    """The folder of the kernel that is there, else of the one that linux-image-amd64 stands for."""
    known = sorted(cache.glob("linux-image-*"))
    if known:
        return known[-1]
    listed = run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE).stdout
    found = re.search(r"Depends: (linux-image-\d\S+)", listed)
    if not found:
        sys.exit("guest: apt knows no kernel (apt-get update?)")
    return unpacked(found[1], cache)


def module_files(linux, version, modules):
    """The modules' files, each behind those that it needs."""
    if not (linux / "lib/modules" / version / "modules.dep").exists():
        run(["depmod", "-b", linux, version])
    files = []
    for module in modules:
        shown = run(["modprobe", "-d", linux, "-S", version, "--show-depends", module],
                    stdout=subprocess.PIPE).stdout
        for line in shown.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


def libraries_of(program):
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    return re.findall(r"(/\S+) \(0x", listed)


def copy_with_libraries(source, root, target=None):
    for file in (source, *libraries_of(source)):
        to = root / (target if target and file == source else file).lstrip("/")
        if not to.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, to)


def make_image(folder, programs, libraries=(), modules=()):
    """Writes `vmlinuz` and `initrd` for a guest that has the programs in /bin, the libraries in /lib,
    and loads the modules beside MODULES. Needs the network when the packages are not there yet."""
    cache = cache_folder()
    linux, busybox = kernel(cache), unpacked("busybox-static", cache)
    vmlinuz, = (linux / "boot").glob("vmlinuz-*")
    version = vmlinuz.name.removeprefix("vmlinuz-")
    shutil.copy2(vmlinuz, folder / "vmlinuz")
    root = folder / "root"
    for name in ("bin", "dev", "proc", "sys", "run", "tmp", "modules.d"):
        (root / name).mkdir(parents=True)
    shutil.copy2(busybox / "bin/busybox", root / "bin/busybox")
    for applet in ("sh", "cat", "grep", "sleep", "timeout", "dmesg", "kill", "poweroff"):
        (root / "bin" / applet).symlink_to("busybox")
    shutil.copy2(FOLDER / "guest-init", root / "init")
    shutil.copy2(FOLDER / "guest-command", root / "command")
    names = []
    for file in module_files(linux, version, [*MODULES, *modules]):
        shutil.copy2(file, root / "modules.d")
        names.append(f"/modules.d/{pathlib.Path(file).name}\n")
    (root / "modules").write_text("".join(names))
    for program in SETUP:
        copy_with_libraries(shutil.which(program), root, f"/sbin/{program}")
    for program in programs:
        copy_with_libraries(str(program), root, f"/bin/{pathlib.Path(program).name}")
    for library in libraries:
        copy_with_libraries(str(library), root, f"/lib/{pathlib.Path(library).name}")
    for provider in pathlib.Path(PROVIDER).glob("librxe*"):
        copy_with_libraries(str(provider), root)
    copy_with_libraries(UNWINDER, root)
    (root / "etc/libibverbs.d").mkdir(parents=True)
    (root / "etc/libibverbs.d/rxe.driver").write_text("driver rxe\n")
    with (folder / "initrd").open("wb") as archive:
        listed = "\n".join(str(file.relative_to(root)) for file in sorted(root.rglob("*")))
        subprocess.run(["cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0"], input=listed.encode(),
                       cwd=root, stdout=archive, check=True)
    shutil.rmtree(root)


class Guest:
    """A running guest; leaving the context ends it."""

    def __init__(self, image, tap, address, mtu):
        """`image` is a folder that make_image() filled."""
        # One processor: rxe 6.1's requester and completer run beside each other without a lock on
        # two, and an acknowledgement that comes while a message is being repeated makes rxe repeat
        # it shifted by one packet. It repeats often, without need: its timer goes on from an earlier
        # message when that was acknowledged.
        # QEMU must think that there may be two, though: for a machine of one it leaves out the guest's
        # memory barriers, while a thread of its own works at the queues, and then the guest misses
        # that it should have kicked one and sends nothing any more (seen: 120 packets in the queue,
        # no kick).
        self.address = address
        self.console = image / "console"
        words = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                 "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1,maxcpus=2", "-m", "1024",
                 "-kernel", image / "vmlinuz", "-initrd", image / "initrd",
                 "-serial", f"file:{self.console}",
                 "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                 "-device", f"virtio-net-pci,netdev=net,host_mtu={LARGEST_MTU}", "-device", "virtio-rng-pci",
                 "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable "
                            f"guest_address={address}/24 guest_mtu={mtu}"]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=subprocess.STDOUT)

    def __enter__(self):
        deadline = time.monotonic() + LONGEST_BOOT
        while self.process.poll() is None and time.monotonic() < deadline:
            try:
                if execute(self.address, "true", lambda text: None, 10) == 0:
                    return self
            except OSError:
                time.sleep(0.2)
        self.stop()
        self.log.seek(0)
        console = self.console.read_text(errors="replace")[-3000:] if self.console.exists() else ""
        sys.exit(f"guest: it does not answer\n{self.log.read().decode(errors='replace')}\n{console}")

    def __exit__(self, *error):
        self.stop()

    def stop(self):
        self.process.kill()
        self.process.wait()


def execute(address, command, output, timeout=None):
    """Runs a line of shell in the guest, passes its output on, returns its status."""
    with socket.create_connection((address, PORT), timeout or 5) as connection:
        connection.settimeout(timeout)
        connection.sendall(command.encode() + b"\n")
        held = ""
        for line in connection.makefile(errors="replace"):
            output(held)
            held = line
    ended = re.fullmatch(r"guest: status (\d+)\n", held)
    if not ended:
        output(held + "guest: the command was lost\n")
        return 125
    return int(ended[1])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    return execute(sys.argv[1], shlex.join(sys.argv[2:]), lambda text: print(text, end="", flush=True))


if __name__ == "__main__":
    sys.exit(main())

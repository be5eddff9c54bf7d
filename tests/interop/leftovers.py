# SPDX-License-Identifier: Apache-2.0
"""What programs that ended may have left on the machine: counted for one user and some addresses."""
import os
import pathlib
import socket
import struct

ROCE = 4791


def lines_of(path):
    try:
        return pathlib.Path(path).read_text(errors="replace").splitlines()[1:]
    except OSError:
        return []


def udp_name(address):
    """An IPv4 address with the RoCE port as /proc/net/udp writes it."""
    return f"{struct.unpack('=I', socket.inet_aton(address))[0]:08X}:{ROCE:04X}"


def names(addresses):
    """Abstract names of the fabric."""
    ours = [f"@verbena/{os.geteuid()}/{address}/" for address in addresses]
    return sum(any(name in line for name in ours) for line in lines_of("/proc/net/unix"))


def udp_sockets(addresses):
    ours = {udp_name(address) for address in addresses}
    return sum(line.split()[1] in ours for line in lines_of("/proc/net/udp"))


def tcp_ports(ports):
    """Of these, those at which somebody listens."""
    wanted = {f"{port:04X}" for port in ports}
    return sum(words[3] == "0A" and words[1].split(":")[1] in wanted
               for table in ("/proc/net/tcp", "/proc/net/tcp6") for words in map(str.split, lines_of(table)))


def processes(mark):
    """Process ids of those in whose environment `mark` stands."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            marked = mark.encode() in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # gone, or another user's
        if marked:
            found.append(int(folder.name))
    return found


def segments():
    """System V and POSIX shared memory of this user."""
    mine = sum(int(words[7]) == os.geteuid() for words in map(str.split, lines_of("/proc/sysvipc/shm")))
    return mine + sum(of_this_user(path) for path in pathlib.Path("/dev/shm").glob("*"))


def files(folder):
    """Temporary files in a folder that is for them alone, and what is named for us elsewhere."""
    own = sum(1 for _ in pathlib.Path(folder).iterdir())
    return own + sum(of_this_user(path) for other in ("/var/tmp", "/run", "/dev/shm")
                     for path in pathlib.Path(other).glob("*verbena*"))


def of_this_user(path):
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False


def count(addresses, ports, mark, folder):
    return {
        "abstract names": names(addresses),
        "UDP sockets": udp_sockets(addresses),
        "TCP ports": tcp_ports(ports),
        "processes": len(processes(mark)),
        "segments": segments(),
        "files": files(folder),
    }


def of_process(pid):
    """Descriptors, memfds among them, resident KiB and mappings of a living process."""
    folder = pathlib.Path("/proc", str(pid))
    links = []
    for link in (folder / "fd").iterdir():
        try:
            links.append(os.readlink(link))
        except OSError:
            pass  # closed meanwhile
    status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
    return {
        "descriptors": len(links),
        "memfds": sum(link.startswith("/memfd:") for link in links),
        "rss_kib": int(status["VmRSS"].split()[0]),
        "mappings": len((folder / "maps").read_text().splitlines()),
    }

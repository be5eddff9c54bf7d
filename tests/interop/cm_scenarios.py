# SPDX-License-Identifier: Apache-2.0
"""What becomes of connections whose programs do not do as they should, and what takes more than a
pair. Each takes a Stage and a number that says how long it may be."""
import hashlib
import os
import pathlib
import re
import shutil
import signal
import socket

from cm_pair import ENDS, Stage, check, run_pair, Pair
from programs import MIB, free_port

# What Debian's librdmacm1 brings for programs that know nothing but TCP.
SOCKETS = pathlib.Path("/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so")
NO_SERVICE = 8  # IBA vol. 1, 12.6.7.2: invalid service ID
REFUSED = 28  # the same: consumer reject


def port_of(stage):
    return str(free_port())


def listener(stage, port, count, *more):
    process = stage.start([stage.program("verbs_cm"), "listen", stage.address, port, str(count), *more])
    stage.see(process, "listening", "the listener")
    return process


def connecter(stage, port, *more):
    return stage.start([stage.program("verbs_cm"), "connect", stage.address, port, *more])


def nobody_listens(stage, factor):
    client = connecter(stage, port_of(stage))
    Stage.ended(client, ENDS, "the client")
    stage.see(client, f"REJECTED, status {NO_SERVICE}\n", "the client")


def refused(stage, factor):
    """Who refuses ends at once, and what it said arrives all the same."""
    for _ in range(10 * factor):
        port = port_of(stage)
        server = listener(stage, port, 1, "reject")
        client = connecter(stage, port)
        Stage.ended(client, ENDS, "the client")
        stage.see(client, f'REJECTED, status {REFUSED}, "not today"', "the client")
        Stage.ended(server, ENDS, "the listener")


def killed_listener(stage, factor):
    """Its port is free for the next one, and who connects in between is refused."""
    port = port_of(stage)
    for _ in range(3):
        server = listener(stage, port, 5)
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()
        client = connecter(stage, port)
        Stage.ended(client, ENDS, "the client")
        stage.see(client, f"REJECTED, status {NO_SERVICE}\n", "the client")
    server = listener(stage, port, 1)
    client = connecter(stage, port)
    Stage.ended(client, ENDS, "the client")
    stage.see(client, "ESTABLISHED", "the client")
    Stage.ended(server, ENDS, "the listener")


def second_listener(stage, factor):
    port = port_of(stage)
    listener(stage, port, 1)
    other = stage.start([stage.program("verbs_cm"), "listen", stage.address, port, "1"])
    Stage.ended(other, ENDS, "the second listener", (1,))
    stage.see(other, "rdma_bind_addr.*in use", "the second listener")


def killed_client(stage, factor):
    """Between the answer and its RTU. Whoever comes next is served, and the half connection ends."""
    port = port_of(stage)
    server = listener(stage, port, 2)
    dying = connecter(stage, port, "die")
    dying.process.wait(ENDS)
    check(dying.process.returncode == -signal.SIGKILL, f"the client was not killed: {dying.process.returncode}")
    client = connecter(stage, port)
    Stage.ended(client, ENDS, "the client")
    stage.see(client, "ESTABLISHED", "the client")
    Stage.ended(server, 60, "the listener")
    stage.see(server, "UNREACHABLE|CONNECT_ERROR|DISCONNECTED", "the listener")


def leaving_client(stage, factor):
    """Whose peer hears that it is over, as from a kernel."""
    port = port_of(stage)
    server = listener(stage, port, 1)
    client = connecter(stage, port, "leave")
    Stage.ended(client, ENDS, "the client")
    Stage.ended(server, ENDS, "the listener")
    stage.see(server, "DISCONNECTED", "the listener")


def loop(stage, factor):
    count = str({1: 300, 5: 10000}.get(factor, 100000))
    process = stage.start([stage.program("verbs_cm"), "loop", stage.address, count])
    Stage.ended(process, 600 * factor, "the loop")
    stage.see(process, "passed: loop", "the loop")
    return "; ".join(re.findall(r"(?m)^(?:\d+ connections|rdma_cm): .*", process.output()))


def enhanced(stage, factor):
    process = stage.start([stage.program("verbs_cm"), "ece", stage.address])
    Stage.ended(process, ENDS, "the program")
    stage.see(process, "passed: ece", "the program")


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def differences(source, target):
    """Which blocks of two files differ: their size says what went wrong, their bytes from where."""
    size, found = 4096, []
    with open(source, "rb") as left, open(target, "rb") as right:
        for block in range(os.path.getsize(source) // size):
            ours, theirs = left.read(size), right.read(size)
            if ours != theirs:
                found.append(f"{block}{' (zeros)' if not any(theirs) else ''}")
    return f"{os.path.getsize(target)} bytes of {os.path.getsize(source)}; {len(found)} blocks of {size}: {found[:20]}"


def rcopy(stage, factor):
    source, target = (pathlib.Path(stage.folder, name) for name in ("source", "target"))
    with open(source, "wb") as file:
        for _ in range(64 if factor == 1 else 1024):
            file.write(os.urandom(MIB))
    try:
        run_pair(stage, Pair("rcopy", ["rcopy", "-p", "PORT"],
                             ["rcopy", str(source), f"ADDRESS:{target}", "-p", "PORT"], endless=True, longest=300))
        check(digest(source) == digest(target), f"the copy differs: {differences(source, target)}")
    finally:
        source.unlink()
        target.unlink(missing_ok=True)


def tcp_over_rsockets(stage, factor):
    """netcat, both sides with librspreload behind our library: `verbena run` keeps what is there."""
    text = os.urandom(MIB).hex()
    source = pathlib.Path(stage.folder, "text")
    source.write_text(text)
    port = port_of(stage)
    more = {"environment": {"LD_PRELOAD": str(SOCKETS)}}
    server = stage.start(["nc.traditional", "-l", "-s", stage.address, "-p", port], **more)
    stage.wait_listening(server)
    client = stage.start(["sh", "-c", f"exec nc.traditional -q 1 {stage.address} {port} < {source}"], **more)
    Stage.ended(client, ENDS, "the client")
    Stage.ended(server, ENDS, "the server")
    check(server.output() == text, f"{len(server.output())} bytes came, or others, of {len(text)}")


def second_form(stage, factor):
    """Without the preload: librdmacm finds our libibverbs, and our device by it."""
    environment = {"LD_LIBRARY_PATH": str(stage.build / "lib" / "verbs"), "VERBENA_ADDR": stage.address}
    bare = ["env", *(f"{name}={value}" for name, value in environment.items())]
    for words, server_words, client_words, done in (
            (["rping", "-C", "10"], ["-s"], ["-c", "-a", stage.address], ""),
            (["rstream", "-S", "64", "-I", "100", "-C", "1"], [], ["-s", stage.address], r"64\s+1\s+100")):
        port = port_of(stage)
        words += ["-p", port]
        server = stage.start_bare([*bare, *words, *server_words])
        stage.wait_listening(server)
        client = stage.start_bare([*bare, *words, *client_words])
        Stage.ended(client, ENDS, "the client")
        check(re.search(done, client.output()), f"the client's output lacks /{done}/")
        Stage.ended(server, ENDS, "the server")


SCENARIOS = {
    "nobody listens": nobody_listens,
    "a request that is refused": refused,
    "a port whose listener is killed": killed_listener,
    "a second listener at a port": second_listener,
    "a client killed before its RTU": killed_client,
    "a client that exits connected": leaving_client,
    "connect and disconnect": loop,
    "an enhanced connection": enhanced,
    "rcopy": rcopy,
    "netcat over rsockets": tcp_over_rsockets,
    "the second form": second_form,
}


def routes_groups_on_loopback():
    """Whether the kernel sends what is for an IPv6 multicast group by the loopback interface."""
    try:
        routes = pathlib.Path("/proc/net/ipv6_route").read_text().splitlines()
    except OSError:
        return False
    return any(words[0] == "ff" + 30 * "0" and words[1] == "08" and words[-1] == "lo"
               for words in map(str.split, routes))


def routed_source(address):
    """The address from which the kernel sends to one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((address, 9))
        return one.getsockname()[0]


def left_out(name, address):
    """Why a scenario cannot be had on this machine, or at this address of the NIC; empty when it can."""
    # librdmacm binds its datagram sockets to where the kernel routes from, and crashes where that is no NIC's.
    if name.startswith("udpong") and (source := routed_source(address)) != address:
        return f"the kernel routes to {address} from {source}"
    if name == "mckey IPv6" and not routes_groups_on_loopback():
        return "the kernel has no way for IPv6 groups: ip -6 route add multicast ff00::/8 dev lo table local"
    if name == "netcat over rsockets":
        if not SOCKETS.exists():
            return f"{SOCKETS} is missing"
        if not shutil.which("nc.traditional"):
            return "apt install netcat-traditional"
    return ""

# SPDX-License-Identifier: Apache-2.0
"""All that is measured: programs with their options, by name.

A name says whose program it is, which way the bytes go, what is measured and how:
`ours.udp.write.1MiB.pmtu4096`, `peer.ucx.tcp.latency`, `limit.gso-gro.1056`. targets.toml and --only
use these names.
"""
import dataclasses

import outputs
from hosts import Link

SIZES = (64, 512, 4096, 32768, 262144, 1 << 20)  # of the curves
QUEUE_PAIRS = (1, 2, 4, 8, 16)
MIB = 1 << 20
SEGMENTS = {1056: 60, 4128: 15}  # datagrams that one send may carry, by their size
AROUND = 32  # headers and ICRC of a WRITE's packet; a SEND's are half of it
LONG = 100000  # iterations of a ping-pong; quick runs do a tenth

# Options of `verbena run`, by the path that packets take.
PATHS = {"udp": ["--set", "same_host=udp"], "host": ["--set", "same_host=auto"],
         "rings": ["--set", "same_host=rings"],
         "scale": ["--set", "same_host=udp", "--set", "limits.max_qp=16384", "--set", "limits.max_mr=1048576"]}


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What is run, and how what it prints is read. In the words {address}, {seconds}, {port} and
    {count} stand for what the run decides."""
    name: str
    title: str
    unit: str
    read: object
    client: tuple  # or the only program, when there is no server
    server: tuple = ()
    path: str = ""  # ours: of PATHS
    package: str = ""  # who has the program
    count: int = 0
    link: Link | None = None  # both sides on this host when there is none
    environment: tuple = ()
    listens: str = "tcp"  # how the server is known to be there: by its port of "tcp" or "udp", or by "rdma_cm"
    serves_on: bool = False  # the server does not end with its client
    point: tuple = ()  # plot, series, x: where the figure stands there


def size_text(size):
    for unit, name in ((MIB, "MiB"), (1024, "KiB")):
        if size >= unit:
            return f"{size // unit}{name}"
    return f"{size}B"


def link_title(link):
    return f"veth, MTU {link.mtu}{'' if link.offload else ', no offload'}" if link else "loopback"


def place(link):
    """What a name says of the link."""
    return f"veth{link.mtu}{'' if link.offload else '.single'}" if link else "udp"


# --- Ours: perftest on the NIC

def perftest(name, title, unit, read, program, *options, path="udp", link=None, count=0, point=()):
    words = [program, "-F", "-p", "{port}", *map(str, options)]
    return Measurement(f"ours.{name}", title, unit, read, (*words, "{address}"), tuple(words), path=path,
                       package="perftest", link=link, count=count, point=point)


def our_bandwidth(operation, size, pmtu, path="udp", link=None, point=(), options=(), tail=""):
    where = place(link) if path == "udp" else path
    kind = operation.upper()
    return perftest(f"{where}.{operation}.{size_text(size)}.pmtu{pmtu}{tail}",
                    f"Verbena {kind} {size_text(size)}, PMTU {pmtu}", "GB/s", outputs.perftest_bandwidth,
                    f"ib_{operation}_bw", "-s", size, "-m", pmtu, "-D", "{seconds}", "-f", 0,
                    "--report_gbits", *options, path=path, link=link, point=point)


def our_latency(operation, path):
    return perftest(f"{path}.{operation}.latency", f"Verbena {operation.upper()} 64B, polled", "us",
                    outputs.perftest_latency, f"ib_{operation}_lat", "-s", 64, "-n", "{count}", "-U",
                    path=path, count=LONG)


def our_rate(operation, path):
    return perftest(f"{path}.{operation}.rate", f"Verbena {operation.upper()} 64B, posted by 32", "M/s",
                    outputs.perftest_rate, f"ib_{operation}_bw", "-s", 64, "-l", 32, "-D", "{seconds}",
                    "-f", 0, "--report_gbits", path=path)


def ours():
    for pmtu in (1024, 4096):
        for operation in ("write", "send", "read"):
            point = ("loopback", f"Verbena {operation.upper()}", MIB) if pmtu == 4096 else ()
            yield our_bandwidth(operation, MIB, pmtu, point=point)
    for path in ("udp", "host"):
        for operation in ("send", "write", "read"):
            yield our_latency(operation, path)
        for operation in ("send", "write"):
            yield our_rate(operation, path)
    yield perftest("udp.send.events", "Verbena SEND 64B, waiting for events", "us", outputs.perftest_latency,
                   "ib_send_lat", "-s", 64, "-n", "{count}", "-e", "-U", count=LONG // 5)
    for operation in ("write", "send", "read"):
        yield our_bandwidth(operation, MIB, 4096, path="host", point=("host", f"Verbena {operation.upper()}", MIB))
    for operation in ("write", "read"):
        yield our_bandwidth(operation, MIB, 4096, path="rings")


def our_veth():
    for mtu, pmtu in ((1500, 1024), (9000, 4096)):
        for operation in ("write", "send"):
            yield our_bandwidth(operation, MIB, pmtu, link=Link(mtu))
        yield our_bandwidth("write", MIB, pmtu, link=Link(mtu, False))


def our_curves():
    for size in SIZES[:-1]:
        for operation in ("write", "send", "read"):
            for path, plot in (("udp", "loopback"), ("host", "host")):
                yield our_bandwidth(operation, size, 4096, path=path,
                                    point=(plot, f"Verbena {operation.upper()}", size))
    for pairs in QUEUE_PAIRS:
        yield our_bandwidth("write", 65536, 4096, options=("-q", pairs), tail=f".qp{pairs}",
                            point=("scaling", "Verbena WRITE 64KiB, queue pairs", pairs))


# --- Ours: streams of the C++ API

STREAM_SIZES = (65536, MIB)
TRANSPORTS = ("messages", "ring")
COPYING = ("copied", "in-place")
STREAM_LINKS = ((1500, 1024), (9000, 4096))


def stream(what, title, unit, *words, path="udp", link=None):
    where = place(link) if path == "udp" else path
    words = ("verbena-streams", *map(str, words), "--address", "{address}", "--port", "{port}")
    return Measurement(f"ours.{where}.stream.{what}", f"Verbena stream, {title}", unit, outputs.ours,
                       (*words, "--seconds", "{seconds}"), (*words, "--serve"), path=path, link=link)


def stream_throughput(transport, copying, size, path="udp", link=None):
    return stream(f"{transport}.{copying}.{size_text(size)}", f"{transport}, {copying}, {size_text(size)}", "GB/s",
                  "throughput", "--transport", transport, "--copying", copying, "--bytes", size, path=path, link=link)


def sends(copying, size, link=None):
    """What a stream of messages does at least."""
    words = ("verbena-streams", "sends", "--copying", copying, "--bytes", str(size), "--address", "{address}",
             "--port", "{port}")
    return Measurement(f"limit.{place(link)}.sends.{copying}.{size_text(size)}",
                       f"SENDs alone from and into a stream's memory, {copying}, {size_text(size)}, {link_title(link)}",
                       "GB/s", outputs.ours, (*words, "--seconds", "{seconds}"), (*words, "--serve"), path="udp",
                       link=link)


def our_streams():
    for size in STREAM_SIZES:
        for link in (None, *(Link(mtu) for mtu, _ in STREAM_LINKS)):
            for copying in COPYING:
                yield sends(copying, size, link)
        for path in ("udp", "rings"):
            if (path, size) != ("udp", MIB):  # which is beside WRITE and READ
                yield our_bandwidth("send", size, 4096, path=path)
                if path == "udp":  # what a ring of the same size can have
                    yield our_bandwidth("write", size, 4096)
            for transport in TRANSPORTS:
                for copying in COPYING:
                    yield stream_throughput(transport, copying, size, path)
        for mtu, pmtu in STREAM_LINKS:
            if size != MIB:
                yield our_bandwidth("send", size, pmtu, link=Link(mtu))
            for copying in COPYING:
                yield stream_throughput("messages", copying, size, link=Link(mtu))
    for transport in TRANSPORTS:
        yield stream(f"{transport}.latency", f"{transport}, 64B", "us", "latency", "--transport", transport,
                     "--bytes", 64)
    for waiting in ("epoll", "io-uring"):
        yield stream(f"loop.{waiting}", f"a loop that waits by {waiting}, 64B", "us", "loop", "--waiting", waiting,
                     "--bytes", 64)


# --- Ours: many objects

QUEUE_PAIR_COUNTS = (100, 1000, 10000)
REGION_COUNTS = (100, 10000, 1000000)
SCALE_UNITS = {"setup": "us", "memory": "KiB", "rate": "M/s"}


def scale(what, title, count, figure, words, point):
    words = ("verbena-scale", what, "--count", str(count), "--figure", figure, *words)
    paired = "{port}" in words
    return Measurement(f"ours.scale.{what}.{count}.{figure}", f"Verbena, {count:,} {title}, {figure}",
                       SCALE_UNITS[figure], outputs.ours, (*words, "--seconds", "{seconds}"),
                       (*words, "--serve") if paired else (), path="scale", point=point)


def our_scale():
    for count in QUEUE_PAIR_COUNTS:
        for figure in ("setup", "memory", "rate"):
            yield scale("queue-pairs", "queue pairs", count, figure, ("--address", "{address}", "--port", "{port}"),
                        (f"cost, {figure}", "queue pairs", count))
    for count in REGION_COUNTS:
        for figure in ("setup", "rate"):
            yield scale("regions", "memory regions", count, figure, (), (f"cost, {figure}", "memory regions", count))


# --- Peers

def iperf3(link=None, streams=1):
    name = f"peer.iperf3.{place(link).replace('udp', 'lo')}" + (f".streams{streams}" if streams > 1 else "")
    point = () if link else ("scaling", "iperf3, streams", streams)
    return Measurement(
        name, f"iperf3, TCP, {link_title(link)}", "GB/s", outputs.iperf3,
        ("iperf3", "-c", "{address}", "-p", "{port}", "-t", "{seconds}", "-P", str(streams), "-J"),
        ("iperf3", "-s", "-1", "-p", "{port}", "-B", "{address}"), package="iperf3", link=link, point=point)


def sockperf():
    options = ("-i", "{address}", "-p", "{port}", "--nonblocked")
    return Measurement(
        "peer.sockperf.udp", "sockperf, UDP, 64B", "us", outputs.sockperf_latency,
        ("sockperf", "ping-pong", *options, "-t", "{seconds}", "-m", "64"), ("sockperf", "server", *options),
        package="sockperf", listens="udp", serves_on=True)


def rstream(size, path):
    """rsockets' own measurement, on our NIC: one way, then the other."""
    words = ("rstream", "-p", "{port}", "-S", str(size), "-C", "{count}", "-I", "1", "-T", "b")
    return Measurement(f"peer.rstream.{path}.{size_text(size)}", f"rstream on Verbena, {size_text(size)}", "GB/s",
                       outputs.rstream, (*words, "-s", "{address}"), (*words, "-b", "{address}"), path=path,
                       package="rdmacm-utils", count=1024 * MIB // size, listens="rdma_cm")


FABRIC = {"tcp": "tcp;ofi_rxm", "rxd": "udp;ofi_rxd", "shm": "shm"}


def fabric(provider, test, size, rate=False, point=()):
    words = ("verbena-fabric-peer", "--provider", FABRIC[provider], "--test", test, "--bytes", str(size),
             "--address", "{address}", "--port", "{port}", *(["--rate"] if rate else []))
    unit = "us" if test == "latency" else "M/s" if rate else "GB/s"
    what = test if test == "latency" else f"{test}.{'rate' if rate else size_text(size)}"
    return Measurement(f"peer.fabric.{provider}.{what}", f"libfabric {FABRIC[provider]}, {test} {size_text(size)}",
                       unit, outputs.ours, (*words, "--seconds", "{seconds}"), (*words, "--serve"),
                       package="libfabric-dev, and a build after it is installed", point=point)


UCX = {"tcp": (("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")), "posix": (("UCX_TLS", "posix,cma"),)}
UCX_TESTS = {"tag": "tag_bw", "put": "ucp_put_bw", "get": "ucp_get"}


UCX_LONG = {"tcp": LONG, "posix": 20 * LONG}


def ucx_count(transport, size):
    """Iterations for some tenths of a second where nothing else runs: it takes no seconds."""
    return max(2000, min(UCX_LONG[transport], 4 * (1 << 30) // size))


def ucx(transport, what, test, size, unit, read, point=()):
    count = ucx_count(transport, size)
    words = ("ucx_perftest", "-p", "{port}")
    return Measurement(f"peer.ucx.{transport}.{what}", f"UCX {transport}, {test} {size_text(size)}", unit, read,
                       (*words, "-t", test, "-s", str(size), "-n", "{count}", "-w", str(count // 100), "{address}"),
                       words, package="ucx-utils", count=count, environment=UCX[transport], point=point)


def ucx_stream(transport, kind, size, point=()):
    return ucx(transport, f"{kind}.{size_text(size)}", UCX_TESTS[kind], size, "GB/s", outputs.ucx_bandwidth, point)


def peers():
    yield from (iperf3(), iperf3(Link(1500)), iperf3(Link(9000)), sockperf())
    for path in ("udp", "rings"):
        for size in STREAM_SIZES:
            yield rstream(size, path)
    for provider in FABRIC:
        yield fabric(provider, "latency", 64)
        for test in ("send", "write", "read"):
            yield fabric(provider, test, MIB, point=curve_point(provider, test, MIB))
        for test in ("send", "write"):
            yield fabric(provider, test, 64, rate=True)
    for transport in UCX:
        yield ucx(transport, "latency", "tag_lat", 64, "us", outputs.ucx_latency)
        yield ucx(transport, "put.latency", "ucp_put_lat", 64, "us", outputs.ucx_latency)
        yield ucx(transport, "rate", "tag_bw", 64, "M/s", outputs.ucx_rate)
        yield ucx(transport, "put.rate", "ucp_put_bw", 64, "M/s", outputs.ucx_rate)
        for kind in UCX_TESTS:
            yield ucx_stream(transport, kind, MIB, curve_point(transport, kind, MIB))


def curve_point(of, test, size):
    """Which peers have a curve: messages of each, and UCX's put on one host."""
    series = {("tcp", "send"): ("loopback", "libfabric tcp;ofi_rxm"),
              ("rxd", "send"): ("loopback", "libfabric udp;ofi_rxd"), ("tcp", "tag"): ("loopback", "UCX tcp"),
              ("shm", "send"): ("host", "libfabric shm"), ("posix", "tag"): ("host", "UCX posix,cma, tag"),
              ("posix", "put"): ("host", "UCX posix, put")}
    return (*series[of, test], size) if (of, test) in series else ()


def peer_curves():
    for size in SIZES[:-1]:
        for provider in FABRIC:
            yield fabric(provider, "send", size, point=curve_point(provider, "send", size))
        for transport, kind in (("tcp", "tag"), ("posix", "tag"), ("posix", "put")):
            yield ucx_stream(transport, kind, size, curve_point(transport, kind, size))
    for streams in QUEUE_PAIRS[1:]:
        yield iperf3(streams=streams)


# --- Limits

def loop(name, title, unit, *words):
    return Measurement(f"limit.{name}", title, unit, outputs.ours,
                       ("verbena-limits", *map(str, words), "--seconds", "{seconds}"))


def udp_loop(name, title, unit, *words, link=None):
    words = ("verbena-limits", *map(str, words), "--address", "{address}", "--port", "{port}")
    return Measurement(f"limit.{name}", title, unit, outputs.ours, (*words, "--seconds", "{seconds}"),
                       (*words, "--serve"), link=link)


def raw_stream(size, link=None):
    where = f".{place(link)}" if link else ""
    return udp_loop(f"gso-gro.{size}{where}", f"raw UDP, GSO and GRO, {size} B, {link_title(link)}", "GB/s",
                    "udp-stream", "--bytes", size, "--segments", SEGMENTS[size], link=link)


def icrc_stream(size, link=None):
    where = f".{place(link)}" if link else ""
    return udp_loop(f"icrc.{size}{where}",
                    f"raw UDP, GSO and GRO, each payload copied with its CRC, {size} B, {link_title(link)}", "GB/s",
                    "udp-stream", "--bytes", size, "--segments", SEGMENTS[size], "--payload", size - AROUND, link=link)


def limits():
    for size in (65536, MIB, 16 * MIB):
        yield loop(f"memcpy.{size_text(size)}", f"memcpy {size_text(size)}", "GB/s", "memcpy", "--bytes", size)
    yield loop("cache-line", "half a cache line's round trip", "us", "cache-line")
    yield loop("ring.latency", "a ring in shared memory, 64B one way", "us", "ring-latency")
    yield loop("ring.rate", "a ring in shared memory, 64B", "M/s", "ring-rate")
    for operation in ("write", "send"):
        yield loop(f"verbs.{operation}", f"{operation.upper()} 64B by verbs, the least provider, one way", "us",
                   f"verbs-{operation}")
    yield loop("one-copy", "one copy into mapped memory, 1MiB", "GB/s", "one-copy", "--bytes", MIB)
    yield loop("two-copy", "two copies, pipelined, 1MiB", "GB/s", "two-copy", "--bytes", MIB)
    yield loop("vm-write", "process_vm_writev 1MiB", "GB/s", "vm-write", "--bytes", MIB)
    yield loop("vm-read", "process_vm_readv 1MiB", "GB/s", "vm-read", "--bytes", MIB)
    for size, mtu in ((1056, 1500), (4128, 9000)):
        yield raw_stream(size)
        yield raw_stream(size, Link(mtu))
        yield raw_stream(size, Link(mtu, False))
        yield icrc_stream(size)
        yield icrc_stream(size, Link(mtu))
        yield icrc_stream(size, Link(mtu, False))
    yield udp_loop("udp.rate", "sendto and recv for each message, 64B", "M/s", "udp-rate")
    for operation, around in (("send", AROUND // 2), ("write", AROUND)):
        yield udp_loop(f"udp.rate.roce.{operation}",
                       f"raw UDP, GSO and GRO, 64B copied with their CRC, packets of a {operation.upper()}, 128 under way",
                       "M/s", "udp-rate", "--bytes", 64 + around, "--segments", 64, "--payload", 64, "--depth", 128)
    yield udp_loop("udp.latency", "raw UDP 64B, spinning", "us", "udp-pingpong")
    yield udp_loop("udp.roce", "raw UDP 64B with RoCE's headers and acknowledgements, spinning", "us",
                   "udp-pingpong", "--roce")
    yield udp_loop("udp.blocking", "raw UDP 64B, blocking", "us", "udp-pingpong", "--blocking")
    yield udp_loop("udp.blocking.roce", "raw UDP 64B with RoCE's headers and acknowledgements, blocking", "us",
                   "udp-pingpong", "--blocking", "--roce")


def measurements(curves=True):
    """By name. Without curves only single figures."""
    made = [*ours(), *our_veth(), *our_streams(), *our_scale(), *peers(), *limits()]
    if curves:
        made += [*our_curves(), *peer_curves()]
    return {each.name: each for each in made}

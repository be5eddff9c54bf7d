# SPDX-License-Identifier: Apache-2.0
"""What stands on the wire while programs run, and what is wrong with it."""
import contextlib
import subprocess
import time


@contextlib.contextmanager
def captured(file, interface):
    """Captures what RoCE sends and receives on an interface."""
    words = ["tcpdump", "-i", interface, "-B", "65536", "-w", str(file), "udp port 4791"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "listening on" in line:
            break
    try:
        yield
        time.sleep(0.3)  # what was just sent is on its way into the file
    finally:
        process.terminate()
        process.communicate()


def check_capture(file, build, path_mtu, *options):
    """What is wrong with a capture, in sentences, and what wire_check, called with the options, says
    of it."""
    checked = subprocess.run([str(build / "bin" / "wire_check"), *options, str(file)],
                             capture_output=True, text=True)
    problems = [checked.stdout + checked.stderr] if checked.returncode else []
    if f"payloads up to {path_mtu} bytes" not in checked.stdout:
        problems.append(f"the packets do not use the path MTU: {checked.stdout}")
    # Payloads are data. Left to guess, tshark finds them malformed now and then: as RPC over RDMA what
    # is too short for it, as some protocol over Ethernet two bytes that name it before the padding;
    # rxe's as well as ours.
    shark = subprocess.run(["tshark", "--disable-heuristic", "rpcrdma_infiniband",
                            "-d", "infiniband,data", "-o", "infiniband.try_heuristic_first:FALSE",
                            "-r", str(file), "-Y", "!infiniband || _ws.malformed"],
                           capture_output=True, text=True)
    if shark.returncode or shark.stdout:
        problems.append(f"tshark says:\n{shark.stdout[:2000]}{shark.stderr[:2000]}")
    return problems, checked.stdout

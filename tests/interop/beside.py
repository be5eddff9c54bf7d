# SPDX-License-Identifier: Apache-2.0
"""The kernel's rdma_cm and ours side by side in one program: cases of tests/interop/rxe, in its guest.

rxe has UDP port 4791 of all addresses of the guest's first network namespace, and looks its routes up
there. So the programs are in a namespace of their own, where rxe1 is on a dummy interface, and the
first namespace has an interface with the same number and address. rxe hands what it sends to itself
over without a socket.
"""
import dataclasses
import re
import shlex
import shutil

import guest

OURS, RXE = "127.0.0.1", "10.98.0.1"
NUMBER = 98  # of the interfaces
MODULES = ["dummy"]
LONGEST = 120  # seconds
HOLD = "/tmp/beside"  # the number of the process that keeps the namespace


def programs(build):
    return [*(shutil.which(name) for name in ("rping", "ucmatose", "udaddy")), build / "bin" / "verbena"]


def libraries(build):
    return [build / "lib" / "libverbena.so"]


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    server: str
    clients: dict  # by the address that each connects to
    endless: bool = False  # the server does not end


def cases_of(effort):
    count = {"quick": 10, "full": 50, "soak": 200}[effort]
    rping = f"rping -c -V -C {count} -a"
    cases = [Case("rping, both at once", "rping -s -P -V -C 100000",
                  {address: f"{rping} {address}" for address in (OURS, RXE)}, endless=True)]
    for address, whose in ((OURS, "ours"), (RXE, "rxe's")):
        for program in ("ucmatose", "udaddy"):
            words = f"{program} -c {count}"
            cases.append(Case(f"{program}, {whose}", words, {address: f"{words} -s {address}"}))
        cases.append(Case(f"ucmatose, migrated, {whose}", "ucmatose -m -c 5",
                          {address: f"ucmatose -m -c 5 -s {address}"}))
    return cases


COUNT = ('echo "counted $(verbena counters | busybox awk "/packets_sent/ {print \\$2; exit}") '
         '$(cat /sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts)"')


def script(case):
    """The server, until it listens at the kernel's device, then the clients, with what both devices
    have sent before and after."""
    run = f"timeout {LONGEST} verbena run --"
    lines = [f"{run} {case.server} >/tmp/server 2>&1 & server=$!",
             "for i in $(busybox seq 100); do rdma resource show cm_id | grep -q LISTEN && break; "
             "busybox usleep 100000; done",
             COUNT]
    for number, words in enumerate(case.clients.values()):
        lines.append(f"({run} {words} >/tmp/client{number} 2>&1; echo \"ended: $?\" >>/tmp/client{number}) & "
                     f"client{number}=$!")
    lines += [f"wait $client{number}" for number in range(len(case.clients))]
    lines += ["kill $server" if case.endless else "wait $server", COUNT]
    lines += [f"cat /tmp/client{number}" for number in range(len(case.clients))]
    return "; ".join([*lines, "echo server:", "cat /tmp/server"])


def in_namespace(command):
    return f"busybox nsenter --net=/proc/$(cat {HOLD})/ns/net sh -c {shlex.quote(command)}"


class Beside:
    """What run_one() of programs.py wants of a runner."""

    def __init__(self, address):
        self.address = address

    def shell(self, command):
        output = []
        status = guest.execute(self.address, command, output.append, 2 * LONGEST)
        return status, "".join(output)

    def set_up(self):
        interface = " && ".join([f"/sbin/ip link add dummy{NUMBER} index {NUMBER} type dummy",
                                 f"/sbin/ip address add {RXE}/24 dev dummy{NUMBER}",
                                 f"/sbin/ip link set dummy{NUMBER} up"])
        rdma = f"rdma link add rxe1 type rxe netdev dummy{NUMBER}"
        # Counters go with the last process at an address.
        holder = (f"{{ verbena run -- rping -s -a {OURS} -p 9999 >/dev/null 2>&1 & }}; "
                  "until verbena counters >/dev/null 2>&1; do busybox usleep 100000; done")
        return self.shell(f"busybox unshare -n busybox sleep 100000 >/dev/null 2>&1 & echo $! >{HOLD}; "
                          f"busybox sleep 1; {interface} && "
                          + in_namespace(f"/sbin/ip link set lo up && {interface} && {rdma} || exit 1; {holder}"))

    def run(self, case):
        status, output = self.shell(in_namespace(script(case)))
        problems = [] if status == 0 else [f"status {status}"]
        if output.count("ended: 0\n") != len(case.clients):
            problems.append("a client failed")
        # A counter that is 0 is not shown.
        counts = re.findall(r"counted (\d*) (\d+)\n", output)
        if len(counts) != 2:
            problems.append("no counters")
        else:
            for address, before, after in zip((OURS, RXE), *counts, strict=True):
                if (int(after or 0) > int(before or 0)) != (address in case.clients):
                    problems.append(f"{before} packets were sent from {address} before, {after} after")
        return [*problems, output] if problems else []

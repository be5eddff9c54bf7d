#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that run while somebody looks at their NIC and changes its port.

control.py --build build/release SCENARIO

Prints "passed: SCENARIO", or what went wrong. `run` has each scenario as a case.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

from programs import ADDRESS, Process, free_port, listens

PATIENCE = 40  # seconds for each step: less than the caller has for the whole
NIC = "127.0.0.77"
ADDED = "127.0.0.78"
PORT = "/sys/class/infiniband/vrb0/ports/1"


class Failed(Exception):
    pass


def check(condition, sentence):
    if not condition:
        raise Failed(sentence)


class Stage:
    """The programs of a scenario, all at one address, and the commands given meanwhile."""

    def __init__(self, build):
        self.verbena = str(build / "bin" / "verbena")
        self.processes = []

    def start(self, *words):
        """A program whose output is seen line by line."""
        process = Process([self.verbena, "run", "--addr", NIC, "--", "stdbuf", "-oL", *words],
                          dict(os.environ))
        self.processes.append(process)
        return process

    def watcher(self):
        """A program that does nothing but print asynchronous events, and so keeps the address."""
        process = self.start("ibv_asyncwatch", "-d", "vrb0")
        self.see(process, r"async event FD")
        return process

    def pair(self, *words):
        port = str(free_port())
        server = self.start(*words, "-p", port)
        deadline = time.monotonic() + PATIENCE
        while not listens(int(port), server.process.pid) and time.monotonic() < deadline:
            check(server.process.poll() is None, f"the server ended:\n{server.output()}")
            time.sleep(0.01)
        return server, self.start(*words, "-p", port, ADDRESS)

    def command(self, *words, status=0):
        done = subprocess.run([self.verbena, *words, "--addr", NIC], capture_output=True, text=True,
                              timeout=PATIENCE)
        check(done.returncode == status,
              f"{words}: status {done.returncode}, {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def text(self, path):
        """A file as a program on the NIC reads it; nothing when it is not there."""
        done = subprocess.run([self.verbena, "run", "--addr", NIC, "--", "cat", f"{PORT}/{path}"],
                              capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout.strip() if done.returncode == 0 else None

    @staticmethod
    def see(process, pattern):
        deadline = time.monotonic() + PATIENCE
        while not re.search(pattern, process.output()):
            check(process.process.poll() is None and time.monotonic() < deadline,
                  f"the output lacks /{pattern}/:\n{process.output()}")
            time.sleep(0.02)

    @staticmethod
    def end(*processes):
        """Waits for programs and returns their statuses."""
        return [process.process.wait(PATIENCE) for process in processes]

    @staticmethod
    def first_end(*processes):
        """The program that ends first."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for process in processes:
                if process.process.poll() is not None:
                    return process
            time.sleep(0.02)
        raise Failed("no program ended")

    def stop(self):
        for process in self.processes:
            process.stop()


def port_events(stage):
    watcher = stage.watcher()
    check(stage.text("state") == "4: ACTIVE", "the port is not active at first")
    stage.command("port", "down")
    stage.see(watcher, r"IBV_EVENT_PORT_ERR")
    check(stage.text("state") == "1: DOWN", "the file says that the port is not down")
    check(stage.text("counters/link_downed") == "1", "link_downed is not 1")
    stage.command("port", "up")
    stage.see(watcher, r"IBV_EVENT_PORT_ACTIVE")
    check(stage.text("state") == "4: ACTIVE", "the file says that the port is not active")


def pulled_cable(stage):
    watcher = stage.watcher()
    server, client = stage.pair("ibv_rc_pingpong", "-g", "0", "-n", "100000000")
    stage.see(server, r"remote address")
    time.sleep(0.5)
    check(client.process.poll() is None, f"the client ended:\n{client.output()}")
    stage.command("port", "down")
    # Whose message is under way fails; the other one may wait for it for ever.
    failed = stage.first_end(server, client)
    check(failed.process.returncode != 0, "a program ended well without a port")
    check("transport retry counter exceeded" in failed.output(),
          f"no retry was exceeded:\n{failed.output()}")
    server.stop()
    client.stop()
    counted = json.loads(stage.command("counters", "--json"))["counters"]
    check(counted["retry_exceeded"] > 0 and counted["port_down_drops"] > 0, f"counters: {counted}")
    stage.command("port", "up")
    stage.see(watcher, r"IBV_EVENT_PORT_ACTIVE")
    server, client = stage.pair("ibv_rc_pingpong", "-g", "0", "-n", "100")
    check(stage.end(server, client) == [0, 0], f"not up again:\n{client.output()}")


def counters(stage):
    check("no NIC runs at" in stage.command("counters", status=1), "nobody is there, and no error")
    stage.watcher()
    server, client = stage.pair("ib_send_bw", "-F", "-s", "4096", "-n", "1000")
    check(stage.end(server, client) == [0, 0], client.output())
    counted = json.loads(stage.command("counters", "--json"))
    check(len(counted["processes"]) == 1, "who is gone is still there")
    total = counted["counters"]
    check(total["bytes_sent"] >= 4096 * 1000, f"counters: {total}")
    check(total["sends_completed"] >= 1, f"counters: {total}")
    for name, key in (("hw_counters/sent_pkts", "packets_sent"),
                      ("hw_counters/rdma_recvs", "receives_completed"),
                      ("counters/port_rcv_packets", "packets_received")):
        check(stage.text(name) == str(total[key]), f"{name} is not {total[key]}")
    check(stage.text("counters/port_xmit_data") == str(total["bytes_sent"] // 4), "port_xmit_data")


def queue_pairs(stage):
    server, client = stage.pair("ibv_rc_pingpong", "-g", "0", "-n", "100000000")
    stage.see(server, r"remote address")
    time.sleep(0.5)
    counted = json.loads(stage.command("counters", "--qp", "--json"))
    pairs = [pair for process in counted["processes"] for pair in process["queue_pairs"]]
    check({process["pid"] for process in counted["processes"]} ==
          {server.process.pid, client.process.pid}, f"processes: {counted}")
    check([pair["state"] for pair in pairs] == ["RTS", "RTS"], f"queue pairs: {pairs}")
    check(pairs[0]["destination_qp"] == pairs[1]["number"] and
          pairs[1]["destination_qp"] == pairs[0]["number"], f"queue pairs: {pairs}")
    check(all(pair["counters"]["packets_sent"] > 0 for pair in pairs), f"queue pairs: {pairs}")
    way = "shared memory" if os.environ.get("VERBENA_SAME_HOST") == "auto" else "network"
    check([pair["way"] for pair in pairs] == [way, way], f"queue pairs: {pairs}")
    check("queue pair 0x" in stage.command("counters", "--qp"), "no queue pair in the text")


def gids(stage):
    watcher = stage.watcher()
    check("GID 1 is 127.0.0.78" in stage.command("gid", "add", ADDED), "the GID's index")
    stage.see(watcher, r"IBV_EVENT_GID_CHANGE")
    check(stage.text("gids/1").endswith("7f00:004e"), "the file gids/1")
    check(stage.text("gid_attrs/types/1") == "RoCE v2", "the file gid_attrs/types/1")
    for words in (["ibv_rc_pingpong", "-n", "1000"], ["ibv_ud_pingpong", "-s", "1024", "-n", "100"]):
        server, client = stage.pair(*words, "-g", "1")
        check(stage.end(server, client) == [0, 0], f"{words}:\n{client.output()}")
        check("::ffff:127.0.0.78" in client.output(), f"{words}: another GID:\n{client.output()}")
    # From one GID to the other.
    port = str(free_port())
    server = stage.start("ibv_rc_pingpong", "-g", "0", "-p", port, "-n", "100")
    while not listens(int(port), server.process.pid):
        time.sleep(0.01)
    client = stage.start("ibv_rc_pingpong", "-g", "1", "-p", port, "-n", "100", ADDRESS)
    check(stage.end(server, client) == [0, 0], f"from GID to GID:\n{client.output()}")

    stage.command("gid", "add", ADDED, status=1)
    stage.command("gid", "add", "192.0.2.1", status=1)
    stage.command("gid", "add", "nonsense", status=2)
    stage.command("gid", "del", NIC, status=1)
    stage.command("gid", "del", ADDED)
    check(set(stage.text("gids/1")) == {"0", ":"}, "gids/1 is not empty")
    check(stage.text("gid_attrs/types/1") is None, "gid_attrs/types/1 is still there")


SCENARIOS = {"port events": port_events, "a pulled cable": pulled_cable, "counters": counters,
             "queue pairs": queue_pairs, "GIDs": gids}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("scenario", choices=SCENARIOS)
    options = parser.parse_args()
    stage = Stage(options.build.resolve())
    try:
        SCENARIOS[options.scenario](stage)
    except Failed as problem:
        print(problem)
        return 1
    finally:
        stage.stop()
    print(f"passed: {options.scenario}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Times the usual products of few rows with weights of 4 and 16 bits, weights out of the caches.

    python3 matvec_peers.py --out FILE [--m 1 8 16 64] [--shapes 2560x9216 ...] [--peers NAME ...]
                            [--wheels FOLDER] [--seconds S] [--autotune] [--dry-run]

Needs PyTorch and a GPU; `--wheels` adds the wheels of a folder (humming-kernels, gemlite), and what
cannot start is recorded with its reason. y[M, N] = x[M, K] w[N, K]^T in bf16; int4 weights are
offset-binary codes with a bf16 scale for each 128 along K, the same for every peer.

Each figure is the median over the replays of a CUDA graph of 24 calls or more, over copies of the
weights that are 256 MB or more together (and 4 at least), divided by the calls. The entries of a
shape run in turn, forwards and then backwards, with two floors in the same turns: the read ceiling
(4 GiB) and kernels that only read as many bytes as the weights have, as plain nodes and with
programmatic dependent launch. Bytes are the least that a call must move: weights, scales, x and y.
Errors are relative in L2, against fp32 on the weights that the peer was given, decoded.

The file gets one JSON object, rewritten after each shape; a table comes last on standard output.
The exit status is 1 if the GPU failed. `--dry-run` does all but the timing on the CPU, on small
shapes.
"""

import argparse
import functools
import itertools
import json
import math
import os
import platform
import statistics
import sys
import time

START = time.time()  # importing PyTorch is part of the time limit

import torch

from graph_timing import Cpu, Gpu, GpuFailed, reason
from read_floor import KernelReads, TorchReads, best_read, compile_reads
from weight_peers import (
    GROUP,
    Case,
    CublasBf16,
    Gemlite,
    Humming,
    HummingProgrammatic,
    Tinygemm,
    unpack_wheels,
)

SHAPES = ["2560x9216", "4096x4096", "6144x4096", "4096x14336", "28672x4096", "128256x4096"]
MIN_CALLS, REPLAYS, ROUNDS, ENTRY_SECONDS = 24, 15, 2, 1.0


def relative_error(found, exact):
    """The L2 norm of the difference over that of the exact values; raises if one is not finite."""
    error = float((found.float() - exact).norm() / exact.norm())
    if not math.isfinite(error):
        raise ArithmeticError("results that are not finite")
    return error


class Run:
    """The entries of one run: what is measured, what is skipped, and when time is over."""

    def __init__(self, options, device):
        self.options, self.device = options, device
        self.lines, self.skipped = [], []

    def late(self):
        return time.time() - START > self.options.seconds

    def attempt(self, line, action):
        """What the action returns; None, and a line with the reason, if it cannot start."""
        if self.late():
            self.skipped.append({**line, "skipped": f"after {self.options.seconds:g} s"})
            return None
        try:
            return action()
        except Exception as error:
            self.skipped.append({**line, "skipped": reason(error)})
            self.device.check()
            return None

    def build_peers(self, shapes):
        makers = {
            "cublas bf16": CublasBf16,
            "tinygemm int4": Tinygemm,
            "humming int4": lambda: Humming(shapes, self.options.m),
            "humming int4, programmatic": lambda: HummingProgrammatic(shapes, self.options.m),
            "gemlite int4": lambda: Gemlite(self.options.autotune),
        }
        wanted = self.options.peers
        chosen = [name for name in makers if not wanted or any(part in name for part in wanted)]
        return [peer for name in chosen if (peer := self.attempt({"peer": name}, makers[name]))]

    def build_reads(self):
        words = self.device.ceiling_bytes // 4
        buffer = torch.randint(
            -(2**31), 2**31 - 1, (words,), dtype=torch.int32, device=self.device.name
        )
        if self.device.name == "cpu":
            self.attempt({"peer": "read kernels"}, lambda: compile_reads(90))
            return TorchReads(buffer)
        line = {"peer": "read kernels"}
        return self.attempt(line, lambda: KernelReads(buffer)) or TorchReads(buffer)

    def floors(self, case, reads, ceiling):
        """Entries (line, graph) of the read ceiling and of nodes that only read the weights."""
        entries = [
            ({"peer": "read ceiling", "bytes": self.device.ceiling_bytes, "calls": 2}, ceiling)
        ]
        for kind, overlapped in itertools.product(("int4", "bf16"), (False, True)):
            size = case.weight_bytes(kind)
            line = {"peer": "read-only node" + (", programmatic" if overlapped else "")}
            line |= {"weights": kind, "bytes": size}
            found = self.attempt(line, lambda: best_read(self.device, reads, size, overlapped))
            if found:
                calls, launch = found
                line |= {"launch": str(launch), "copies": len(calls)}
                entries += self.captured(line, calls)
        return entries

    def captured(self, line, calls):
        line["calls"] = math.ceil(MIN_CALLS / len(calls)) * len(calls)
        graph = self.attempt(line, lambda: self.device.capture(calls, line["calls"]))
        return [(line, graph)] if graph is not None else []

    def products(self, case, peer):
        size = case.weight_bytes(peer.kind)
        name = {"peer": peer.name, "weights": peer.kind}
        rows = [
            m
            for m in case.x
            if m <= peer.largest_m
            and self.attempt(name | {"m": m}, lambda: peer.supports(case.n, case.k, m))
        ]
        if not rows:
            return []
        products = self.attempt(name, lambda: peer.prepare(case, self.device.copies(size)))
        entries = []
        for m in rows if products else []:
            x, exact = case.x[m], case.exact[peer.kind, m]
            line = name | {"m": m, "bytes": size + 2 * m * (case.k + case.n)}
            error = self.attempt(line, lambda: relative_error(products[0](x), exact))
            if error is not None:
                line |= {"copies": len(products), "relative_error": round(error, 5)}
                entries += self.captured(
                    line, [functools.partial(product, x) for product in products]
                )
        return entries

    def measure(self, entries):
        """Times entries in turns; adds the figures to their lines."""
        times, clocks = [[] for _ in entries], [[] for _ in entries]
        rounds = [[] for _ in entries]
        for turn in range(ROUNDS):
            order = range(len(entries))
            for index in order if turn % 2 == 0 else reversed(order):
                line, graph = entries[index]
                if self.late():
                    break
                if not turn:
                    first = self.device.replay_us(graph, 1)[0][0]
                    fitting = int(ENTRY_SECONDS * 1e6 / ROUNDS / max(first, 1))
                    line["replays"] = (
                        max(5, min(REPLAYS, fitting)) if self.device.name == "cuda" else 2
                    )
                found, clock = self.device.replay_us(graph, line["replays"])
                per_call = [us / line["calls"] for us in found]
                times[index] += per_call
                rounds[index].append(round(statistics.median(per_call), 3))
                clocks[index].append(clock)
        for (line, graph), us, medians, mhz in zip(entries, times, rounds, clocks):
            if not us:
                self.skipped.append({**line, "skipped": f"after {self.options.seconds:g} s"})
                continue
            line["us"], line["rounds_us"] = round(statistics.median(us), 3), medians
            line["gb_per_s"] = round(line["bytes"] / statistics.median(us) / 1e3, 1)
            line["sm_clock_mhz"] = mhz
            line["graph_nodes"] = self.device.count_nodes(graph)
            self.lines.append(line)
        self.add_ratios([line for line, _ in entries if "us" in line])

    @staticmethod
    def add_ratios(lines):
        ceiling = next((line["gb_per_s"] for line in lines if line["peer"] == "read ceiling"), None)
        nodes = {line["weights"]: line["us"] for line in lines if line["peer"] == "read-only node"}
        for line in lines:
            if ceiling:
                line["of_read_ceiling"] = round(line["gb_per_s"] / ceiling, 4)
            if "m" in line and line["weights"] in nodes:
                line["of_read_only_node"] = round(nodes[line["weights"]] / line["us"], 4)

    def shape(self, n, k, peers, reads, ceiling):
        torch.manual_seed(n * 31 + k)
        first, first_skipped = len(self.lines), len(self.skipped)
        try:
            case = self.attempt(
                {"peer": "weights"}, lambda: Case(n, k, self.options.m, self.device.name)
            )
            if case:
                entries = self.floors(case, reads, ceiling)
                for peer in peers:
                    entries += self.products(case, peer)
                self.measure(entries)
        finally:
            for line in self.lines[first:] + self.skipped[first_skipped:]:
                line |= {"n": n, "k": k}

    def write(self, facts):
        facts = {**facts, "seconds": round(time.time() - START, 1)}
        with open(self.options.out, "w") as file:
            json.dump(
                {"machine": facts, "entries": self.lines, "skipped": self.skipped}, file, indent=1
            )
            file.write("\n")

    def report(self):
        """Prints what was skipped, then the table."""
        reasons = {}
        for line in self.skipped:
            name = f"{line['peer']} {line['weights']}" if "node" in line["peer"] else line["peer"]
            place = [f"{line['n']}x{line['k']}"] if "n" in line else []
            place += [f"M={line['m']}"] if "m" in line else []
            reasons.setdefault((name, line["skipped"]), []).append(" ".join(place))
        for (name, why), places in reasons.items():
            print(f"skipped: {name}: {', '.join(filter(None, places)) or 'everywhere'}: {why}")
        columns = "{:>13} {:>4} {:28} {:>9} {:>8} {:>8} {:>8} {:>9}  {}"
        print(columns.format("N x K", "M", "peer", "us", "GB/s", "ceiling", "node", "error", "MHz"))
        for line in self.lines:
            share = lambda key: f"{100 * line[key]:.1f} %" if key in line else ""
            mhz = [clock for clock in line["sm_clock_mhz"] if clock]
            weights = line["weights"] if "node" in line["peer"] else ""
            print(
                columns.format(
                    f"{line['n']}x{line['k']}",
                    line.get("m", ""),
                    f"{line['peer']} {weights}".strip(),
                    f"{line['us']:.2f}",
                    f"{line['gb_per_s']:.0f}",
                    share("of_read_ceiling"),
                    share("of_read_only_node"),
                    f"{line['relative_error']:.1e}" if "relative_error" in line else "",
                    f"{min(mhz)}-{max(mhz)}" if mhz else "",
                ).rstrip()
            )


def versions():
    from importlib import metadata

    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    for package in ("triton", "cuda-bindings", "humming-kernels", "gemlite"):
        try:
            facts[package.replace("-", "_")] = metadata.version(package)
        except metadata.PackageNotFoundError:
            facts[package.replace("-", "_")] = None
    return facts


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--m", type=int, nargs="+", default=[1], help="rows of x")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="NxK")
    parser.add_argument("--peers", nargs="+", help="only peers whose names hold one of these")
    parser.add_argument("--wheels", help="a folder of wheels to add")
    parser.add_argument(
        "--seconds", type=float, default=55.0, help="start nothing more after this long"
    )
    parser.add_argument("--autotune", action="store_true", help="let gemlite tune all shapes")
    parser.add_argument("--dry-run", action="store_true", help="all but the timing, on the CPU")
    options = parser.parse_args(arguments)
    try:
        options.shapes = [tuple(int(size) for size in shape.split("x")) for shape in options.shapes]
        valid = all(n > 0 and n % 16 == 0 and k > 0 and k % GROUP == 0 for n, k in options.shapes)
    except ValueError:
        valid = False
    if not valid:
        parser.error(f"expected shapes NxK with N a multiple of 16 and K of {GROUP}")
    if min(options.m) < 1:
        parser.error("expected rows of 1 or more")
    options.m = sorted(set(options.m))
    if options.dry_run:
        small = lambda size, by, unit: max(1, size // by // unit) * unit
        options.shapes = [(small(n, 32, 16), small(k, 8, GROUP)) for n, k in options.shapes]
    elif not torch.cuda.is_available():
        parser.error("expected a GPU that PyTorch can use, found none (--dry-run needs none)")
    return options


def main():
    options = parse(sys.argv[1:])
    place = unpack_wheels(options.wheels) if options.wheels else None
    device = Cpu() if options.dry_run else Gpu()
    run, failed = Run(options, device), False
    facts = {**versions(), **device.describe(), "dry_run": options.dry_run}
    facts |= {"shapes": [f"{n}x{k}" for n, k in options.shapes], "m": options.m}
    try:
        peers = run.build_peers(options.shapes)
        reads = run.build_reads()
        facts["reads"] = reads.label
        calls, facts["ceiling_launch"] = best_read(device, reads, device.ceiling_bytes, False)
        ceiling = device.capture(calls, 2)
        for n, k in options.shapes:
            run.shape(n, k, peers, reads, ceiling)
            device.release()
            run.write(facts)
    except GpuFailed as error:
        facts["gpu_failed"], failed = str(error), True
    run.write(facts)
    run.report()
    if place:
        place.cleanup()
    if failed:
        print(f"the GPU failed: {facts['gpu_failed']}", file=sys.stderr)
        sys.stdout.flush()
        os._exit(1)  # the ends of CUDA's objects would raise again


main()

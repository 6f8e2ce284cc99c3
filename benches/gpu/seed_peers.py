"""Times torch.compile on the seed case: one row, K = 9216, N = 2560, int4 weights in groups of 128
or 32 behind a gated activation, by default and with autotuning; with the time to read as many bytes.

    python seed_peers.py [SECONDS]

Needs PyTorch and a GPU; compiling stops after SECONDS. One line of JSON for each case: microseconds
of one call in a CUDA graph of 48 calls over 24 copies of the weight, the median of three rounds, and
the buffers of K*N elements or more that the compiled program allocates.
"""

import json
import re
import statistics
import sys
import time

import torch
import torch._inductor as inductor
import torch.nn.functional as F
from torch._inductor.graph import GraphLowering

K, N, COPIES, CALLS = 9216, 2560, 24, 48
START, LIMIT = time.time(), float(sys.argv[1]) if len(sys.argv) > 1 else 300.0

ACTIVATIONS = {
    "none": lambda g, u: g * u,
    "silu": lambda g, u: F.silu(g) * u,
    "gelu_tanh": lambda g, u: F.gelu(g, approximate="tanh") * u,
    "clamped_swiglu": lambda g, u: F.silu(g.clamp(max=7.0)) * (u.clamp(-7.0, 7.0) + 1),
}
MODES = {
    "torch.compile max-autotune": inductor.list_mode_options("max-autotune-no-cudagraphs"),
    "torch.compile default": {},
}


def decode(codes, scales, group):
    """[K, N] numbers from codes [K/8, N], low nibble first, and scales [K/group, N]."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=codes.device)
    q = ((codes.unsqueeze(1) >> shifts.view(1, 8, 1)) & 15) - 8
    return (q.reshape(K // group, group, N).to(torch.bfloat16) * scales.unsqueeze(1)).reshape(K, N)


def large_buffers(code):
    found = []
    for dims, dtype in re.findall(r"empty_strided_\w+\(\(([^)]*)\), \([^)]*\), (torch\.\w+)\)", code):
        sizes = [int(size) for size in dims.split(",") if size.strip().isdigit()]
        count = 1
        for size in sizes:
            count *= size
        if count >= K * N:
            found.append(f"{dims.strip()} {dtype}")
    return found


def capture(calls):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        calls[0]()
        calls[1]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for index in range(CALLS):
            calls[index % len(calls)]()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def time_us(graph, reps=20):
    for _ in range(3):
        graph.replay()
    times = []
    for _ in range(reps):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(times)


def main():
    torch.manual_seed(0)
    dev, bf16 = "cuda", torch.bfloat16
    g, u = torch.randn(1, K, device=dev).to(bf16), torch.randn(1, K, device=dev).to(bf16)
    entries = []
    kept = []  # what graphs read must stay where it is
    for group in (128, 32):
        weights = [
            (
                torch.randint(-(2**31), 2**31 - 1, (K // 8, N), dtype=torch.int32, device=dev),
                ((torch.rand(K // group, N, device=dev) + 0.5) * 0.01).to(bf16),
            )
            for _ in range(COPIES)
        ]
        kept.append(weights)
        for name, act in ACTIVATIONS.items():
            for mode, options in MODES.items():
                if time.time() - START > LIMIT:
                    print(json.dumps({"peer": mode, "activation": name, "group": group, "skipped": "time"}))
                    continue
                codes = []
                GraphLowering.save_output_code = staticmethod(codes.append)
                torch._dynamo.reset()
                call = lambda g, u, q, s, act=act, group=group: act(g, u) @ decode(q, s, group)
                compiled = torch.compile(call, dynamic=False, options=options or None)
                out = compiled(g, u, *weights[0])
                GraphLowering.save_output_code = None
                exact = act(g.double(), u.double()) @ decode(*weights[0], group).double()
                error = float((out.double() - exact).norm() / exact.norm())
                calls = [lambda w=w, c=compiled: c(g, u, *w) for w in weights]
                line = {
                    "peer": mode,
                    "activation": name,
                    "group": group,
                    "relative_error": round(error, 5),
                    "buffers_of_k_n_elements": large_buffers("\n".join(codes)),
                }
                kept.append((compiled, calls))
                entries.append((line, capture(calls)))
    # As many bytes as a call must read, read by a sum.
    byte_count = K * N // 2 + K * N // 128 * 2
    blobs = [torch.zeros(byte_count // 4, device=dev) for _ in range(COPIES)]
    total = torch.compile(lambda x: x.sum(), dynamic=False)
    line = {"peer": "sum of the same bytes (torch.compile)", "bytes": byte_count}
    entries.append((line, capture([lambda b=b: total(b) for b in blobs])))
    big = torch.zeros(1 << 30, device=dev)
    big_sum = capture([lambda: big.sum()] * 2)
    line = {"peer": "sum of 4 GiB: the read ceiling", "bytes": 4 << 30}
    entries.append((line, big_sum))
    rounds = [[] for _ in entries]
    for turn in range(3):
        order = range(len(entries)) if turn % 2 == 0 else reversed(range(len(entries)))
        for index in order:
            reps = 3 if "4 GiB" in entries[index][0]["peer"] else 20
            rounds[index].append(time_us(entries[index][1], reps))
    for (line, _), times in zip(entries, rounds):
        line["us"] = round(statistics.median(times), 3)
        line["rounds_us"] = [round(t, 3) for t in times]
        if "bytes" in line:
            line["gb_per_s"] = round(line["bytes"] / line["us"] / 1e3, 1)
        print(json.dumps(line))
    device = torch.cuda.get_device_name()
    print(json.dumps({"gpu": device, "torch": torch.__version__, "cuda": torch.version.cuda}))


main()

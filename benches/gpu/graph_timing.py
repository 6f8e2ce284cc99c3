"""Captures calls in CUDA graphs and times their replays; a stand-in does the same on the CPU."""

import functools
import itertools
import math
import sys
import time

import torch

MIN_COPIES = 4


class GpuFailed(Exception):
    """The GPU answers no more calls of this process."""


def checked(result):
    """The values of a call of CUDA's bindings, as a list; raises its error."""
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"{status.name} ({int(status)})")
    return values


def reason(error):
    """An error in one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:300] if text else ''}"


class Device:
    """What the GPU and its stand-in share."""

    def copies(self, size):
        """How many copies of so many bytes leave none of them in a cache until its turn comes."""
        return max(MIN_COPIES, math.ceil(self.cold_bytes / size))


class Gpu(Device):
    """CUDA graphs, timed by events."""

    name, ceiling_bytes, cold_bytes = "cuda", 4 << 30, 256_000_000

    def __init__(self):
        torch.zeros(1, device=self.name)
        try:
            import pynvml

            pynvml.nvmlInit()
            self.nvml = pynvml
            self.handle = pynvml.nvmlDeviceGetHandleByIndex(torch.cuda.current_device())
        except Exception as error:
            self.nvml = None
            print(f"no clocks and no driver version: {reason(error)}", file=sys.stderr)

    def clock(self):
        """MHz of the multiprocessors now; None if it cannot be read."""
        return self.nvml and self.nvml.nvmlDeviceGetClockInfo(self.handle, self.nvml.NVML_CLOCK_SM)

    def describe(self):
        properties = torch.cuda.get_device_properties(0)
        facts = {"gpu": properties.name, "multiprocessors": properties.multi_processor_count}
        facts["l2_bytes"] = properties.L2_cache_size
        if self.nvml:
            driver, memory = self.nvml.nvmlSystemGetDriverVersion(), self.nvml.NVML_CLOCK_MEM
            facts["driver"] = driver.decode() if isinstance(driver, bytes) else driver
            facts["memory_clock_mhz"] = self.nvml.nvmlDeviceGetClockInfo(self.handle, memory)
        return facts

    def capture(self, calls, count):
        """A graph of `count` of the calls, in turn; the first two have run once before.

        The graph keeps the calls: what it reads must stay where it is."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for call in calls[:2]:
                call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph, stream=stream):
            for call in itertools.islice(itertools.cycle(calls), count):
                call()
        graph.instantiate()
        graph.replay()
        torch.cuda.synchronize()
        graph.calls = calls
        return graph

    def replay_us(self, graph, replays):
        """Microseconds of each replay, and the clock while they run."""
        for _ in range(2):
            graph.replay()
        event = functools.partial(torch.cuda.Event, enable_timing=True)
        events = [(event(), event()) for _ in range(replays)]
        for start, end in events:
            start.record()
            graph.replay()
            end.record()
        clock = self.clock()
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events], clock

    def count_nodes(self, graph):
        """Nodes of a graph; the error as text if the driver's bindings do not tell."""
        try:
            from cuda.bindings import driver

            handle = driver.CUgraph(int(graph.raw_cuda_graph()))
            return checked(driver.cuGraphGetNodes(handle))[-1]
        except Exception as error:
            return reason(error)

    def check(self):
        """Raises GpuFailed if an error stays."""
        try:
            torch.cuda.synchronize()
        except Exception as error:
            raise GpuFailed(reason(error)) from error

    def release(self):
        torch.cuda.empty_cache()


class Cpu(Device):
    """The same interface for a dry run; its times mean nothing."""

    name, ceiling_bytes, cold_bytes = "cpu", 8 << 20, 1 << 20

    def describe(self):
        return {"gpu": None}

    def capture(self, calls, count):
        return [calls[index % len(calls)] for index in range(count)]

    def replay_us(self, graph, replays):
        times = []
        for _ in range(replays):
            start = time.perf_counter()
            for call in graph:
                call()
            times.append((time.perf_counter() - start) * 1e6)
        return times, None

    def count_nodes(self, graph):
        return len(graph)

    def check(self):
        pass

    def release(self):
        pass

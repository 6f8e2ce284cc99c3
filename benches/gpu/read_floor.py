"""Kernels that only read: how fast bytes come from memory, at all and in one node of a graph."""

import ctypes
import functools
import itertools
import math
import statistics

import torch

from graph_timing import checked

ALIGNMENT = 2 << 20  # of the copies that are read, as of large allocations

READ_SOURCE = r"""
typedef unsigned long long u64;

__device__ __forceinline__ unsigned fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

__device__ __forceinline__ uint4 load(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
  return v;
}

// Folds `count` words of 16 bytes. With slabs, each block reads one contiguous part. An overlapped
// kernel reads before it waits for the kernel ahead: what it reads is written by none.
template <int IN_FLIGHT, bool OVERLAPPED>
__device__ __forceinline__ void read(const uint4* data, u64 count, int slabs, unsigned* sink) {
  if (OVERLAPPED) asm volatile("griddepcontrol.launch_dependents;");
  u64 first = u64(blockIdx.x) * blockDim.x, last = count, step = u64(gridDim.x) * blockDim.x;
  if (slabs) {
    const u64 part = ((count + gridDim.x - 1) / gridDim.x + 31) / 32 * 32;
    first = part * blockIdx.x;
    last = first + part < count ? first + part : count;
    step = blockDim.x;
  }
  unsigned seen = 0;
  u64 i = first + threadIdx.x;
  for (; i + (IN_FLIGHT - 1) * step < last; i += IN_FLIGHT * step) {
    uint4 v[IN_FLIGHT];
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; ++n) v[n] = load(data + i + n * step);
#pragma unroll
    for (int n = 0; n < IN_FLIGHT; ++n) seen ^= fold(v[n]);
  }
  for (; i < last; i += step) seen ^= fold(load(data + i));
  if (OVERLAPPED) asm volatile("griddepcontrol.wait;" ::: "memory");
  if (seen == 0x9e3779b9u) sink[threadIdx.x % 32] = seen;  // keeps the loads
}

// Without bounds the compiler saves registers and keeps fewer loads in flight.
#define KERNEL(NAME, N, OVERLAPPED)                                                       \
  extern "C" __global__ void __launch_bounds__(1024, 1)                                   \
      NAME##_##N(const uint4* data, u64 count, int slabs, unsigned* sink) {               \
    read<N, OVERLAPPED>(data, count, slabs, sink);                                        \
  }
KERNEL(plain, 2, false)
KERNEL(plain, 4, false)
KERNEL(plain, 8, false)
KERNEL(overlapped, 2, true)
KERNEL(overlapped, 4, true)
KERNEL(overlapped, 8, true)
"""


def compile_reads(architecture):
    """The cubin of the kernels above, from NVRTC."""
    from cuda.bindings import nvrtc

    (program,) = checked(nvrtc.nvrtcCreateProgram(READ_SOURCE.encode(), b"read.cu", 0, [], []))
    options = [f"--gpu-architecture=sm_{architecture}".encode(), b"--std=c++17"]
    try:
        checked(nvrtc.nvrtcCompileProgram(program, len(options), options))
    except RuntimeError as error:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))[0]
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{error}: {log.decode()}") from error
    cubin = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))[0]
    checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return cubin


class KernelReads:
    """Reads by the kernels above, launched as suits each size."""

    label = "16-byte loads"
    # Loads in flight a thread; threads a block and blocks a multiprocessor; whether in slabs.
    launches = list(
        itertools.product(
            (2, 4, 8),
            ((256, 2), (256, 4), (256, 8), (512, 1), (512, 2), (512, 4), (1024, 1), (1024, 2)),
            (0, 1),
        )
    )

    def __init__(self, buffer):
        from cuda.bindings import driver

        major, minor = torch.cuda.get_device_capability()
        (self.module,) = checked(driver.cuModuleLoadData(compile_reads(10 * major + minor)))
        self.kernels = {}
        for overlapped, in_flight in itertools.product((False, True), (2, 4, 8)):
            name = f"{'overlapped' if overlapped else 'plain'}_{in_flight}".encode()
            (kernel,) = checked(driver.cuModuleGetFunction(self.module, name))
            self.kernels[overlapped, in_flight] = kernel
        self.driver, self.buffer = driver, buffer
        self.sink = torch.zeros(32, dtype=torch.int32, device=buffer.device)
        self.processors = torch.cuda.get_device_properties(buffer.device).multi_processor_count
        serialized = (
            driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        )
        self.programmatic = driver.CUlaunchAttribute()
        self.programmatic.id = serialized
        self.programmatic.value.programmaticStreamSerializationAllowed = 1

    def call(self, offset, size, launch, overlapped):
        in_flight, (threads, blocks), slabs = launch
        config = self.driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks * self.processors, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
        config.hStream = torch.cuda.current_stream().cuda_stream
        if overlapped:
            config.attrs = [self.programmatic]
            config.numAttrs = 1
        values = (self.buffer.data_ptr() + offset, size // 16, slabs, self.sink.data_ptr())
        types = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int, ctypes.c_void_p)
        kernel = self.kernels[overlapped, in_flight]
        checked(self.driver.cuLaunchKernelEx(config, kernel, (values, types), 0))


class TorchReads:
    """Reads by torch.sum, where the kernels cannot be built."""

    label, launches = "torch.sum", ["torch.sum"]

    def __init__(self, buffer):
        self.buffer = buffer.view(torch.float32)

    def call(self, offset, size, launch, overlapped):
        if overlapped:
            raise NotImplementedError("programmatic launch needs kernels of our own")
        self.buffer[offset // 4 : (offset + size) // 4].sum()


def best_read(device, reads, size, overlapped):
    """Calls that each read `size` bytes of another place, launched in the fastest way found, and
    that way."""
    if size > device.ceiling_bytes:
        raise ValueError(f"expected {device.ceiling_bytes} bytes or less to read, found {size}")
    size = size // 16 * 16
    step = math.ceil(size / ALIGNMENT) * ALIGNMENT
    count = max(1, min(device.copies(size), device.ceiling_bytes // step))

    def calls(launch):
        offsets = range(0, count * step, step)
        return [
            functools.partial(reads.call, offset, size, launch, overlapped) for offset in offsets
        ]

    def cost(launch):
        return statistics.median(device.replay_us(device.capture(calls(launch), count), 3)[0])

    launch = min(reads.launches, key=cost)
    return calls(launch), launch

#!/usr/bin/env python3
"""Runs every kernel of the vectors that `cargo run -p fuseline-cuda --example vectors` writes.

Needs python3 with numpy and CuPy, NVRTC and a GPU; no Rust and no network:

    python3 check.py DIR [--sanitize N] [--only PREFIX] [--no-timing]

Each kernel runs by itself on the oracle's values of what it loads; its results are poisoned with
NaN before and have a guard behind. Then the kernels of each plan run one after the other on each
other's results. The bits of single kernels are also compared with those that the same kernels
store under emulation. `$OUT/results.json` gets every error and
`$OUT/record.json` what is worth keeping; the exit status is 1 if there was a failure.

Without a GPU the same kernels run in the tests of `backend-cuda`, under emulation.
"""

import argparse
import concurrent.futures
import ctypes
import glob
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
import time
import zlib

import numpy as np

GUARD_BYTES = 256
OPTIONS = ["--fmad=false", "--std=c++17"]
INTEGER = "i32"


# ---- compiling


def nvrtc_library():
    """NVRTC, from the loader's path, Python's packages or the toolkit."""
    names = ["libnvrtc.so.13", "libnvrtc.so"]
    for folder in sys.path + ["/usr/local/cuda"]:
        names += sorted(glob.glob(f"{folder}/nvidia/*/lib/libnvrtc.so.[0-9]*"))
        names += sorted(glob.glob(f"{folder}/lib64/libnvrtc.so*"))
    for name in names:
        # NVRTC asks the loader for its other library by name: it is found if it is loaded.
        if "/" in name:
            for builtins in glob.glob(f"{os.path.dirname(name)}/libnvrtc-builtins.so.*"):
                if ".alt." not in builtins:
                    ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def compile_nvrtc(job):
    """Compiles one source to a cubin; gives its name, the log if it failed, and the seconds."""
    source_path, cubin_path, arch = job
    start = time.monotonic()
    nvrtc = nvrtc_library()
    if nvrtc is None:
        return source_path, compile_nvcc(source_path, cubin_path, arch), time.monotonic() - start
    with open(source_path, "rb") as file:
        text = file.read()
    program = ctypes.c_void_p()
    name = os.path.basename(source_path).encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    options = [option.encode() for option in [*OPTIONS, f"--gpu-architecture={arch}"]]
    array = (ctypes.c_char_p * len(options))(*options)
    failed = nvrtc.nvrtcCompileProgram(program, len(options), array)
    size = ctypes.c_size_t()
    if failed:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        log = log.value.decode(errors="replace")
        if "builtins" in log.split("\n")[0]:
            log = compile_nvcc(source_path, cubin_path, arch)
        return source_path, log, time.monotonic() - start
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    cubin = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    with open(cubin_path, "wb") as file:
        file.write(cubin.raw)
    return source_path, None, time.monotonic() - start


def compile_nvcc(source_path, cubin_path, arch):
    """Compiles one source with the toolkit's compiler; gives the log if it failed."""
    command = ["nvcc", "-cubin", f"-arch={arch}", *OPTIONS, "-o", cubin_path, source_path]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        return f"neither NVRTC nor nvcc: {error}"
    return done.stderr if done.returncode else None


# ---- devices


class Cuda:
    """A GPU, through CuPy."""

    def __init__(self, exact):
        import cupy

        self.cupy = cupy
        self.exact = exact
        self.timer_flush = None
        if exact:
            # One allocation a buffer, so that a checker of memory sees where each ends.
            cupy.cuda.set_allocator(None)

    def describe(self):
        cupy = self.cupy
        properties = cupy.cuda.runtime.getDeviceProperties(0)
        smi = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        try:
            driver = subprocess.run(smi, capture_output=True, text=True).stdout.strip()
        except OSError:
            driver = ""
        return {
            "gpu": properties["name"].decode(),
            "compute_capability": f"{properties['major']}.{properties['minor']}",
            "driver": driver,
            "cuda_driver_api": cupy.cuda.runtime.driverGetVersion(),
            "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "cupy": cupy.__version__,
        }

    def load(self, path):
        return self.cupy.RawModule(path=path)

    def upload(self, data):
        """A device copy of bytes. A guard of ones (NaN in every type) is behind, unless exact."""
        guard = b"" if self.exact else b"\xff" * GUARD_BYTES
        padded = np.frombuffer(bytes(data) + guard, np.uint8)
        return self.cupy.asarray(padded) if len(padded) else self.cupy.zeros(16, np.uint8)

    def read(self, array):
        return self.cupy.asnumpy(array).tobytes()

    def launcher(self, module, kernel, args):
        function = module.get_function(kernel["name"])
        if kernel["shared_bytes"] > 48 * 1024:
            function.max_dynamic_shared_size_bytes = kernel["shared_bytes"]
        shape = ((kernel["grid"],), (kernel["block"],))

        def launch():
            function(*shape, tuple(args), shared_mem=kernel["shared_bytes"])

        return launch

    def synchronize(self):
        self.cupy.cuda.runtime.deviceSynchronize()

    def cold_us(self, launch, n=15):
        """The median time of a launch when the L2 cache holds other data, in microseconds."""
        cupy = self.cupy
        if self.timer_flush is None:
            self.timer_flush = cupy.empty(256 << 20, np.uint8)
        times = []
        for _ in range(n):
            cupy.cuda.runtime.memsetAsync(
                self.timer_flush.data.ptr, 1, self.timer_flush.nbytes, cupy.cuda.get_current_stream().ptr
            )
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            launch()
            end.record()
            end.synchronize()
            times.append(1000.0 * cupy.cuda.get_elapsed_time(begin, end))
        return float(np.median(times))


# ---- comparing


def decode(dtype, data):
    """Bytes of elements as f64."""
    if dtype == "f32":
        return np.frombuffer(data, np.float32).astype(np.float64)
    if dtype == "f16":
        return np.frombuffer(data, np.float16).astype(np.float64)
    if dtype == "bf16":
        wide = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    return np.frombuffer(data, np.int32).astype(np.float64)


def limit_of(dtype, kernel_limit):
    """The largest error of a stored type."""
    if dtype == INTEGER:
        return 0.0
    return max(kernel_limit, {"f32": 2e-5, "f16": 1e-3, "bf16": 4e-3}[dtype])


def compare(dtype, limit, scale, expected_bytes, found_bytes):
    """The error relative to the largest expected number, or to `scale` if that is larger, and the
    first bad element, if any."""
    if expected_bytes == found_bytes:
        return 0.0, None
    with np.errstate(all="ignore"):
        expected, found = decode(dtype, expected_bytes), decode(dtype, found_bytes)
        finite = np.abs(expected[np.isfinite(expected)])
        scale = max(1e-30, scale, float(finite.max()) if len(finite) else 0.0)
        if dtype == INTEGER:
            scale = 1.0
        same = (expected == found) | (np.isnan(expected) & np.isnan(found))
        comparable = np.isfinite(expected) & np.isfinite(found)
        errors = np.where(comparable, np.abs(expected - found) / scale, np.inf)
    errors[same] = 0.0
    worst = float(errors.max())
    if worst <= limit:
        return worst, None
    at = int(np.argmax(errors > limit))
    bad = int((errors > limit).sum())
    return worst, {
        "element": at, "bad": bad, "of": len(errors), "expected": float(expected[at]),
        "found": float(found[at]), "error": worst, "limit": limit,
    }


# ---- running


class Run:
    """The results of blocks on a device."""

    def __init__(self, device, folder, buffers, emit):
        self.device, self.folder, self.buffers, self.emit = device, folder, buffers, emit
        self.shared = {}

    def buffer(self, index):
        return self.buffers[index]

    def constant(self, index):
        """A device copy of a buffer that no kernel writes, made once a block."""
        if index not in self.shared:
            self.shared[index] = self.device.upload(self.buffer(index))
        return self.shared[index]

    def block(self, block, module, timing):
        self.shared = {}
        for plan in block["plans"]:
            for call in plan["calls"]:
                for kernel in plan["kernels"]:
                    self.single(block, module, plan, call, kernel, timing and block["timed"])
                self.chain(block, module, plan, call)

    def plain(self, call, kind, value):
        """A parameter that is the same alone and in a chain; None for the others."""
        if kind == "rows":
            return np.int32(call["rows"])
        entry = call["values"].get(str(value), {})
        if kind == "scalar":
            return np.array([entry["bits"]], np.uint32).view(np.float32)[0]
        if kind in ("codes", "scales", "offsets", "positions", "sequences"):
            return self.constant(entry[kind])
        return None

    def single(self, block, module, plan, call, kernel, timing):
        """One kernel on the oracle's operands."""
        args, checks = [], []
        for kind, *rest in kernel["params"]:
            value = rest[0] if rest else None
            arg = self.plain(call, kind, value)
            if arg is None:
                entry = call["values"][str(value)]
                if kind == "elements":
                    arg = self.constant(entry["buffer"])
                elif kind == "result":
                    expected = self.buffer(entry["buffer"])
                    arg = self.device.upload(b"\xff" * len(expected))
                    checks.append((f"%{value}", entry["dtype"], expected, arg, False, entry["scale"]))
                else:
                    before, after = (self.buffer(index) for index in entry[kind])
                    arg = self.device.upload(before if rest[1] else after)
                    what = f"%{value} {kind}"
                    checks.append((what, entry["dtype"], after, arg, not rest[1], 0.0))
            args.append(arg)
        launch = self.device.launcher(module, kernel, args)
        launch()
        self.device.synchronize()
        line = self.line(block, plan, call, kernel["name"], kernel["template"])
        self.check(line, checks, kernel["limit"])
        self.count_bits(line, checks, call["emulated"].get(kernel["name"], {}))
        if timing:
            line["cold_us"] = self.device.cold_us(launch)
            line["moved_bytes"] = kernel["moved_bytes"]
        self.emit(line)

    def count_bits(self, line, checks, emulated):
        """Elements that differ from those of the same kernel under emulation, in any bit."""
        line["compared"] = line["differ"] = 0
        for what, dtype, _, array, *_ in checks:
            if what not in emulated:
                continue
            expected = self.buffer(emulated[what])
            words = {"f32": np.uint32, "i32": np.uint32}.get(dtype, np.uint16)
            e = np.frombuffer(expected, words)
            f = np.frombuffer(self.device.read(array)[: len(expected)], words)
            with np.errstate(all="ignore"):
                nan = np.isnan(decode(dtype, e.tobytes())) & np.isnan(decode(dtype, f.tobytes()))
            line["compared"] += len(e)
            line["differ"] += int(((e != f) & ~nan).sum())

    def chain(self, block, module, plan, call):
        """All kernels on each other's results."""
        device, values = self.device, call["values"]
        # NaN, where nothing has been written yet.
        scratch = device.upload(b"\xff" * plan["scratch_bytes"])
        outputs, caches, checks = {}, {}, []
        for n, value in enumerate(call["outputs"]):
            place = plan["places"].get(str(value))
            if place and place[0] == "output" and place[1] not in outputs:
                entry = values[str(value)]
                expected = self.buffer(entry["buffer"])
                outputs[place[1]] = device.upload(b"\xff" * len(expected))
                found = outputs[place[1]]
                check = (f"result {n}", entry["dtype"], expected, found, False, entry["scale"])
                checks.append(check)
        launches = []
        for kernel in plan["kernels"]:
            args = []
            for kind, *rest in kernel["params"]:
                value = rest[0] if rest else None
                arg = self.plain(call, kind, value)
                if arg is None and kind in ("elements", "result"):
                    place = plan["places"].get(str(value))
                    if place is None:
                        arg = self.constant(values[str(value)]["buffer"])
                    else:
                        arg = scratch[place[1] :] if place[0] == "scratch" else outputs[place[1]]
                elif arg is None:
                    if (value, kind) not in caches:
                        entry = values[str(value)]
                        before, after = (self.buffer(index) for index in entry[kind])
                        caches[value, kind] = device.upload(before)
                        what, found = f"%{value} {kind}", caches[value, kind]
                        checks.append((what, entry["dtype"], after, found, False, 0.0))
                    arg = caches[value, kind]
                args.append(arg)
            launches.append(device.launcher(module, kernel, args))
        for launch in launches:
            launch()
        device.synchronize()
        line = self.line(block, plan, call, f"{len(launches)} kernels", "chain")
        self.check(line, checks, plan["chain_limit"])
        end = device.read(scratch[plan["scratch_bytes"] :]) if plan["scratch_bytes"] else b""
        if end.strip(b"\xff"):
            line["faults"].append({"what": "scratch", "fault": "guard overwritten"})
        self.emit(line)

    def line(self, block, plan, call, kernel, template):
        return {
            "block": block["name"], "kernel": kernel, "template": template,
            "bucket": plan["bucket"], "rows": call["rows"], "errors": {}, "faults": [],
        }

    def check(self, line, checks, kernel_limit):
        for what, dtype, expected, array, exact, scale in checks:
            data = self.device.read(array)
            found, guard = data[: len(expected)], data[len(expected) :]
            limit = 0.0 if exact else limit_of(dtype, kernel_limit)
            worst, bad = compare(dtype, limit, scale, expected, found)
            line["errors"][what] = {"dtype": dtype, "error": worst, "limit": limit}
            if bad:
                line["faults"].append({"what": what, **bad})
            if len(expected) and guard.strip(b"\xff"):
                line["faults"].append({"what": what, "fault": "guard overwritten"})


def load(folder):
    with open(f"{folder}/manifest.json") as file:
        manifest = json.load(file)
    with open(f"{folder}/data.bin", "rb") as file:
        data = memoryview(zlib.decompress(file.read()))
    buffers = [data[start : start + size] for start, size in manifest["buffers"]]
    return manifest["blocks"], buffers


def chosen(blocks, options):
    return [b for b in blocks if b["name"].startswith(tuple(options.only.split(",")))]


def child(options):
    """Runs blocks from `--first` on; after an error of the device, nothing more can run."""
    device = Cuda(options.exact)
    blocks, buffers = load(options.folder)
    blocks = chosen(blocks, options)
    with open(options.lines, "a", buffering=1) as file:
        def emit(line):
            file.write(json.dumps(line) + "\n")

        run = Run(device, options.folder, buffers, emit)
        for index in range(options.first, len(blocks), options.step):
            block = blocks[index]
            emit({"block": block["name"], "begun": index})
            path = f"{options.built}/{block['source']}.cubin"
            if not os.path.exists(path):
                continue
            try:
                run.block(block, device.load(path), options.timing)
            except Exception as error:
                emit({"block": block["name"], "kernel": "", "template": "error", "bucket": 0,
                      "rows": 0, "errors": {}, "faults": [{"what": "the device", "fault": repr(error)}]})
                sys.exit(3)
        emit({"device": device.describe()})


def run_limited(command, timeout_s):
    """The exit status (124 if it took too long) and the end of the output."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_s
        )
    except subprocess.TimeoutExpired:
        return 124, f"no end after {timeout_s} s"
    return done.returncode, done.stdout[-6000:] + done.stderr[-3000:]


def run_children(options, built, lines_path, extra, prefix=()):
    """Runs child processes until every block was tried; gives lines and the exit statuses."""
    open(lines_path, "w").close()
    first, statuses = options.first, []
    while len(statuses) < 30:
        command = [*prefix, sys.executable, os.path.abspath(__file__), options.folder, "--child"]
        command += ["--built", built, "--lines", lines_path, "--first", str(first)]
        command += ["--only", options.only, *extra]
        status, text = run_limited(command, options.timeout)
        statuses.append((status, text))
        with open(lines_path) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        begun = [line["begun"] for line in lines if "begun" in line]
        if any("device" in line for line in lines) or not begun or begun[-1] < first:
            break
        # The block that failed is not tried again.
        if status != 3:
            at = {"block": lines[-1]["block"], "kernel": "", "template": "error", "bucket": 0,
                  "rows": 0, "errors": {}}
            fault = f"exit status {status}: {text[-600:]}"
            with open(lines_path, "a") as file:
                file.write(json.dumps({**at, "faults": [{"what": "the process", "fault": fault}]}) + "\n")
        first = begun[-1] + int(extra[extra.index("--step") + 1] if "--step" in extra else 1)
    with open(lines_path) as file:
        lines = [json.loads(line) for line in file if line.endswith("\n")]
    return lines, statuses


def report(lines):
    """Prints every failure and a table by template; gives the number of failures."""
    n_failures, table = 0, {}
    for line in lines:
        if "kernel" not in line:
            continue
        row = table.setdefault(
            line["template"], {"runs": 0, "failures": 0, "compared": 0, "differ": 0, "worst": {}}
        )
        row["runs"] += 1
        row["compared"] += line.get("compared", 0)
        row["differ"] += line.get("differ", 0)
        for error in line["errors"].values():
            worst = row["worst"].setdefault(error["dtype"], [0.0, 0.0])
            # Errors are listed apart where an operand was rounded to a narrower type on the way.
            slot = 0 if error["limit"] <= 2e-5 else 1
            worst[slot] = max(worst[slot], error["error"])
        if line["faults"]:
            row["failures"] += 1
            n_failures += 1
        for fault in line["faults"]:
            if n_failures > 60:
                break
            place = f"{line['block']} {line['kernel']} ({line['template']}) bucket {line['bucket']} rows {line['rows']}"
            if "fault" in fault:
                print(f"FAIL {place}: {fault['what']}: {fault['fault']}")
            else:
                print(
                    f"FAIL {place}: {fault['what']}: {fault['bad']} of {fault['of']} bad, first at "
                    f"{fault['element']}: expected {fault['expected']!r}, found {fault['found']!r}, "
                    f"error {fault['error']:.3g}, limit {fault['limit']:.3g}"
                )
    print(f"{'template':<10} {'runs':>6} {'failed':>6} {'elements':>10} {'differ':>7}  worst error by stored type (narrowed on the way)")
    for template, row in sorted(table.items()):
        worst = "  ".join(f"{d} {a:.2e} ({b:.2e})" for d, (a, b) in sorted(row["worst"].items()))
        print(
            f"{template:<10} {row['runs']:>6} {row['failures']:>6} {row['compared']:>10} "
            f"{row['differ']:>7}  {worst}"
        )
    return n_failures, table


def sanitize(options, built, blocks, out):
    """A spread of blocks under compute-sanitizer; gives tool, status and the end of the output."""
    step = max(1, len(blocks) // options.sanitize)
    results = []
    for tool in options.tools.split(","):
        start = time.monotonic()
        prefix = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", "--print-limit", "20"]
        extra = ["--exact", "--no-timing", "--step", str(step)]
        try:
            lines, statuses = run_children(options, built, f"{out}/{tool}.jsonl", extra, prefix)
        except OSError as error:
            results.append({"tool": tool, "ran": False, "output": str(error)})
            continue
        n_runs = sum("kernel" in line for line in lines)
        n_faults = sum(bool(line.get("faults")) for line in lines)
        clean = n_faults == 0 and all(status == 0 for status, _ in statuses)
        results.append({
            # Some machines refuse the tool: nothing was run then, and nothing is known.
            "tool": tool, "ran": n_runs > 0, "runs": n_runs, "clean": clean,
            "seconds": time.monotonic() - start, "output": statuses[-1][1],
        })
        state = ("clean" if clean else "NOT CLEAN") if n_runs else "DID NOT RUN"
        print(f"compute-sanitizer {tool}: {n_runs} runs, {state}, {time.monotonic() - start:.0f} s")
        print(statuses[-1][1][-2500 if not clean else -200 :])
    return results


def record(results, sanitized):
    """What is kept of the results under benches/results: of the model every kernel, of the other
    blocks how near to its limit the worst error is."""
    runs, blocks = results["runs"], {}
    for line in runs:
        block = blocks.setdefault(line["block"], {"runs": 0, "worst_of_limit": 0.0})
        block["runs"] += 1
        for error in line["errors"].values():
            if error["limit"]:
                share = round(error["error"] / error["limit"], 4)
                block["worst_of_limit"] = max(block["worst_of_limit"], share)
    kept = {key: value for key, value in results.items() if key not in ("runs", "sanitizer")}
    return {
        "what": "every generated kernel run alone on the exact reference's operands, and every "
        "plan as a chain, against the exact reference; and the bits of each kernel against those "
        "of the same kernel under emulation: `compared` elements, of which `differ` do not agree",
        "how": f"backend-cuda/examples/vectors, benches/gpu/check.py --sanitize {sanitized}",
        **kept,
        "sanitizer": [{k: v for k, v in c.items() if k != "output"} for c in results["sanitizer"]],
        "model": [line for line in runs if line["block"].startswith("model_")],
        "blocks": blocks,
    }


def lines_of(content):
    """JSON with a line for each key, and for each item below it."""
    parts = []
    for key, value in content.items():
        items = [json.dumps(item) for item in value] if isinstance(value, list) else []
        if isinstance(value, dict):
            items = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in value.items()]
        if len(items) > 4:
            ends = "[]" if isinstance(value, list) else "{}"
            joined = ",\n    ".join(items)
            text = f"{ends[0]}\n    {joined}\n  {ends[1]}"
        else:
            text = json.dumps(value)
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--only", default="", help="blocks whose names begin so, by commas")
    parser.add_argument("--no-timing", dest="timing", action="store_false")
    parser.add_argument("--sanitize", type=int, default=0, metavar="N", help="N blocks, afterwards")
    parser.add_argument("--tools", default="memcheck,racecheck")
    parser.add_argument("--timeout", type=int, default=240, help="seconds of one process")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    for flag in ["--child", "--exact"]:
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    for name, default in [("--built", ""), ("--lines", "")]:
        parser.add_argument(name, default=default, help=argparse.SUPPRESS)
    for name, default in [("--first", 0), ("--step", 1)]:
        parser.add_argument(name, type=int, default=default, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return 0

    out = os.environ.get("OUT") or tempfile.mkdtemp()
    built = tempfile.mkdtemp()
    with open(f"{options.folder}/manifest.json") as file:
        blocks = chosen(json.load(file)["blocks"], options)
    jobs = [(f"{options.folder}/{b['source']}", f"{built}/{b['source']}.cubin", options.arch)
            for b in blocks]
    # Long ones first, so that none is left alone at the end.
    jobs.sort(key=lambda job: -os.path.getsize(job[0]))
    start = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        compiled = list(pool.map(compile_nvrtc, jobs))
    compile_s = time.monotonic() - start
    slowest = max(compiled, key=lambda entry: entry[2], default=("", None, 0.0))
    print(f"compiled {len(jobs)} sources in {compile_s:.1f} s, the slowest in {slowest[2]:.1f} s")
    compile_failures = [(os.path.basename(path), log) for path, log, _ in compiled if log]
    for path, log in compile_failures[:20]:
        print(f"FAIL {path} does not compile:\n{log[:1500]}")

    start = time.monotonic()
    extra = [] if options.timing else ["--no-timing"]
    lines, statuses = run_children(options, built, f"{out}/lines.jsonl", extra)
    run_s = time.monotonic() - start
    device = next((line["device"] for line in lines if "device" in line), None)
    if device is None:
        print(f"FAIL the last process ended early: {statuses[-1]}")
    n_failures, table = report(lines)
    timed = [line for line in lines if "cold_us" in line and line["rows"] == line["bucket"]]
    for line in timed:
        rate = line["moved_bytes"] / line["cold_us"] / 1000
        print(f"cold {line['kernel']:<24} {line['template']:<10} {line['cold_us']:8.1f} us  {rate:7.1f} GB/s")
    print(f"ran in {run_s:.1f} s on {device}; {n_failures} failures, {len(compile_failures)} do not compile")
    failed = n_failures + len(compile_failures) + (device is None)
    checks = sanitize(options, built, blocks, out) if options.sanitize else []
    failed += sum(check["ran"] and not check["clean"] for check in checks)
    results = {
        "device": device, "python": platform.python_version(), "numpy": np.__version__,
        "arch": options.arch, "options": OPTIONS, "compile_s": compile_s, "run_s": run_s,
        "failures": n_failures, "compile_failures": compile_failures, "by_template": table,
        "sanitizer": checks, "note": "cold_us is one launch after the L2 cache was overwritten, "
        "timed with events: informative, it contains the launch",
        "runs": [line for line in lines if "kernel" in line],
    }
    with open(f"{out}/results.json", "w") as file:
        json.dump(results, file)
    with open(f"{out}/record.json", "w") as file:
        file.write(lines_of(record(results, options.sanitize)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

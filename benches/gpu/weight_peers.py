"""Peers of a product of few rows with int4 or bf16 weights, on the same random weights.

Building a peer, and asking what it supports, raises what keeps it from running here.
"""

import concurrent.futures
import functools
import glob
import json
import math
import os
import sys
import tempfile
import zipfile

import torch
import torch.nn.functional as F

GROUP = 128
BF16 = torch.bfloat16
COMPILE_SECONDS = 30


def clones(tensors, count):
    """`count` copies of a tuple of tensors, each in memory of its own."""
    return [tensors] + [tuple(tensor.clone() for tensor in tensors) for _ in range(count - 1)]


class Case:
    """Random weights of one shape; x and the exact products for each M."""

    def __init__(self, n, k, rows, device):
        self.n, self.k, self.device = n, k, device
        self.codes = torch.randint(0, 16, (n, k), dtype=torch.uint8, device=device)
        self.scales = ((torch.rand(n, k // GROUP, device=device) + 0.5) * 0.01).to(BF16)
        grouped = self.codes.view(n, k // GROUP, GROUP).float() - 8
        decoded = (grouped * self.scales.float().unsqueeze(2)).view(n, k)
        self.dense = decoded.to(BF16)
        self.x = {m: torch.randn(m, k, device=device).to(BF16) for m in rows}
        self.exact = {("int4", m): x.float() @ decoded.t() for m, x in self.x.items()}
        decoded.copy_(self.dense)
        self.exact |= {("bf16", m): x.float() @ decoded.t() for m, x in self.x.items()}

    def weight_bytes(self, kind):
        elements = self.n * self.k
        return elements * 2 if kind == "bf16" else elements // 2 + elements // GROUP * 2

    def packed(self):
        """Bytes [N, K/2] of two codes, the lower of the two in the low nibble."""
        return self.codes[:, ::2] | self.codes[:, 1::2] << 4


class Peer:
    """One way to compute y = x w^T."""

    name = kind = None  # kind: of the weights, int4 or bf16
    largest_m = math.inf

    def supports(self, n, k, m):
        """True, or raises the reason."""
        return True

    def prepare(self, case, count):
        """Functions from x[M, K] to y[M, N] in bf16, one for each of `count` copies of w."""
        raise NotImplementedError


class CublasBf16(Peer):
    name, kind = "cublas bf16", "bf16"

    def prepare(self, case, count):
        return [functools.partial(F.linear, weight=w) for (w,) in clones((case.dense,), count)]


class Tinygemm(Peer):
    name, kind = "tinygemm int4", "int4"

    def prepare(self, case, count):
        scales = case.scales.t()
        scales = torch.stack([scales, torch.zeros_like(scales)], dim=2).contiguous()
        if case.device == "cpu":
            weight = torch._convert_weight_to_int4pack_for_cpu(case.codes.int(), 8)
            product = torch.ops.aten._weight_int4pack_mm_for_cpu
        else:
            high_first = case.codes[:, ::2] << 4 | case.codes[:, 1::2]
            weight = torch._convert_weight_to_int4pack(high_first.contiguous(), 8)
            product = torch.ops.aten._weight_int4pack_mm
        return [
            lambda x, w=w, s=s: product(x, w, GROUP, s) for w, s in clones((weight, scales), count)
        ]


class Humming(Peer):
    """humming-kernels with the tiles and the launch that it chooses."""

    name, kind, options = "humming int4", "int4", {}

    def __init__(self, shapes, rows):
        import humming.layer
        import humming.ops

        self.layer, self.ops = humming.layer.HummingLayer, humming.ops
        # All kernels compile at once, beside the measuring of the ceiling.
        pool = concurrent.futures.ThreadPoolExecutor(8)
        self.compiling = [
            pool.submit(self.compile, n, k, m)
            for n, k in shapes
            for m in rows
            if m <= self.largest_m
        ]

    def tuning(self, config, m):
        from humming.tune import get_heuristics_config

        choice = get_heuristics_config(config, shape_m=m) | self.options
        return json.dumps({key: getattr(value, "value", value) for key, value in choice.items()})

    @staticmethod
    def weights():
        return {
            "quant_method": "humming",
            "dtype": "int4",
            "group_size": GROUP,
            "scale_dtype": "bfloat16",
        }

    def compile(self, n, k, m):
        from humming.kernel.humming import HummingKernel
        from humming.schema import BaseInputSchema, BaseWeightSchema
        from humming.transform import prepare_layer_config

        config = prepare_layer_config(
            shape_n=n,
            shape_k=k,
            weight_schema=BaseWeightSchema.from_config(self.weights()),
            input_schema=BaseInputSchema.from_config(
                {"quant_method": "humming", "dtype": "bfloat16"}
            ),
            num_experts=0,
            torch_dtype=BF16,
            device=0,
        )
        HummingKernel.prepare_kernels(config.to_str(), None, self.tuning(config, m), 0)

    def prepare(self, case, count):
        # A kernel that is not compiled by then compiles at its first call, or says there why not.
        concurrent.futures.wait(self.compiling, timeout=COMPILE_SECONDS)
        layer = self.layer(
            shape_n=case.n, shape_k=case.k, weight_config=self.weights(), torch_dtype=BF16
        ).to(case.device)
        words = case.packed().contiguous().view(torch.int32)
        layer.load_from_tensors({"weight": words, "weight_scale": case.scales})
        layer.transform()
        config = layer.humming_config
        tunings = {m: self.tuning(config, m) for m in case.x}

        def product(x, weight, scales):
            y = torch.empty(x.shape[0], case.n, dtype=BF16, device=x.device)
            self.ops.humming_gemm(
                layer_config=config.to_str(),
                tuning_config=tunings[x.shape[0]],
                inputs=x,
                weight=weight,
                weight_scale=scales,
                outputs=y,
                locks=layer.locks,
            )
            return y

        stored = clones((layer.weight.data, layer.weight_scale.data), count)
        return [functools.partial(product, weight=w, scales=s) for w, s in stored]


class HummingProgrammatic(Humming):
    """The same with programmatic launch, from which one row gains, if any."""

    name, options, largest_m = "humming int4, programmatic", {"use_pdl": True}, 1


class Gemlite(Peer):
    """gemlite with the tuning it ships for the H100; other shapes only where tuning is allowed."""

    name, kind = "gemlite int4", "int4"

    def __init__(self, autotune):
        import gemlite.core as core

        self.core, self.autotune = core, autotune
        folder = os.path.dirname(core.__file__)
        if not core.GemLiteLinear.load_config(f"{folder}/configs/h100.json"):
            raise RuntimeError("its tuning for the H100 does not load")

    def supports(self, n, k, m):
        tuned = self.core.GEMLITE_TRITON_CONFIG_CACHE.get(self.core.get_matmul_type(m, 4), {})
        shape = f"({m}, {n}, {k}, {GROUP}, "
        if not self.autotune and not any(key.startswith(shape) for key in tuned):
            raise LookupError("ships no tuning for this shape (--autotune tunes it, for long)")
        return True

    def prepare(self, case, count):
        bf16 = self.core.DType.BF16
        layer = self.core.GemLiteLinear(
            W_nbits=4,
            group_size=GROUP,
            in_features=case.k,
            out_features=case.n,
            input_dtype=bf16,
            output_dtype=bf16,
        )
        layer.pack(case.codes, case.scales.reshape(-1, 1), 8, None)
        weight, scales, *rest = [
            tensor.detach() if isinstance(tensor, torch.Tensor) else tensor
            for tensor in layer.get_tensor_args()
        ]
        meta = layer.get_meta_args()
        return [
            lambda x, w=w, s=s: self.core.forward_functional(x, None, [w, s, *rest], meta, -1)
            for w, s in clones((weight, scales), count)
        ]


def unpack_wheels(folder):
    """Puts the wheels of a folder on Python's path, unpacked: some hold programs."""
    place = tempfile.TemporaryDirectory(prefix="matvec-peers-")
    wheels = sorted(glob.glob(f"{folder}/*.whl"))
    if not wheels:
        raise SystemExit(f"expected wheels in {folder}, found none")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place.name)
            for entry in archive.infolist():
                if entry.external_attr >> 16 & 0o100:
                    os.chmod(f"{place.name}/{entry.filename}", 0o755)
    sys.path.insert(0, place.name)
    for variable in ("HUMMING_CACHE_DIR", "HUMMING_TMP_DIR"):
        os.environ.setdefault(variable, f"{place.name}/{variable.lower()}")
        os.makedirs(os.environ[variable], exist_ok=True)
    return place

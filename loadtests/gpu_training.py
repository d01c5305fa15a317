"""The checks and times of training on a GPU; each method of `Training` is one line of the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from generated import generate
from gpu_work import COLUMNS, HIDDEN, Work, bandwidth, made, trained
from torch.nn.functional import binary_cross_entropy_with_logits

from training.encoding import MappedRows
from training.model import WideDeep
from training.shuffle import Shuffle

ROOT = Path(__file__).resolve().parent.parent
TF32 = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
FORMS = {"float32": "off", "tf32": "off", "bf16": "bf16", "fp16": "fp16"}  # the device's, with what --amp they take
CLAIMS = {"one GPU / CPU": "8", "one GPU with AMP / CPU": "15", "AMP / step": "1.8-2.5", "memory saved by AMP": "0.4"}
Json = dict[str, Any]


class Training:
    """The same config on the CPU and in every precision of the device."""

    def __init__(self, folder: Path, device: str, rows: int, *, timed: bool) -> None:
        self.folder, self.device, self.rows, self.timed = folder, device, rows, timed
        self.data = folder / "data"

    def checks(self) -> list[Callable[[], Any]]:
        return [self.parity, self.gradients, self.ahead, self.resumed, self.full]

    def parity(self) -> Json:
        """AUC on the test part: within .001 of the CPU's in every precision, without dropout's chance."""
        self.data.mkdir()
        generate(self.data, self.rows)
        config = (self.data / "b.toml").read_text().replace("[train]", "dropout = 0.0\n[train]")
        (self.data / "c.toml").write_text(config)
        found = {"cpu": self._fit("cpu", "cpu", "off")}
        for form, amp in FORMS.items():
            if not (self.device == "cpu" and form in ("float32", "tf32")):
                found[form] = self._fit(form, self.device, amp)
        wanted = found["cpu"]["auc"]
        for one in found.values():
            one["auc difference"] = round(one["auc"] - wanted, 6)
        bound = 0.001 if self.rows >= 100_000 else 0.01  # a thousand rows to judge by cannot tell less apart
        assert all(abs(one["auc difference"]) <= bound for one in found.values()), found
        return found

    def gradients(self) -> Json:
        """Loss and first gradients of one batch in float32, on the device and on the CPU."""
        work = made(min(self.rows, 20_000), 50_000)
        torch.manual_seed(1)
        model = WideDeep(work.layout, HIDDEN, 0.0)
        sides = []
        for device in ("cpu", self.device):
            model.to(device).zero_grad()
            batch = next(iter(MappedRows(work.train, work.labels, device).slices(4096)))
            loss = binary_cross_entropy_with_logits(model.logits(*batch.inputs), batch.labels)
            loss.backward()  # type: ignore[no-untyped-call]  # untyped in torch
            grads = {name: one.grad.to_dense().cpu() for name, one in model.named_parameters() if one.grad is not None}
            sides.append((loss.item(), grads))
        (loss_a, a), (loss_b, b) = sides
        worst = max(float((a[name] - b[name]).abs().max()) for name in a)
        assert abs(loss_a - loss_b) <= 1e-6, (loss_a, loss_b)
        assert worst <= 1e-5, worst
        return {"loss": abs(loss_a - loss_b), "gradients": worst}

    def ahead(self) -> Json:
        """Buffers made on the side stream hold, batch for batch, what the CPU makes."""
        work, shares = made(self.rows, 50_000), ([0.01] * COLUMNS, [])
        pair = []
        for device, beside in (("cpu", False), (self.device, True)):
            rows = MappedRows(work.train, work.labels, device)
            pair.append(Shuffle(rows, 256, shares, 1, rows.bytes // 8, 256, ahead=beside))
        batches = 0
        for one, other in zip(*(shuffle.epoch() for shuffle in pair), strict=True):
            assert all(torch.equal(x, y.cpu()) for x, y in zip(one.tensors, other.tensors, strict=True)), batches
            batches += 1
        return {"batches": batches}

    def resumed(self) -> Json:
        """A fit in float16 that is terminated leaves a checkpoint within 10 s, and --resume goes on to its end."""
        words = [*self._words("gone", self.device, "fp16", epochs=50), "--checkpoint-minutes", "0.003"]
        process = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        checkpoints = self.folder / "gone" / ".checkpoints" / "v"
        until = time.monotonic() + 100
        while time.monotonic() < until and process.poll() is None and not list(checkpoints.glob("*.pt")):
            time.sleep(0.05)
        asked = time.monotonic()
        process.terminate()
        _, said = process.communicate(timeout=60)
        assert process.returncode == 143, (process.returncode, said[-800:])
        seconds = time.monotonic() - asked
        assert seconds <= 10, seconds
        subprocess.run([*words, "--resume"], cwd=ROOT, check=True, capture_output=True, timeout=200)
        manifest = json.loads((self.folder / "gone" / "v" / "manifest.json").read_text())
        return {"seconds to end": round(seconds, 2), "auc": manifest["metrics"]["test"]["auc"]}

    def full(self) -> str:
        """A full GPU is exit code 1, with the table and the batch size in one line."""
        if self.device != "cuda":
            return "not run: no GPU"
        words = [*self._words("full", self.device, "off"), "--gpu-memory-fraction", "0.00002"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        last = done.stderr.strip().splitlines()[-1]
        assert done.returncode == 1, done.stderr[-800:]
        assert "batch_size 4096" in last, last
        assert "the largest table is" in last, last
        return last

    def times(self) -> Json:
        """Rows a second, ms a step, peak memory and seconds to one AUC; the floor is that of memory's bandwidth."""
        rows, ids, sizes = (
            (2_000_000, 1_000_000, (4096, 65_536)) if self.device == "cuda" else (40_000, 50_000, (4096,))
        )
        work = made(rows, ids)
        speed = {device: bandwidth(device) for device in {"cpu", self.device}}
        report: Json = {"bandwidth GB/s": {name: round(one / 1e9, 1) for name, one in speed.items()}}
        for size in sizes:
            found = {"cpu": self._timed(work, "cpu", "off", size)}
            for form, amp in FORMS.items():
                if self.device == "cuda" or amp != "off":
                    torch.backends.cuda.matmul.allow_tf32 = form == "tf32"
                    found[form] = self._timed(work, self.device, amp, size)
            torch.backends.cuda.matmul.allow_tf32 = False
            target = max(found["cpu"]["auc"]) - 0.002
            for form, one in found.items():
                floor = speed["cpu" if form == "cpu" else self.device] / work.floor_bytes
                one["share of the floor"] = round(one["rows/s"] / floor, 4)
                reached = (s for auc, s in zip(one["auc"], one["seconds"], strict=True) if auc >= target)
                one["seconds to target"] = next(reached, None)
            report[f"batch {size}"] = {"target auc": round(target, 5), **found, "beside claims": self._claims(found)}
        return report

    def _timed(self, work: Work, device: str, amp: str, size: int) -> Json:
        # Two passes on the CPU: enough for a rate without the first one and for the target.
        return trained(work, self.folder / "timed", device, amp, size, 2 if device == "cpu" else 4)

    def _claims(self, found: Json) -> Json:
        if "float32" not in found:
            return {}
        rate = {form: one["rows/s"] for form, one in found.items()}
        amp = max(rate["bf16"], rate["fp16"])
        peak = {form: one["peak MiB"] for form, one in found.items() if form != "cpu"}
        measured = {
            "one GPU / CPU": rate["float32"] / rate["cpu"],
            "one GPU with AMP / CPU": amp / rate["cpu"],
            "AMP / step": amp / rate["float32"],
            "memory saved by AMP": 1 - min(peak["bf16"], peak["fp16"]) / peak["float32"],
        }
        return {name: {"claimed": CLAIMS[name], "measured": round(value, 2)} for name, value in measured.items()}

    def _words(self, name: str, device: str, amp: str, epochs: int = 2) -> list[str]:
        where = ["--data", str(self.data), "--artifacts", str(self.folder / name), "--version", "v"]
        cache = ["--cache", str(self.folder / "cache"), "--epochs", str(epochs)]
        config = ["--config", str(self.data / "c.toml"), "--device", device, "--amp", amp]
        return [sys.executable, "-m", "training", "fit", *config, *where, *cache]

    def _fit(self, form: str, device: str, amp: str) -> Json:
        environment = {**os.environ, TF32: "1" if form == "tf32" else "0"}
        started = time.perf_counter()
        words = self._words(form, device, amp)
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{form}: {done.stderr[-1500:]}"
        manifest = json.loads((self.folder / form / "v" / "manifest.json").read_text())
        rates = [epoch["rows_per_second"] for epoch in manifest["epochs"]]
        found = {"auc": manifest["metrics"]["test"]["auc"], "rows/s": rates[-1]}
        return found | {"seconds in all": round(time.perf_counter() - started, 1)}

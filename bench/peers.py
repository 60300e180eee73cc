#!/usr/bin/env python3
"""Leeway beside its peers on the same machine in the same run, alternating: LiteRT's WebGPU accelerator (ML Drift) and XNNPACK.

    peers.py --leeway BINARY MODEL.tflite... [--devices webgpu,opencl] [--peers gpu,cpu] [--rounds 3] [--runs 200] [--threads 2]
             [--precision f32,f16] [--json OUT]

Each measurement is a process of its own; a round takes each of them once, so that a noisy minute hits all alike. The table has
the median over the rounds of each process's median, in ms, for one inference with all outputs read back, and the ratios.
Needs ai-edge-litert 2.3.0 and numpy for the peers; without them their columns stay empty.
"""
import argparse, json, os, statistics, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))


def run_json(command, timeout):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"failed": "timeout"}
    text = done.stdout.strip()
    try:
        return json.loads(text if text.startswith("{") and "\n{" not in text else text.splitlines()[-1])
    except (ValueError, IndexError):
        return {"failed": (done.stderr or text)[-300:]}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("models", nargs="+")
    ap.add_argument("--leeway", required=True)
    ap.add_argument("--devices", default="webgpu")
    ap.add_argument("--precision", default="f32")
    ap.add_argument("--peers", default="gpu,cpu")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--runs", type=int, default=200)
    ap.add_argument("--seconds", type=float, default=10)
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--timeout", type=float, default=300)
    ap.add_argument("--json")
    a = ap.parse_args()
    columns = [("litert-" + p, None, None) for p in a.peers.split(",") if p]
    columns += [("leeway %s %s" % (d, p), d, p) for d in a.devices.split(",") for p in a.precision.split(",")]
    everything = {}
    for model in a.models:
        name = os.path.basename(model)
        rows = {c[0]: [] for c in columns}
        for _ in range(a.rounds):
            for column, device, precision in columns:
                if device is None:
                    command = [sys.executable, os.path.join(HERE, "litert_bench.py"), model, "--child", column.split("-")[1],
                               "--runs", str(a.runs), "--threads", str(a.threads)]
                else:
                    command = [a.leeway, "bench", model, "--json", "--device", device, "--precision", precision,
                               "--runs", str(a.runs), "--seconds", str(a.seconds)]
                rows[column].append(run_json(command, a.timeout))
        everything[name] = rows

        def median(column, key, scale=1.0):
            values = [r[key] * scale for r in rows[column] if isinstance(r.get(key), (int, float))]
            return statistics.median(values) if values else None
        print(name, flush=True)
        base = {c: median(c, "median_ms") for c, d, _ in columns if d is None}
        for column, device, _ in columns:
            run = median(column, "median_ms")
            if run is None:
                last = rows[column][-1]
                print("  %-28s failed: %s" % (column, last.get("failed") or last.get("error")), flush=True)
                continue
            load = median(column, "load_s", 1000) if device is None else median(column, "load_ms")
            line = "  %-28s %9.3f ms  load %7.0f ms  first %8.2f ms" % (column, run, load or 0, median(column, "first_ms") or 0)
            if device is not None:
                gpu = median(column, "gpu_ms")
                line += "  GPU %s ms, %d dispatches, %d nodes on the CPU" % (
                    "%.3f" % gpu if gpu else "-", rows[column][-1].get("dispatches", 0), rows[column][-1].get("nodes_on_cpu", -1))
                line += "".join("  %.2f x %s" % (base[c] / run, c) for c in base if base[c])
            print(line, flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(everything, f)


if __name__ == "__main__":
    main()

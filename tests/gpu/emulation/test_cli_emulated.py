#!/usr/bin/env python3
"""csdsim with an emulated GPU against csdsim with the CPU backend: eval by every method, and generate.

Usage: test_cli_emulated.py CSDSIM MODULE SOURCE_DIR
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CSDSIM, MODULE, SOURCE = Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
MODEL = SOURCE / "tests" / "data" / "golden" / "qwen2"


def run(work, backend, *arguments):
    """result.json of a run on a backend."""
    out = work / backend / arguments[0]
    command = [CSDSIM, *arguments, "--model", MODEL, "--backend", backend, "--attention", "host", "--out", out, "-q"]
    done = subprocess.run(command, env={**os.environ, "CSDSIM_CUDA_MODULE": str(MODULE)}, text=True, capture_output=True)
    assert done.returncode == 0, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads((out / "result.json").read_text())


def near(a, b, bound):
    return abs(a - b) <= bound * max(abs(a), abs(b))


def main():
    tokens = json.loads((MODEL / "golden.json").read_text())["tokens"]
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "text").write_text(" ".join(map(str, tokens[:108])))
        evaluate = ["eval", "--tokens", work / "text", "--ratio", "1/4", "--prefill", "48", "--decode", "6",
                    "--no-recall"]
        # In bf16 the eviction of a few tokens turns with the rounding: two methods suffice.
        for backend, bound, methods in (("cuda", 0.01, []), ("cuda-bf16", 0.05, ["--method", "dense,sparf"])):
            cpu = run(work, "cpu", *evaluate, *methods)["rows"]
            rows = run(work, backend, *evaluate, *methods)["rows"]
            assert len(rows) == len(cpu) >= (2 if methods else 13), rows
            for found, expected in zip(rows, cpu):
                what = f"{backend}, {expected['method']}: {found}\nexpected {expected}"
                assert found["method"] == expected["method"] and found["setting"] == expected["setting"], what
                assert found["tokens_scored"] == expected["tokens_scored"] == 10, what
                # Weights and activations are rounded on a GPU: a near tie may turn, which few tokens feel.
                turned = 1 if expected["method"] == "dense" else 5
                assert near(found["perplexity"], expected["perplexity"], turned * bound), what
                for figure in ("alpha_mean", "mass_mean"):
                    assert near(found[figure], expected[figure], bound), what
                # InfiniGen and chunk bounds read what the numbers ask for; all others a number that the budget says.
                exact = expected["method"] not in ("infinigen", "leoam")
                for figure in ("kept_mean", "traffic_mean"):
                    assert near(found[figure], expected[figure], 1e-9 if exact else 2 * bound), what

        (work / "prompt").write_text(" ".join(map(str, tokens[:24])))
        for method in ("dense", "sparf"):
            generate = ["generate", "--tokens", work / "prompt", "--method", method, "--max-new-tokens", "4"]
            cpu, gpu = (run(work, backend, *generate)["tokens"] for backend in ("cpu", "cuda"))
            assert len(gpu) == 4 and gpu[0] == cpu[0], (method, cpu, gpu)
    print("passed")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Greedy tokens of tests/data/golden/llama3's weights under many forms of rotary positions in config.json.

Usage: rotary_golden.py     needs torch and transformers; writes tests/data/golden/rotary.json
"""
import json
import pathlib
import shutil
import tempfile

import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests/data/golden/llama3"
STEPS = 8
SHORT, LONG = 40, 300

LLAMA31 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=256)
LLAMA32 = {**LLAMA31, "factor": 32.0}
YARN = dict(rope_type="yarn", factor=4.0)
OLD_YARN = dict(type="yarn", factor=4.0, original_max_position_embeddings=256)

# Name, keys of config.json beside the shape, and the length of the prompt. The names say whose form it is.
CASES = [
    ("Llama 1: nothing", {}, SHORT),
    ("Llama 2: null scaling", dict(rope_theta=10000.0, rope_scaling=None), SHORT),
    ("Llama 3: theta at the top", dict(rope_theta=500000.0, rope_scaling=None), SHORT),
    ("Llama 3.1 (transformers 4)", dict(rope_theta=500000.0, rope_scaling=dict(LLAMA31, rope_type="llama3")), LONG),
    ("Llama 3.1 (transformers 5)", dict(rope_parameters=dict(LLAMA31, rope_type="llama3", rope_theta=500000.0)), LONG),
    ("Llama 3.2: factor 32", dict(rope_theta=500000.0, rope_scaling=dict(LLAMA32, rope_type="llama3")), LONG),
    ("llama3, theta inside rope_scaling", dict(rope_scaling=dict(LLAMA31, rope_type="llama3", rope_theta=500000.0)), SHORT),
    ("llama3, theta beside rope_parameters", dict(rope_theta=500000.0, rope_parameters=dict(LLAMA31, rope_type="llama3")), SHORT),
    ("llama3 without original positions", dict(rope_theta=500000.0, rope_scaling=dict(
        rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)), SHORT),
    ("llama3, original positions at the top", dict(rope_theta=500000.0, original_max_position_embeddings=128,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)), SHORT),
    ("default, theta inside", dict(rope_parameters=dict(rope_type="default", rope_theta=1e6)), SHORT),
    ("parameters without a type", dict(rope_parameters=dict(rope_theta=1e6)), SHORT),
    ("empty scaling", dict(rope_theta=1e6, rope_scaling={}), SHORT),
    ("linear (transformers 4)", dict(rope_scaling=dict(type="linear", factor=2.5)), SHORT),
    ("linear (transformers 5)", dict(rope_parameters=dict(rope_type="linear", factor=2.5, rope_theta=5e4)), SHORT),
    ("linear beyond max_position_embeddings", dict(max_position_embeddings=256, rope_scaling=dict(type="linear", factor=2.0)), LONG),
    ("dynamic inside max_position_embeddings", dict(rope_scaling=dict(type="dynamic", factor=2.0)), LONG),
    ("dynamic beyond max_position_embeddings", dict(max_position_embeddings=256, rope_theta=500000.0, rope_scaling=dict(
        type="dynamic", factor=2.0)), LONG),
    ("dynamic (transformers 5), begins while tokens are generated", dict(max_position_embeddings=256, rope_parameters=dict(
        rope_type="dynamic", factor=4.0, rope_theta=1e4)), 253),
    ("llama3 where max_position_embeddings is that of the training", dict(max_position_embeddings=256, rope_theta=500000.0,
        rope_scaling=dict(LLAMA31, rope_type="llama3")), LONG),
    ("Qwen2.5: YaRN beyond max_position_embeddings", dict(max_position_embeddings=256, rope_theta=1e6, rope_scaling=OLD_YARN), LONG),
    ("YaRN without original positions", dict(max_position_embeddings=256, rope_theta=1e4, rope_scaling=YARN), LONG),
    ("YaRN, original positions at the top", dict(original_max_position_embeddings=128, rope_parameters=dict(YARN, rope_theta=1e4)), SHORT),
    ("YaRN, betas and scales null", dict(rope_scaling=dict(YARN, original_max_position_embeddings=256, beta_fast=None,
        beta_slow=None, mscale=None, mscale_all_dim=None, attention_factor=None)), SHORT),
    ("YaRN, betas and scales 0", dict(rope_scaling=dict(YARN, original_max_position_embeddings=256, beta_fast=0,
        beta_slow=0, mscale=0, mscale_all_dim=0)), SHORT),
    ("DeepSeek's YaRN", dict(rope_scaling=dict(OLD_YARN, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=0.5)), SHORT),
    ("YaRN, factor null", dict(rope_scaling=dict(YARN, factor=None, original_max_position_embeddings=256)), SHORT),
    ("Llama 3.1 with fewer positions than in its training", dict(max_position_embeddings=128, rope_theta=500000.0,
        rope_scaling=dict(LLAMA31, rope_type="llama3")), SHORT),
    ("YaRN with fewer positions than in its training", dict(max_position_embeddings=128, rope_theta=1e4, rope_scaling=OLD_YARN), SHORT),
    ("Vicuna 16k: linear, and max_sequence_length", dict(max_position_embeddings=256, max_sequence_length=1024,
        rope_scaling=dict(type="linear", factor=4.0)), LONG),
    ("SmolLM 2: keys that say that it is a Llama", dict(is_llama_config=True, rope_interleaved=False, rope_theta=1e5), SHORT),
    ("a window that is longer than the context", dict(sliding_window=64), SHORT),
    ("rope_scaling and rope_parameters, the same", dict(rope_scaling=dict(LLAMA31, rope_type="llama3", rope_theta=500000.0),
        rope_parameters=dict(LLAMA31, rope_type="llama3", rope_theta=500000.0)), SHORT),
    ("null beside rope_parameters", dict(rope_theta=None, rope_scaling=None, rope_parameters=dict(rope_type="default",
        rope_theta=500000.0)), SHORT),
    ("type and rope_type", dict(rope_theta=500000.0, rope_scaling=dict(LLAMA31, type="llama3", rope_type="llama3")), LONG),
    ("YaRN, attention_factor and no truncation", dict(rope_scaling=dict(OLD_YARN, attention_factor=1.25, truncate=False)), SHORT),
]


def main():
    torch.set_num_threads(1)
    shape = json.loads((MODEL / "config.json").read_text())
    del shape["rope_parameters"]
    cases = []
    for name, keys, length in CASES:
        prompt = [(i * 37) % 500 + 2 for i in range(length)]
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for file in MODEL.glob("model*"):
                shutil.copy(file, folder)
            (folder / "config.json").write_text(json.dumps({**shape, **keys}))
            model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
            ids = torch.tensor([prompt])
            with torch.no_grad():
                full = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=STEPS,
                                      eos_token_id=None, pad_token_id=0)[0, length:]
                top = model(torch.cat([ids[0], full])[None]).logits[0].topk(2).values
        margin = (top[:, 0] - top[:, 1])[length - 1:-1].min().item()
        print(f"{name}: {full.tolist()}, smallest margin {margin:.2e}")
        cases.append(dict(name=name, config=keys, prompt_tokens=length, tokens=full.tolist(), margin=float(f"{margin:.3g}")))
    document = dict(made_by=f"transformers {transformers.__version__}, torch {torch.__version__}", cases=cases)
    (ROOT / "tests/data/golden/rotary.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Small random checkpoints, tokenizers and the answers of Hugging Face transformers on them.

Usage: make_golden.py [NAME...]     needs torch and transformers; writes tests/data/golden/NAME/
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

import tokenizer_golden

ROOT = pathlib.Path(__file__).resolve().parents[2]
OUT = ROOT / "tests/data/golden"
PROMPT, STEPS = 24, 512
POSITIONS = [0, 1, 23, 63, 255, PROMPT + STEPS - 2]

SHAPE = dict(hidden_size=32, num_attention_heads=4, vocab_size=512, bos_token_id=1, eos_token_id=None, pad_token_id=None)
ROTARY = dict(SHAPE, head_dim=16, intermediate_size=64, max_position_embeddings=1024)


def llama():
    """Llama 2 with grouped queries: untied; config.json as it was published before transformers 5."""
    return transformers.LlamaConfig(**ROTARY, num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5,
                                    tie_word_embeddings=False), torch.float16


def llama3():
    """Llama 3: scaled rotary frequencies, all three bands of wavelengths; tied, sharded."""
    rope = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                original_max_position_embeddings=256)
    return transformers.LlamaConfig(**ROTARY, num_hidden_layers=3, num_key_value_heads=2, rms_norm_eps=1e-5,
                                    rope_parameters=rope, tie_word_embeddings=True), torch.bfloat16


def qwen2():
    """Qwen2: biases of Q, K and V, one KV head."""
    shape = dict(ROTARY, hidden_size=64)
    del shape["head_dim"]  # follows from the width
    return transformers.Qwen2Config(**shape, num_hidden_layers=2, num_key_value_heads=1, rms_norm_eps=1e-6,
                                    rope_parameters=dict(rope_type="default", rope_theta=1e6),
                                    tie_word_embeddings=True), torch.float16


def mistral():
    """Mistral without a sliding window; heads of 80, as OPT-2.7B."""
    return transformers.MistralConfig(**dict(ROTARY, head_dim=80), num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5,
                                      sliding_window=None, tie_word_embeddings=False), torch.bfloat16


def qwen3():
    """Qwen3: norms of the heads of Q and K; heads of 96."""
    return transformers.Qwen3Config(**dict(ROTARY, head_dim=96), num_hidden_layers=2, num_key_value_heads=1, rms_norm_eps=1e-6,
                                    rope_parameters=dict(rope_type="default", rope_theta=1e6), tie_word_embeddings=False), torch.float16


def biased():
    """Llama with biases everywhere, and positions that are interpolated."""
    rope = dict(rope_type="linear", rope_theta=10000.0, factor=3.0)
    return transformers.LlamaConfig(**ROTARY, num_hidden_layers=2, num_key_value_heads=4, rms_norm_eps=1e-5, attention_bias=True,
                                    mlp_bias=True, rope_parameters=rope, tie_word_embeddings=False), torch.float16


def yarn():
    """Llama with YaRN: fast pairs, slow pairs and the ramp between, and longer Q and K."""
    rope = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=256)
    return transformers.LlamaConfig(**dict(ROTARY, head_dim=32), num_hidden_layers=2, num_key_value_heads=2, rms_norm_eps=1e-5,
                                    rope_parameters=rope, tie_word_embeddings=True), torch.bfloat16


def opt():
    return transformers.OPTConfig(**SHAPE, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2,
                                  max_position_embeddings=600), torch.float32


def opt350():
    """As OPT-350m: LayerNorm after each block, embeddings narrower than the model."""
    return transformers.OPTConfig(**SHAPE, word_embed_proj_dim=16, do_layer_norm_before=False, ffn_dim=64,
                                  num_hidden_layers=3, max_position_embeddings=600), torch.float16


TRAINED = ["opt-6m", "llama-gqa-6m"]  # in models/, with one tokenizer
MODELS = {"llama": (llama, 1), "llama3": (llama3, 2), "qwen2": (qwen2, 3), "opt": (opt, 4), "opt350": (opt350, 5),
          "mistral": (mistral, 6), "qwen3": (qwen3, 7), "biased": (biased, 8), "yarn": (yarn, 9)}


def random_model(name):
    """Weights large enough that attention is sharp, exact in the type they are stored in."""
    make, seed = MODELS[name]
    config, dtype = make()
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter_name, p in model.named_parameters():
            if "embed_tokens" in parameter_name:  # tied and large, a token would only predict itself
                p.normal_(0, 0.3 if config.tie_word_embeddings else 1.0)
            elif "embed_positions" in parameter_name and name == "opt350":  # or one token would follow another for ever
                p.normal_(0, 1.5)
            elif p.dim() == 2:
                p.normal_(0, 1.4 * p.shape[1] ** -0.5)
            elif "norm" in parameter_name and parameter_name.endswith("weight"):
                p.normal_(1, 0.2)
            else:
                p.normal_(0, 0.2)
            p.copy_(p.to(dtype).float())
    return model, dtype


def save(name, model, dtype, directory):
    shards = {"max_shard_size": "60KB"} if name == "llama3" else {}
    model.to(dtype).save_pretrained(directory, **shards)
    (directory / "generation_config.json").unlink(missing_ok=True)
    if name == "llama":
        path = directory / "config.json"
        config = json.loads(path.read_text())
        rope = config.pop("rope_parameters")
        config.update(rope_theta=rope["rope_theta"], rope_scaling=None, torch_dtype=config.pop("dtype"))
        path.write_text(json.dumps(config, indent=2) + "\n")


def golden(model_directory, directory, prompt, positions=POSITIONS):
    """Greedy continuation in fp32, its margins, and logits of the whole by teacher forcing in fp32 and fp16."""
    load = lambda dtype: transformers.AutoModelForCausalLM.from_pretrained(model_directory, dtype=dtype,
                                                                           attn_implementation="eager").eval()
    model = load(torch.float32)
    ids = torch.tensor([prompt])
    with torch.no_grad():
        full = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=STEPS,
                              eos_token_id=None, pad_token_id=0)
        assert full.shape[1] == PROMPT + STEPS
        logits = model(full).logits[0]
        half = load(torch.float16)(full).logits[0]
    top = logits.topk(2).values
    margins = (top[:, 0] - top[:, 1])[PROMPT - 1:-1]
    agrees = logits.argmax(-1)[PROMPT - 1:-1] == full[0, PROMPT:]
    scale = logits.abs().max().item()
    # transformers itself: the pass with a cache against the pass without.
    assert bool((agrees | (margins < 1e-5 * scale)).all())
    save_file({"logits_f32": logits[positions].contiguous(), "logits_f16": half[positions].contiguous()},
              directory / "logits.safetensors")
    document = {"made_by": f"transformers {transformers.__version__}, torch {torch.__version__}",
                "prompt_tokens": PROMPT, "tokens": full[0].tolist(), "positions": positions,
                "max_abs_logit": round(scale, 4), "margins": [float(f"{m:.5g}") for m in margins.tolist()]}
    (directory / "golden.json").write_text(json.dumps(document) + "\n")
    worst = (half.float() - logits).abs().max().item() / scale
    print(f"{directory.name}: max|logit| {scale:.3f}, smallest margin {margins.min():.2e}, "
          f"fp16 against fp32 in transformers {worst:.2e}, distinct new tokens {len(set(full[0, PROMPT:].tolist()))}")


def make(name):
    directory = OUT / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    if name in TRAINED:
        prompt = json.loads((ROOT / "models/opt-6m/golden.json").read_text())["sequences"][0]["tokens"][:PROMPT]
        golden(ROOT / "models" / name, directory, prompt, POSITIONS[3:])
        return
    model, dtype = random_model(name)
    save(name, model, dtype, directory)
    prompt = torch.randint(0, SHAPE["vocab_size"], (PROMPT,), generator=torch.Generator().manual_seed(7)).tolist()
    golden(directory, directory, prompt)
    tokenizer_golden.make(name, directory, ROOT / "models/opt-6m/sample.txt", SHAPE["vocab_size"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model_name in sys.argv[1:] or [*MODELS, *TRAINED]:
        make(model_name)

#!/usr/bin/env python3
"""The figures of csdsim_bench_gpu from PyTorch and Hugging Face generate, as rows of the same table.

Runs where torch (and, for the model, transformers) is installed; nothing else of the project needs them.
"""
import statistics

import torch
import torch.nn.functional as F


def milliseconds(work, warm_ups=3, repeats=11, flush=None):
    times = []
    for i in range(warm_ups + repeats):
        if flush is not None:
            flush.zero_()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        work()
        after.record()
        after.synchronize()
        if i >= warm_ups:
            times.append(before.elapsed_time(after))
    return statistics.median(times)


def row(what, value, unit, share):
    print(f"| {what} | {value:.4g} {unit} | {100 * share:.1f} % | - | - |", flush=True)


def peaks():
    name = torch.cuda.get_device_name()
    table = {"H200": (4.8e12, 989e12), "H100": (3.35e12, 989e12), "A100": (1.555e12, 312e12), "4090": (1.008e12, 165e12),
             "A6000": (0.768e12, 155e12), "RTX 5000": (0.448e12, 89e12)}
    return next((peak for key, peak in table.items() if key in name), (float("inf"), float("inf")))


def values(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.float16)


def linears(memory, flush):
    for name, n, k in [("q|k|v 15360 x 5120", 15360, 5120), ("out 5120 x 5120", 5120, 5120),
                       ("fc1 20480 x 5120", 20480, 5120), ("fc2 5120 x 20480", 5120, 20480)]:
        w = values(n, k)
        for batch in (1, 4, 8):
            x = values(batch, k)
            rate = 2 * (n * k + batch * (n + k)) / milliseconds(lambda: F.linear(x, w), flush=flush) * 1e3
            row(f"OPT-13B {name}, batch {batch}, torch", rate * 1e-9, "GB/s", rate / memory)


def attention(memory, flops, flush):
    for heads in (8, 32):
        k, v, q = values(32, 8, 4096, 128), values(32, 8, 4096, 128), values(32, heads, 1, 128)
        ms = milliseconds(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=heads != 8), flush=flush)
        rate = 4 * k.numel() / ms * 1e3
        row(f"decode attention, batch 32, 4,096 tokens, 8 KV heads, {heads} heads, d 128, torch SDPA", rate * 1e-9, "GB/s",
            rate / memory)
    for tokens in (2048, 16384):
        q, k, v = (values(1, 16, tokens, 128) for _ in range(3))
        for backend in (torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
            try:
                with torch.nn.attention.sdpa_kernel(backend):
                    ms = milliseconds(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
            except RuntimeError as error:
                print(f"# torch SDPA {backend.name}: {str(error).splitlines()[0]}")
                continue
            rate = 2 * tokens * tokens * 128 * 16 / ms * 1e3
            row(f"prefill attention, causal, {tokens} tokens, 16 heads, d 128, torch SDPA {backend.name.lower()}",
                rate * 1e-12, "TFLOP/s", rate / flops)


def model(memory):
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return
    config = LlamaConfig(hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
                         num_key_value_heads=32, vocab_size=32000, max_position_embeddings=4096)
    torch.set_default_dtype(torch.float16)
    with torch.device("cuda"):
        llama = LlamaForCausalLM(config).eval()
    read = 2 * (sum(p.numel() for p in llama.parameters()) - config.vocab_size * config.hidden_size)
    for batch in (1, 8):
        prompt = torch.ones(batch, 512, dtype=torch.long, device="cuda")
        options = {"do_sample": False, "use_cache": True, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}

        def generate(tokens):
            return lambda: llama.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, **options)

        step = (milliseconds(generate(65), 1, 3) - milliseconds(generate(1), 1, 3)) / 64
        cache = 2 * 2 * 32 * 4096 * batch * 544
        row(f"Llama-2-7B shape, fp16, batch {batch}, decode step at 512 tokens, Hugging Face generate", step, "ms",
            (read + cache) / step * 1e3 / memory)


def main():
    torch.manual_seed(1)
    memory, flops = peaks()
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    with torch.inference_mode():
        linears(memory, flush)
        attention(memory, flops, flush)
        model(memory)


if __name__ == "__main__":
    main()

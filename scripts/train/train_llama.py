#!/usr/bin/env python3
"""Trains a small Llama (RoPE, RMSNorm, SwiGLU, grouped queries, tied) from scratch and writes it as Hugging Face does.

Needs torch, transformers and sentencepiece. On a GPU if torch finds one. A run goes on from the state file in --out if
there is one; on the CPU the same arguments, seed and number of threads give the same weights, interrupted or not.

  train_llama.py --text /usr/share/doc/linux-doc-6.1/Documentation --text /usr/share/perl/5.36/pod \\
      --tokenizer models/opt-6m/tokenizer.model --held-out models/opt-6m/sample.txt --out models/llama-gqa-6m
"""
import argparse
import math
import pathlib
import shlex
import shutil
import sys
import time

import numpy as np
import sentencepiece
import torch
import torch.nn.functional as F
import transformers

import corpus

RECALL_FACT, RECALL_CUE, RECALL_DISTANCE = 32, 8, 768


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", action="append", required=True, help="file or folder of text (.rst .txt .yaml .pod .md, also .gz)")
    p.add_argument("--tokenizer", required=True, help="sentencepiece model; copied to --out")
    p.add_argument("--held-out", required=True, help="text that is not trained on; its source documents are dropped")
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--heads", type=int, default=8)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--head-dim", type=int, default=64)
    p.add_argument("--ffn", type=int, default=640)
    p.add_argument("--positions", type=int, default=2048, help="longest context")
    p.add_argument("--stages", nargs="+", default=["256:4e6", "1024:4e6", "2048:2e6"], metavar="LENGTH:TOKENS",
                   help="window lengths and how many tokens of each (default: %(default)s)")
    p.add_argument("--batch-tokens", type=int, default=8192, help="tokens a step (default: %(default)s)")
    p.add_argument("--copies", type=float, default=0.5, help="share of windows with repeated spans (default: %(default)s)")
    p.add_argument("--lr", type=float, default=3e-3, help="peak; linear warm-up over 50 steps, linear decay over the last "
                   "quarter of the tokens (default: %(default)s)")
    p.add_argument("--sources", help="what the texts are and their licences, for the card (default: their names)")
    p.add_argument("--licence", default="Apache-2.0, like the project.", help="of the weights, for the card")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--save-every", type=int, default=50, help="steps between states (default: %(default)s)")
    return p.parse_args()


class Schedule:
    """What a step does, as a function of its number alone, so that a run can go on where it stopped."""

    def __init__(self, args):
        self.args = args
        self.lengths = []
        for stage in args.stages:
            length, tokens = stage.split(":")
            if not 256 <= int(length) <= args.positions:
                raise SystemExit(f"--stages: a length is from 256 to --positions {args.positions}, not {length}")
            self.lengths += [int(length)] * round(float(tokens) / args.batch_tokens)
        self.steps = len(self.lengths)

    def batch(self, tokens, step):
        length = self.lengths[step]
        rng = np.random.default_rng([self.args.seed, step])
        return corpus.windows(tokens, self.args.batch_tokens // length, length, self.args.copies, rng)

    def lr(self, step):
        decay = self.steps // 4
        return self.args.lr * min(1.0, (step + 1) / 50, (self.steps - step) / max(1, decay))


def new_model(args, vocab):
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=args.width, intermediate_size=args.ffn, num_hidden_layers=args.layers,
        num_attention_heads=args.heads, num_key_value_heads=args.kv_heads, head_dim=args.head_dim,
        max_position_embeddings=args.positions, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2)
    torch.manual_seed(args.seed)
    return transformers.LlamaForCausalLM(config)


def optimisers(model):
    """Muon for the matrices of the layers, Adam for embedding and norms."""
    matrices = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    return [torch.optim.Muon(matrices, weight_decay=0.1, momentum=0.95, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, betas=(0.9, 0.95), weight_decay=0.0)]


def loss_of(model, batch, device):
    with torch.autocast(device, torch.bfloat16):
        logits = model(batch, use_cache=False).logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), batch[:, 1:].flatten())


@torch.no_grad()
def held_out(model, tokens, device, length=1024, limit=None):
    """Nats a token over windows of `length`, and the share of a repeated fact's tokens that are predicted."""
    count = min(len(tokens) // length, limit or len(tokens))
    rows = torch.from_numpy(tokens[:count * length].astype(np.int64).reshape(count, length)).to(device)
    losses, recalled, asked = [], 0, 0
    for i in range(count):
        losses.append(loss_of(model, rows[i:i + 1], device).item())
        fact = rows[(i + count // 2) % count, :RECALL_FACT]
        planted = rows[i].clone()
        planted[-RECALL_FACT:] = fact
        planted[-RECALL_FACT - RECALL_DISTANCE:-RECALL_DISTANCE] = fact
        with torch.autocast(device, torch.bfloat16):
            greedy = model(planted[None], use_cache=False).logits[0].argmax(-1)
        recalled += int((greedy[-RECALL_FACT + RECALL_CUE - 1:-1] == fact[RECALL_CUE:]).sum())
        asked += RECALL_FACT - RECALL_CUE
    return sum(losses) / count, recalled / asked


def save_state(path, step, model, optimizers):
    part = path.with_suffix(".part")
    torch.save({"step": step, "model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}, part)
    part.replace(path)


def train(args, model, tokens, held, device):
    schedule = Schedule(args)
    opts = optimisers(model)
    state_file = args.out / "training.state"
    first = 0
    if state_file.exists():
        state = torch.load(state_file, map_location=device)
        model.load_state_dict(state["model"])
        for optimizer, values in zip(opts, state["optimizers"]):
            optimizer.load_state_dict(values)
        first = state["step"]
        print(f"goes on at step {first}", flush=True)
    began = time.time()
    for step in range(first, schedule.steps):
        for optimizer in opts:
            for group in optimizer.param_groups:
                group["lr"] = schedule.lr(step)
        batch = torch.from_numpy(schedule.batch(tokens, step)).to(device)
        loss = loss_of(model, batch, device)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in opts:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        done = step + 1
        if done % 10 == 0:
            rate = (done - first) / (time.time() - began)
            print(f"step {done}/{schedule.steps} length {schedule.lengths[step]} loss {loss.item():.3f} "
                  f"{rate * args.batch_tokens:.0f} tokens/s, {(schedule.steps - done) / rate / 60:.0f} min left", flush=True)
        if done % args.save_every == 0 or done == schedule.steps:
            save_state(state_file, done, model, opts)
        if done % 200 == 0:
            print("held out: %.3f nats, recall %.2f" % held_out(model, held, device, limit=6), flush=True)
    return schedule.steps * args.batch_tokens


CARD = """# {name}

A small Llama with grouped queries (RMSNorm, rotary positions, SwiGLU, tied embeddings): {layers} layers, width {width}, {heads} query heads of {head_dim} over
{kv_heads} KV heads, FFN {ffn}, {positions:,} positions, vocabulary {vocab:,} (sentencepiece BPE with byte fallback, `tokenizer.model`; no start token is added).
{parameters:.2f} M parameters, FP16 safetensors with Hugging Face names.

Trained from scratch on {trained:.1f} M tokens drawn from {available:.1f} M: {sources}. The documents that
`{held_out}` was taken from are left out. {copies:.0%} of the windows hold repeated spans of 16 to 96 tokens, so that it learns to copy from far back.
Windows (length:tokens): {stages}. Held-out loss {loss:.2f} nats a token at 1,024 tokens of context, {loss_long:.2f} at {positions:,};
of the tokens of a fact planted {distance} tokens back it predicts {recall:.0%}. {licence}

Made by (torch {torch}, transformers {transformers}, {device}):

```sh
{command}
```
"""


def export(args, model, vocab, trained, available, held, device):
    loss, recall = held_out(model, held, device)
    loss_long, _ = held_out(model, held, device, length=args.positions)
    model.half().save_pretrained(args.out)
    (args.out / "generation_config.json").unlink(missing_ok=True)
    shutil.copy(args.tokenizer, args.out / "tokenizer.model")
    card = CARD.format(**vars(args) | dict(
        name=args.out.name, vocab=vocab, parameters=sum(p.numel() for p in model.parameters()) / 1e6, trained=trained / 1e6,
        available=available / 1e6, sources=args.sources or ", ".join(args.text), stages=", ".join(args.stages), loss=loss,
        loss_long=loss_long, recall=recall, distance=RECALL_DISTANCE, torch=torch.__version__,
        transformers=transformers.__version__, device=device, command=shlex.join(["scripts/train/train_llama.py", *sys.argv[1:]])))
    (args.out / "README.md").write_text(card)
    print(f"held out {loss:.3f} nats, {loss_long:.3f} at {args.positions} tokens, recall {recall:.2f}", flush=True)


def main():
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(args.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=args.tokenizer)
    held_text = pathlib.Path(args.held_out).read_text()
    texts = corpus.documents(args.text)
    kept = corpus.without(texts, held_text)
    if not kept:
        raise SystemExit("no text: " + ", ".join(args.text))
    print(f"{len(texts)} documents, {len(texts) - len(kept)} held out", flush=True)
    tokens, held = corpus.tokenise(kept, tokenizer), corpus.tokenise([held_text], tokenizer)
    model = new_model(args, tokenizer.vocab_size()).to(device)
    print(f"{len(tokens) / 1e6:.1f} M tokens, {sum(p.numel() for p in model.parameters()) / 1e6:.2f} M parameters, {device}",
          flush=True)
    trained = train(args, model, tokens, held, device)
    export(args, model, tokenizer.vocab_size(), trained, len(tokens), held, device)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains the predictor of active neurons of a checkpoint, on the checkpoint's own activations.

One low-rank predictor a layer: sigmoid(up (down x) + bias), where x is what enters the feed-forward block (after its
norm), says how likely each neuron fires. A neuron fires if its activation is above zero: relu(fc1 x) in OPT, and with
FATReLU (arXiv 2402.13516) silu(gate x) if it is at least --fatrelu. Positive and negative labels weigh the same. Every
step trains the first r components with a random r, so that any rank up to --rank can be used. Needs torch,
transformers and sentencepiece; runs on the CPU.

  train_predictor.py --model models/opt-6m --text /usr/share/doc/linux-doc-6.1/Documentation \\
      --text /usr/share/perl/5.36.0/pod --held-out models/opt-6m/sample.txt
"""
import argparse
import pathlib
import shlex
import sys
import time
import zlib

import numpy as np
import safetensors.torch
import sentencepiece
import torch
import torch.nn.functional as F
import transformers

import corpus

FORMAT = "csdsim-neuron-predictor-1"  # known to host_runtime/checkpoint/predictor_file.cpp
BATCH = 1024


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True, type=pathlib.Path, help="checkpoint directory with one model.safetensors")
    p.add_argument("--text", action="append", required=True, help="file or folder of text (.rst .txt .yaml .pod .md, also .gz)")
    p.add_argument("--held-out", required=True, type=pathlib.Path, help="text to measure on; its source documents are dropped")
    p.add_argument("--out", type=pathlib.Path, help="file to write (default: predictor.safetensors in the checkpoint)")
    p.add_argument("--fatrelu", type=float, help="threshold of FATReLU; gated checkpoints need it")
    p.add_argument("--rank", type=int, default=64, help="components (default: %(default)s)")
    p.add_argument("--tokens", type=int, default=300_000, help="tokens to train on (default: %(default)s)")
    p.add_argument("--window", type=int, default=512, help="length of a window of text (default: %(default)s)")
    p.add_argument("--steps", type=int, default=4000, help="steps a layer (default: %(default)s)")
    p.add_argument("--lr", type=float, default=2e-3, help="peak; falls linearly to zero (default: %(default)s)")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--threads", type=int, default=1)
    return p.parse_args()


class Neurons:
    """Where the neurons of a checkpoint are, and when they fire."""

    def __init__(self, model, fatrelu):
        gated = model.config.model_type != "opt"
        if gated != (fatrelu is not None):
            raise SystemExit("--fatrelu: gated checkpoints need it, OPT has ReLU")
        if gated and fatrelu < 0:
            raise SystemExit("--fatrelu: at least 0")
        self.fatrelu = fatrelu
        layers = model.model.layers if gated else model.model.decoder.layers
        self.projections = [layer.mlp.gate_proj if gated else layer.fc1 for layer in layers]

    def labels(self, layer, inputs):
        """What is above zero where a neuron fires. It is not the activation, only of the same sign."""
        inner = self.projections[layer](inputs)
        return inner if self.fatrelu is None else F.silu(inner) - self.fatrelu


@torch.no_grad()
def inputs_of(model, neurons, rows):
    """What enters the feed-forward blocks for windows of tokens: by layer [tokens][width], fp16."""
    found = [[] for _ in neurons.projections]
    hooks = [projection.register_forward_pre_hook(lambda _, x, into=into: into.append(x[0].flatten(0, -2).half()))
             for projection, into in zip(neurons.projections, found)]
    for first in range(0, len(rows), 8):
        model(torch.from_numpy(rows[first:first + 8]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return [torch.cat(parts) for parts in found]


@torch.no_grad()
def first_guess(neurons, layer, inputs, rank):
    """The best linear guess of the projection, weighted by how the inputs lie: (down, up, bias).

    Its components are in falling order of what they explain, so that the first r are the best guess of rank r.
    """
    x = inputs[:20_000].float()
    values, vectors = torch.linalg.eigh(x.T @ x / len(x) + 1e-6 * torch.eye(x.shape[1]))
    root = vectors * values.sqrt() @ vectors.T
    inverse = vectors / values.sqrt() @ vectors.T
    projection = neurons.projections[layer]
    u, s, v = torch.linalg.svd(projection.weight @ root, full_matrices=False)
    level = neurons.labels(layer, x)
    scale = 3.0 / level.std()  # logits of a few units
    balance = s[:rank].sqrt()
    down = (v[:rank] * balance[:, None]) @ inverse
    up = u[:, :rank] * balance * scale
    bias = projection.bias * scale if projection.bias is not None else torch.zeros(len(up))
    if neurons.fatrelu is not None:
        bias = bias - neurons.fatrelu * scale
    return [t.clone().requires_grad_() for t in (down, up, bias)]


def logits(predictor, inputs, rank):
    down, up, bias = predictor
    return inputs @ down[:rank].T @ up[:, :rank].T + bias


def balanced_loss(scores, fires):
    """Mean over the neurons that fire plus mean over those that do not."""
    losses = F.softplus(torch.where(fires, -scores, scores))
    share = fires.float().mean().clamp(1e-4, 1 - 1e-4)
    return (losses * torch.where(fires, 0.5 / share, 0.5 / (1 - share))).mean()


def ranks_of(rank):
    """The ranks to measure: powers of two, and the whole."""
    return [r for r in (8, 16, 32, 64, 128, 256) if r < rank] + [rank]


def train_layer(args, neurons, layer, inputs):
    rng = np.random.default_rng([args.seed, layer])
    predictor = first_guess(neurons, layer, inputs, args.rank)
    optimiser = torch.optim.Adam(predictor, lr=args.lr)
    began = time.time()
    for step in range(args.steps):
        optimiser.param_groups[0]["lr"] = args.lr * (1 - step / args.steps)
        x = inputs[torch.from_numpy(rng.integers(0, len(inputs), BATCH))].float()
        with torch.no_grad():
            fires = neurons.labels(layer, x) > 0
        # Half of the steps train the whole rank; the others a part of it, small parts as often as large ones.
        rank = args.rank if step % 2 == 0 else max(1, round(args.rank ** rng.uniform(0.3, 1)))
        loss = balanced_loss(logits(predictor, x, rank), fires)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print(f"layer {layer}: {args.steps} steps in {time.time() - began:.0f} s, loss {loss.item():.3f}", flush=True)
    return [t.detach() for t in predictor]


@torch.no_grad()
def measure(neurons, layer, predictor, inputs, rank, threshold=0.5):
    """(share that fires, share of those missed, predicted over firing) on held-out inputs."""
    x = inputs.float()
    fires = neurons.labels(layer, x) > 0
    active = torch.sigmoid(logits(predictor, x, rank)) > threshold
    firing = fires.sum().item()
    return firing / fires.numel(), (fires & ~active).sum().item() / firing, active.sum().item() / firing


def save(args, neurons, predictors, trained):
    data = (args.model / "model.safetensors").read_bytes()
    command = shlex.join(["scripts/train/train_predictor.py", *sys.argv[1:]])
    metadata = {"format": FORMAT, "checkpoint_bytes": str(len(data)), "checkpoint_crc32": f"{zlib.crc32(data):08x}",
                "rank": str(args.rank), "tokens": str(trained), "command": command}
    if neurons.fatrelu is not None:
        metadata["fatrelu"] = repr(neurons.fatrelu)
    tensors = {}
    for layer, predictor in enumerate(predictors):
        for name, tensor in zip(("down", "up", "bias"), predictor):
            tensors[f"layers.{layer}.{name}"] = tensor.half().contiguous()
    out = args.out or args.model / "predictor.safetensors"
    safetensors.torch.save_file(tensors, out, metadata)
    print(f"{out}: {out.stat().st_size / 1024:.0f} KiB", flush=True)


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if not (args.model / "model.safetensors").exists():
        raise SystemExit(f"{args.model}: no model.safetensors")
    model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval().requires_grad_(False)
    if not 1 <= args.rank <= model.config.hidden_size:
        raise SystemExit(f"--rank: 1 to the checkpoint's width {model.config.hidden_size}")
    neurons = Neurons(model, args.fatrelu)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(args.model / "tokenizer.model"))
    held_text = args.held_out.read_text()
    kept = corpus.without(corpus.documents(args.text), held_text)
    if not kept:
        raise SystemExit("no text: " + ", ".join(args.text))
    # Every document has the same chance to be in a part of the texts that is large enough.
    order = np.random.default_rng(args.seed).permutation(len(kept))
    taken, size = [], 0
    for index in order:
        taken.append(kept[index])
        size += len(kept[index])
        if size > 60 * args.tokens:
            break
    tokens, held = corpus.tokenise(taken, tokenizer), corpus.tokenise([held_text], tokenizer)
    count = args.tokens // args.window
    rows = corpus.windows(tokens, count, args.window, 0, np.random.default_rng([args.seed, 1]))
    print(f"{len(taken)} of {len(kept)} documents, {len(tokens) / 1e6:.2f} M tokens", flush=True)
    inputs = inputs_of(model, neurons, rows)
    held_rows = held[:len(held) // args.window * args.window].astype(np.int64).reshape(-1, args.window)
    held_inputs = inputs_of(model, neurons, held_rows[:16])
    print(f"activations of {len(inputs[0])} tokens", flush=True)
    predictors = []
    for layer in range(len(neurons.projections)):
        predictor = train_layer(args, neurons, layer, inputs[layer])
        for rank in ranks_of(args.rank):
            share, missed, ratio = measure(neurons, layer, predictor, held_inputs[layer], rank)
            print(f"  rank {rank:3}: fires {share:.3f}, missed {missed:.3f}, predicted / firing {ratio:.2f}", flush=True)
        predictors.append(predictor)
    save(args, neurons, predictors, len(inputs[0]))


if __name__ == "__main__":
    main()

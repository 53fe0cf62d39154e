#!/bin/sh
# What HillInfer's choice of tokens costs and moves on the checkpoints of models/: out/token_pools/MODEL/{eval.csv,eval.html,
# result.json} (scores in fp16, INT8 and INT4), recordings of the important tokens, and what they move between pools:
# out/token_pools/{ping_pong,pools}.csv. Needs a build (scripts/run.sh); takes some minutes.
set -eu
cd "$(dirname "$0")/.."
csdsim=build/release/csdsim
out=out/token_pools
mkdir -p $out
for model in opt-6m llama-gqa-6m; do
  ask="$csdsim eval --model models/$model --text models/opt-6m/sample.txt --no-recall"
  $ask --prefill 896 --decode 128 --windows 8 --ratio 0.1,0.2,0.4 --out "$out/$model" \
    --method fp16,int8,int4,fp16-max,int8-max,int4-max,fp16-per-head,int8-per-head,int4-per-head
  # The prompt and the generation of HillInfer's profile, with its storage tier of a fifth, and longer contexts.
  $ask --prefill 128 --decode 64 --windows 16 --method fp16 --ratio 4/5 --record "$out/$model-128-tiers.json" > /dev/null
  $ask --prefill 128 --decode 64 --windows 16 --method fp16 --ratio 1/5 --record "$out/$model-128.json" > /dev/null
  $ask --prefill 512 --decode 128 --windows 8 --method fp16 --ratio 1/5 --record "$out/$model-512.json" > /dev/null
done
$csdsim pools $out/*-128-tiers.json --policy naive --format csv > $out/ping_pong.csv
$csdsim pools $out/*-128.json --pinned 0,1/10,1/5 --format csv >> $out/ping_pong.csv
$csdsim pools $out/*-512.json --hot 2/5,4/5 --pinned 0,1/10 --format csv > $out/pools.csv
$csdsim pools $out/*-512.json --locality

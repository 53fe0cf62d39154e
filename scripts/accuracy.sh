#!/bin/sh
# What each attention method loses at equal traffic, on both checkpoints of models/: out/accuracy/MODEL/{eval.csv,eval.html,
# result.json}. Needs a build (scripts/run.sh); takes some minutes.
set -eu
cd "$(dirname "$0")/.."
for model in ${*:-opt-6m llama-gqa-6m}; do
  build/release/csdsim eval --model "models/$model" --text models/opt-6m/sample.txt --ratio-mode traffic \
    --prefill 896 --decode 128 --windows 8 --out "out/accuracy/$model"
done

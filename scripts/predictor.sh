#!/bin/sh
# What the predicted neurons of models/ cost, by threshold and rank, and the locality of the neurons that fire:
# out/predictor/MODEL/{eval.csv,eval.html,result.json} and neurons.json. Needs a build (scripts/run.sh); takes some minutes.
set -eu
cd "$(dirname "$0")/.."
for model in ${*:-opt-6m llama-gqa-6m}; do
  case $model in llama*) fatrelu="--fatrelu 0.7" ;; *) fatrelu="" ;; esac
  # shellcheck disable=SC2086
  ask="build/release/csdsim eval --model models/$model --text models/opt-6m/sample.txt --prefill 512 $fatrelu"
  $ask --decode 128 --predictor "models/$model/predictor.safetensors" --rank 8,16,32,64 \
    --threshold 0.1,0.3,0.5,0.7,0.8,0.9,0.95 --out "out/predictor/$model"
  $ask --decode 256 --windows 8 --record-neurons "out/predictor/$model/neurons.json"
done

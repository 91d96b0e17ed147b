#!/usr/bin/env bash
# The table of frameworks of the models that Pochelu (2022) compares: a folder for each beside this file, with the document, the table
# and the chart. It takes about three and a half hours alone on a machine of two cores, may be interrupted, and goes on where it was. Run it in a
# checkout with the README's .venv that has onnxruntime, tf2onnx and openvino too.
#
#     results/frameworks/run.sh [DATABASE [PYTHON [MODEL...]]]
set -euo pipefail
cd "$(dirname "$0")/../.."
storage="sqlite:///${1:-results/frameworks.db}"
python="${2:-.venv/bin/python}"
models=("${@:3}")
[ ${#models[@]} -gt 0 ] || models=(resnet50 vgg19 densenet201 efficientnetb0 resnet50+densenet201+vgg19)
for model in "${models[@]}"; do
    "$python" -m tuner frameworks "$model" --scan 1,4,16,64,256,1024 --batch-size 8 --time-budget "${TFTUNE_BUDGET:-30m}" \
        --storage "$storage" --out "results/frameworks/$model"
done

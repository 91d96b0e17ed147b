#!/usr/bin/env bash
# What the runtime costs the three models of Delestrac et al. (DSD 2022): a folder for each beside this file, with the document, the table
# and the chart. It takes half an hour alone on a machine of two cores, and with TFTUNE_BUDGET=1h as long as BERT at 256 needs. Run it in a
# checkout with the README's .venv.
#
#     results/overhead/run.sh [PYTHON [MODEL...]]
set -euo pipefail
cd "$(dirname "$0")/../.."
python="${1:-.venv/bin/python}"
models=("${@:2}")
[ ${#models[@]} -gt 0 ] || models=(lenet5 resnet50 bert-base)
for model in "${models[@]}"; do
    "$python" -m tuner overhead "$model" --batch-size 1,4,16,64,256 --time-budget "${TFTUNE_BUDGET:-10m}" --trial-timeout 30m --out "results/overhead/$model" >/dev/null
done
"$python" -m results.overhead.page

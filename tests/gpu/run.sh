#!/usr/bin/env bash
# What a person with an NVIDIA GPU runs, in about a quarter of an hour after the downloads: the marked tests, searches of ResNet-50 and
# BERT-base on the GPU, and the benchmarks. What came of it is left in one folder, as a report with the raw documents.
#
# Python 3.11 or newer. A failed part is said, and the others go on.
#
#   tests/gpu/run.sh [--wheels FOLDER] [--python PYTHON] [--own PYTHON] [--out FOLDER] [--time-budget 3m]
#
# Without --python it makes an environment (.gpu) with tensorflow[and-cuda]; from the wheels in a folder, and without a
# network, where --wheels names one (filled elsewhere by: pip download -d FOLDER 'tensorflow[and-cuda]' optuna psutil
# pandas rich typer scipy threadpoolctl sqlalchemy matplotlib markdown-it-py msgspec nvidia-ml-py pytest hypothesis
# jsonschema).
# --python names an interpreter that has TensorFlow with CUDA already, and --own one that has tftune's own packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels="" python="" own="" out="" budget="3m"
while [ $# -gt 0 ]; do
    case "$1" in
        --wheels) wheels=$2 ;;
        --python) python=$2 ;;
        --own) own=$2 ;;
        --out) out=$2 ;;
        --time-budget) budget=$2 ;;
        *) echo "unknown option $1; expected --wheels, --python, --own, --out or --time-budget" >&2; exit 2 ;;
    esac
    shift 2
done
command -v nvidia-smi >/dev/null || { echo "no nvidia-smi here: run this on a machine with an NVIDIA GPU" >&2; exit 2; }
from=()
[ -z "$wheels" ] || from=(--no-index --find-links "$wheels")
if [ -z "$own" ]; then
    own="$PWD/.gpu/bin/python"
    [ -x "$own" ] || python3 -m venv .gpu
    # The project itself is not built: that would need hatchling.
    .gpu/bin/pip install -q "${from[@]}" optuna psutil pandas rich typer scipy threadpoolctl sqlalchemy matplotlib markdown-it-py msgspec \
        nvidia-ml-py pytest hypothesis jsonschema
    # TensorFlow comes from elsewhere where --python names it.
    [ -n "$python" ] || .gpu/bin/pip install -q "${from[@]}" "tensorflow[and-cuda]"
fi
export PYTHONPATH="$PWD"
export TFTUNE_GPU_PYTHON="${python:-$own}"
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' /' '--')
out=${out:-results/gpu/$name}
mkdir -p "$out"
out=$(cd "$out" && pwd)
tftune() { "$own" -m tuner "$@"; }
nvidia-smi -q > "$out/nvidia-smi.txt"
git rev-parse HEAD > "$out/commit.txt" 2>/dev/null || echo unknown > "$out/commit.txt"
# Where the GPU cannot be used, this says why, and ends the script.
tftune inspect resnet50 --device gpu --python "$TFTUNE_GPU_PYTHON" --json > "$out/inspect.json"
"$own" -m pytest tests/gpu -m gpu -p no:cacheprovider | tee "$out/tests.txt" || echo "some tests failed" >&2
for model in resnet50 bert-base; do
    tftune search "$model" --device gpu --python "$TFTUNE_GPU_PYTHON" --time-budget "$budget" \
        --storage "$out/studies.db" --json > "$out/$model.json" || echo "the search of $model failed" >&2
done
"$own" -m tests.benchmarks.gpu > "$out/benchmarks.md" || echo "the benchmarks failed" >&2
"$own" -m tests.gpu.report "$out" > "$out/README.md"
echo "the report is $out/README.md"

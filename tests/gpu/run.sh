#!/usr/bin/env bash
# What a person with an NVIDIA GPU runs, in ten minutes or so: the marked tests, searches of ResNet-50 and BERT-base on
# the GPU, and the benchmarks. What came of it is left in one folder, as a report with the raw documents beside it.
#
#   tests/gpu/run.sh [--wheels FOLDER] [--python PYTHON] [--out FOLDER] [--time-budget 3m]
#
# Without --python it makes an environment (.gpu) with tensorflow[and-cuda]; from the wheels in a folder, and without a
# network, where --wheels names one. --python names an interpreter that has TensorFlow with CUDA already.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels="" python="" out="" budget="3m"
while [ $# -gt 0 ]; do
    case "$1" in
        --wheels) wheels=$2 ;;
        --python) python=$2 ;;
        --out) out=$2 ;;
        --time-budget) budget=$2 ;;
        *) echo "unknown option $1; expected --wheels, --python, --out or --time-budget" >&2; exit 2 ;;
    esac
    shift 2
done
command -v nvidia-smi >/dev/null || { echo "no nvidia-smi here: run this on a machine with an NVIDIA GPU" >&2; exit 2; }
from=()
[ -z "$wheels" ] || from=(--no-index --find-links "$wheels")
own=.gpu/bin/python
[ -x "$own" ] || python3 -m venv .gpu
if [ -n "$wheels" ]; then
    # The project itself is not built: that would need hatchling from the network.
    .gpu/bin/pip install -q "${from[@]}" "tensorflow[and-cuda]" optuna psutil pandas rich typer scipy sqlalchemy \
        matplotlib markdown-it-py msgspec nvidia-ml-py pytest pytest-xdist hypothesis jsonschema
    export PYTHONPATH="$PWD"
else
    .gpu/bin/pip install -q -e '.[dev,gpu]' "tensorflow[and-cuda]"
fi
export TFTUNE_GPU_PYTHON="${python:-$PWD/$own}"
name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1 | tr ' /' '--')
out=${out:-results/gpu/$name}
mkdir -p "$out"
out=$(cd "$out" && pwd)
tftune() { "$own" -m tuner "$@"; }
nvidia-smi -q > "$out/nvidia-smi.txt"
git rev-parse HEAD > "$out/commit.txt" 2>/dev/null || echo unknown > "$out/commit.txt"
tftune inspect resnet50 --device gpu --python "$TFTUNE_GPU_PYTHON" --json > "$out/inspect.json"
"$own" -m pytest -m gpu -p no:cacheprovider | tee "$out/tests.txt" || true
for model in resnet50 bert-base; do
    tftune search "$model" --device gpu --python "$TFTUNE_GPU_PYTHON" --time-budget "$budget" \
        --storage "$out/studies.db" --json > "$out/$model.json"
done
"$own" -m tests.benchmarks.run gpu > "$out/benchmarks.md"
"$own" -m tests.gpu.report "$out" > "$out/README.md"
echo "the report is $out/README.md"

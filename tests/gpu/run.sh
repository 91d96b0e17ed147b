#!/usr/bin/env bash
# What a person with an NVIDIA GPU runs, in about a quarter of an hour after the downloads: the steps of tests/gpu/plan.py, each of at
# most a minute or so. What came of them is left in one folder, as a report with the raw documents. Run it again to go on.
#
# Python 3.11 or newer. A failed step is reported, and the others go on.
#
#   tests/gpu/run.sh [--wheels FOLDER] [--packed FOLDER] [--python PYTHON] [--own PYTHON] [--out FOLDER] [--minutes 14]
#
# Without --python it makes an environment (.gpu) with tensorflow[and-cuda]; from the wheels in a folder, and without a
# network, where --wheels names one (filled elsewhere by: pip download -d FOLDER 'tensorflow[and-cuda]' optuna psutil
# pandas rich typer scipy threadpoolctl sqlalchemy matplotlib markdown-it-py msgspec nvidia-ml-py pytest hypothesis
# jsonschema).
# --packed names a folder with pieces (piece.00, piece.01 …) of an archive in which site/ holds these packages, unpacked. What the
# machine's own python3 has may be missing there.
# --python names an interpreter that has TensorFlow with CUDA already, and --own one that has tftune's own packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
wheels="" packed="" python="" own="" out="" minutes="14"
while [ $# -gt 0 ]; do
    case "$1" in
        --wheels) wheels=$2 ;;
        --python) python=$2 ;;
        --own) own=$2 ;;
        --out) out=$2 ;;
        --packed) packed=$2 ;;
        --minutes) minutes=$2 ;;
        *) echo "unknown option $1; expected --wheels, --packed, --python, --own, --out or --minutes" >&2; exit 2 ;;
    esac
    shift 2
done
command -v nvidia-smi >/dev/null || { echo "no nvidia-smi here: run this on a machine with an NVIDIA GPU" >&2; exit 2; }
# CUDA's libraries under the names that TensorFlow asks for, if the machine has those of another version.
link() {
    mkdir -p .gpu/lib
    for asked in libcudart.so.12 libcublas.so.12 libcublasLt.so.12 libcufft.so.11 libcusolver.so.11 libcusparse.so.12 libcudnn.so.9 libnccl.so.2; do
        if ! ldconfig -p | grep -qF "$asked "; then
            there=$(ldconfig -p | sed -n "s|^\s*${asked%%.*}\.so\.[0-9.]* .* => ||p" | head -n 1)
            [ -n "$there" ] || there=$(find /usr/local/cuda*/ -name "${asked%%.*}.so.*" 2>/dev/null | head -n 1 || true)
            if [ -n "$there" ]; then ln -sf "$there" ".gpu/lib/$asked"; else echo "no $asked here" >&2; fi
        fi
    done
    export LD_LIBRARY_PATH="$PWD/.gpu/lib:${LD_LIBRARY_PATH:-}"
}
if [ -n "$packed" ] && [ -z "$own" ]; then
    own="$PWD/.gpu/bin/python"
    if [ ! -f .gpu/unpacked ]; then
        mkdir -p .gpu
        find "$packed" -name 'piece.*' | awk -F/ '{ print $NF " " $0 }' | sort | cut -d' ' -f2- | xargs cat > .gpu/all.tar.xz
        python3 -c 'import tarfile; tarfile.open(".gpu/all.tar.xz").extractall(".gpu", filter="fully_trusted")'
        rm .gpu/all.tar.xz
        python3 -m venv --without-pip .gpu
        others=$(python3 -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))' 2>/dev/null || true)
        printf '%s\n' "$PWD/.gpu/site" "$others" > "$("$own" -c 'import site; print(site.getsitepackages()[0])')/packed.pth"
        # Without compiled files each import of TensorFlow takes nine seconds.
        "$own" -m compileall -q -j 0 .gpu/site tuner > /dev/null 2>&1 || true
        touch .gpu/unpacked
    fi
    link
fi
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
"$own" -m tests.gpu.plan "$out" --minutes "$minutes"
"$own" -m tests.gpu.report "$out" > "$out/README.md"
echo "the report is $out/README.md"

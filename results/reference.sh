#!/usr/bin/env bash
# The reference results: the shipped workloads on the stock build and an OpenMP build, on two CPUs, on one, and under a quota of
# one; then training, and batch sizes; and the rules that all of these give. It takes about six hours alone on a machine of two
# cores, may be interrupted, and goes on where it was. Run it in a checkout with the README's .venv and .openmp.
#
#     results/reference.sh [DATABASE [PYTHON OPENMP_PYTHON]]
set -euo pipefail
cd "$(dirname "$0")/.."
storage="sqlite:///${1:-results/reference.db}"
python="${2:-.venv/bin/python}"
openmp="${3:-.openmp/bin/python}"
suite() { # 1: some failed, and are said; an OpenMP build has more to look at
    "$python" -m tuner suite --time-budget 90s --storage "$storage" --python "$python" "$@" || [ $? -eq 1 ]
    "$python" -m tuner suite --time-budget 150s --storage "$storage" --python "$openmp" "$@" || [ $? -eq 1 ]
}

suite --space threads --cpus 2 --cpu-quota 1
suite --space threads --cpus 1
suite --space threads --cpus 2 --mode training
suite --space batch --cpus 2
"$python" -m tuner suite --plan 15m --storage "$storage" || [ $? -eq 1 ]
"$python" -m tests.benchmarks.survey "${1:-results/reference.db}"
"$python" -m tuner rules --storage "$storage" --json --out results/rules.json
"$python" -m tuner rules --storage "$storage" --format md --out results/rules.md
"$python" -m tuner export --storage "$storage" --what studies --out results/studies.csv
"$python" -m tuner export --storage "$storage" --what trials --out results/trials.csv

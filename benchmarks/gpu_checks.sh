#!/usr/bin/env bash
# Everything that needs a GPU, in one run: correctness first, then the kernel table.
#   benchmarks/gpu_checks.sh RESULTS_FOLDER
set -uo pipefail
out=${1:?usage: gpu_checks.sh RESULTS_FOLDER}
export PYTHONPATH=platform:inference_engine:kernels:tests/support PYTHONUNBUFFERED=1
python3 -m pytest -p no:cacheprovider -W ignore -q -rf --tb=short tests/kernels -x 2>&1 | tail -25
python3 -m pytest -p no:cacheprovider -W ignore -q -rf --tb=short -s -m gpu tests/engine 2>&1 | tee "$out/gpu_agreement.txt" | tail -40
python3 benchmarks/kernel_table.py --out "$out/kernels.jsonl" 2>&1 | tail -60

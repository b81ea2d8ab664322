#!/usr/bin/env bash
# What a machine with a GPU should show, in one go: the device, the tests, the main job in float32 and in bfloat16.
# Needs a jax with CUDA, and the test extra: pip install -e '.[test]' 'jax[cuda12]'
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-gpu-checks}"
python -c 'import jax; print(jax.devices()); assert jax.default_backend() == "gpu", "no GPU is seen by jax"'
python -m pytest -q -n 0 -m "heavy or not heavy" tests/attention tests/positions tests/test_model.py tests/test_train.py
for dtype in float32 bfloat16; do
  /usr/bin/env time -f "$dtype: %e s" python -m lpe.main --config=configs/hier.py --config.dtype=$dtype --workdir="$out/$dtype"
done
python -m experiments.bench_gpu_attention --out="$out/attention"
python -m experiments.bench_positions --layers=12 --hidden=768 --heads=12 --lengths=512,2048 --out="$out/positions"

#!/usr/bin/env bash
# Makes the demo model and its adapters anew: tokenizer, base model, adapters, draft head, scores.
# On a GPU it takes about seven minutes; on a CPU, hours. Tries nothing over the network.
#
#   demo/train/remake.sh            everything, as shipped
#   demo/train/remake.sh --small    a few steps of everything, to see that the scripts run (the model will babble)
set -euo pipefail
cd "$(dirname "$0")/../.."

python="${PYTHON:-python3}"
out="${OUT:-demo}"
export HF_HUB_OFFLINE=1 PYTHONWARNINGS=ignore
draft=() mtp=()
base=(--minutes 3.8 --steps 12000)
adapters=(--minutes 1.9 --steps 3000)
if "$python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  base+=(--compile)
else
  base=(--steps 7600) adapters=(--steps 1000)
fi
if [[ "${1:-}" == --small ]]; then
  out="$(mktemp -d)"
  base=(--small --steps 3 --rows 4) adapters=(--steps 2 --rows 2 --chats 100)
  draft=(--dialogues 60 --steps 2) mtp=(--dialogues 60 --steps 2)
fi

"$python" -m demo.train.tokenizer --out "$out/model"
"$python" -m demo.train.train_base --out "$out/model" "${base[@]}"
"$python" -m demo.train.train_adapters --model "$out/model" --out "$out" "${adapters[@]}"
"$python" -m demo.train.train_draft --model "$out/model" --out "$out/draft" "${draft[@]}"
mkdir -p "$out/hybrid/model"
cp "$out"/model/{tokenizer.json,tokenizer_config.json,special_tokens_map.json} "$out/hybrid/model/"
"$python" -m demo.train.train_base --hybrid --out "$out/hybrid/model" "${base[@]}"
"$python" -m demo.train.train_mtp --model "$out/hybrid/model" "${mtp[@]}"
"$python" -m demo.train.train_adapters --hybrid --model "$out/hybrid/model" --out "$out" "${adapters[@]}"
if [[ "${1:-}" != --small ]]; then
  "$python" -m demo.train.evaluate --out "$out"
fi
echo "The model and its adapters are in $out."

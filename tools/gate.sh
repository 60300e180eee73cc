#!/bin/sh
# tools/gate.sh: format, layers, stale generated files.
set -eu
cd "$(dirname "$0")/.."
echo "gate: format"
git ls-files '*.cc' '*.h' | grep -v '^third_party/' | xargs clang-format-14 --dry-run --Werror
echo "gate: layers"
python3 tools/check_layers.py
for script in tools/generate_*.py; do
  [ -e "$script" ] || continue
  echo "gate: $script"
  python3 "$script" --check
done
echo "gate: all good"

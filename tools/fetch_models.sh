#!/bin/sh
# tools/fetch_models.sh GROUPS: fetches the pinned models and pictures of these groups into $LEEWAY_MODELS, checked by hash.
set -eu
cd "$(dirname "$0")/.."
. tools/environment.sh
echo "models: $1 into $LEEWAY_MODELS (what is there is kept)"
python3 tools/fetch_models.py "$LEEWAY_MODELS" --only "$1" --quiet

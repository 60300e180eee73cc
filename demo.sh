#!/bin/sh
# ./demo.sh: from nothing to a picture and an answer. Sets up, builds, fetches real models and a real photo, cuts the person out of
# the photo on the default device, says what ran where and how long it took, and lets a small language model answer a question.
set -eu
cd "$(dirname "$0")"
. tools/environment.sh
tools/setup.sh demo
tools/build.sh leeway
tools/fetch_models.sh demo
echo "demo: devices on this machine"
build/leeway devices
echo "demo: cutting the person out of the photo"
build/leeway run "$LEEWAY_MODELS/selfie_segmentation.tflite" --input "$LEEWAY_MODELS/astronaut.png" --draw --output demo.png
echo "demo: look at demo.png"
build/leeway pull smollm2-135m --into "$LEEWAY_MODELS"
echo "demo: asking SmolLM2-135M"
build/leeway chat "$LEEWAY_MODELS/smollm2-135m.gguf" --context 512 --greedy --prompt "What is the capital of France?" </dev/null
echo "demo: build/leeway chat $LEEWAY_MODELS/smollm2-135m.gguf goes on talking"

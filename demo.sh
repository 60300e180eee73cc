#!/bin/sh
# ./demo.sh: from nothing to a picture. Sets up, builds, fetches a real model and a real photo, cuts the person out of the photo on
# the default device, and says what ran where and how long it took.
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

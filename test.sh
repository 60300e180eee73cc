#!/bin/sh
# ./test.sh [CTEST ARGUMENTS]: sets up, builds and runs all tests on the software devices, and on a GPU where there is one.
set -eu
cd "$(dirname "$0")"
. tools/environment.sh
tools/setup.sh test
tools/fetch_models.sh cv,audio,images
tools/build.sh all
build/leeway pull smollm2-135m --into "$LEEWAY_MODELS"
echo "test: running the tests"
export LEEWAY_REQUIRE_CHECKERS=1
export LEEWAY_TEST_DEVICES="${LEEWAY_TEST_DEVICES-$(default_test_devices)}"
echo "test: devices that must be there: $LEEWAY_TEST_DEVICES"
ctest --test-dir build --output-on-failure -j "$(nproc)" "$@"

#!/bin/sh
# tools/fuzz_tflite.sh [SECONDS | runs=N] [MODEL...]: fuzzes the reader of .tflite files under AddressSanitizer and UBSan.
# It begins with the small golden models and the given ones; inputs that crash are kept in build/fuzz/crashes. CI runs a minute;
# a long run is `tools/fuzz_tflite.sh runs=10000000`.
set -eu
cd "$(dirname "$0")/.."
amount=${1:-60}
[ $# -eq 0 ] || shift
command -v clang++-14 > /dev/null || {
  echo "fuzz: clang++-14 is missing (apt-get install clang-14)" >&2
  exit 1
}
build=build/fuzz
mkdir -p build
if [ ! -e $build/build.ninja ]; then
  echo "fuzz: configuring $build"
  cmake -S . -B $build -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS="-fsanitize=fuzzer-no-link" -DCMAKE_CXX_FLAGS_RELEASE="-O1" -DLEEWAY_SANITIZE=ON -DLEEWAY_FUZZERS=ON \
    -DLEEWAY_TESTS=OFF -DLEEWAY_CLI=OFF > $build.log 2>&1 || {
    tail -n 20 $build.log >&2
    exit 1
  }
fi
echo "fuzz: building (a first build takes some minutes)"
ninja -C $build tflite_fuzz > $build.log 2>&1 || {
  tail -n 20 $build.log >&2
  exit 1
}
mkdir -p $build/corpus $build/crashes
for model in tests/goldens/tflite-ops/*.tflite "$@"; do
  cp -n "$model" $build/corpus/
done
case $amount in
  runs=*) limit="-runs=${amount#runs=}" ;;
  *) limit="-max_total_time=$amount" ;;
esac
echo "fuzz: running ($limit)"
exec $build/tflite_fuzz "$limit" -max_len=65536 -rss_limit_mb=4096 -malloc_limit_mb=2048 -timeout=20 -print_final_stats=1 \
  -artifact_prefix=$build/crashes/ $build/corpus

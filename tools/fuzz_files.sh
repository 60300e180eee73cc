#!/bin/sh
# tools/fuzz_files.sh [runs=N | SECONDS] [FORMAT...]: fuzzes the readers of model files (tflite, gguf, safetensors,
# tokenizer_json, chat_template; all of them where none is named) under AddressSanitizer and UBSan, one after another, by default 10 million inputs each. They begin with small
# golden and made-up files; inputs that crash are kept in build/fuzz/crashes.
set -eu
cd "$(dirname "$0")/.."
amount=${1:-runs=10000000}
[ $# -eq 0 ] || shift
formats=${*:-tflite gguf safetensors tokenizer_json chat_template}
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
targets=""
for format in $formats; do targets="$targets ${format}_fuzz"; done
echo "fuzz: building$targets (a first build takes some minutes)"
# shellcheck disable=SC2086
ninja -C $build $targets > $build.log 2>&1 || {
  tail -n 20 $build.log >&2
  exit 1
}
case $amount in
  runs=*) limit="-runs=${amount#runs=}" ;;
  *) limit="-max_total_time=$amount" ;;
esac
mkdir -p $build/crashes
failed=""
for format in $formats; do
  corpus=$build/corpus-$format
  mkdir -p $corpus
  $build/${format}_fuzz --write-corpus=$corpus
  if [ "$format" = tflite ]; then cp -n tests/goldens/tflite-ops/*.tflite $corpus/; fi
  echo "fuzz: $format ($limit), log in $build/$format.log"
  if $build/${format}_fuzz "$limit" -max_len=65536 -rss_limit_mb=4096 -malloc_limit_mb=2048 -timeout=20 -print_final_stats=1 \
    -artifact_prefix=$build/crashes/$format- $corpus > $build/$format.log 2>&1; then
    grep -E "^(Done|stat::(number_of_executed_units|average_exec_per_sec|peak_rss_mb))" $build/$format.log
  else
    tail -n 30 $build/$format.log >&2
    failed="$failed $format"
  fi
done
[ -z "$failed" ] || {
  echo "fuzz: these failed:$failed; the inputs are in $build/crashes" >&2
  exit 1
}

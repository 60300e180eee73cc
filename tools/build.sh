#!/bin/sh
# tools/build.sh [TARGET...]: configures build/ once and builds the targets (default: the command).
set -eu
cd "$(dirname "$0")/.."
if [ ! -e build/build.ninja ]; then
  echo "build: configuring"
  mkdir -p build
  cmake -S . -B build -G Ninja > build/configure.log 2>&1 || {
    tail -n 30 build/configure.log >&2
    echo "build: configuring failed; see build/configure.log" >&2
    exit 1
  }
fi
[ $# -gt 0 ] || set -- leeway
echo "build: $* (a first build takes some minutes)"
ninja -C build "$@"

#!/bin/sh
# tools/setup.sh [demo|test]: installs what building and running need, and says so. Debian 12 (Ubuntu 24.04 works alike).
# Everything comes from the distribution's packages. A second call finds all of it there and does nothing. Without root it
# installs nothing, and where something is missing it says what and how to get it.
set -eu
purpose=${1:-demo}
. /etc/os-release 2>/dev/null || VERSION_CODENAME=unknown

# Compiler and build tools; libraries that docs/dependencies.md explains; WebGPU's driver (lavapipe, under Dawn) and OpenCL's (PoCL).
packages="g++ cmake ninja-build ccache python3 python3-pip zlib1g-dev
  nlohmann-json3-dev libcli11-dev libstb-dev flatbuffers-compiler libflatbuffers-dev libutf8proc-dev opencl-headers
  libvulkan1 mesa-vulkan-drivers ocl-icd-libopencl1 pocl-opencl-icd"
[ "$purpose" = test ] && packages="$packages libgtest-dev clang-format-14 glslang-tools clang-14 libclang-rt-14-dev"
# SwiftShader, the deliberately weak second Vulkan driver of the tests, lies in Debian's Chromium; Ubuntu has no such package.
if [ "$purpose" = test ] && [ "${ID:-}" = debian ]; then packages="$packages chromium-common"; fi
# The OpenCL C checker is the clang that PoCL brings: 15 on Debian 12.
if [ "$purpose" = test ] && [ "$VERSION_CODENAME" = bookworm ]; then packages="$packages clang-15"; fi

is_installed() { dpkg-query -W -f='${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'; }
# Debian 12's own Mesa (22.3) lacks a feature that Dawn demands; its backports have a newer one.
old_mesa() {
  [ "$VERSION_CODENAME" = bookworm ] && dpkg --compare-versions "$(dpkg-query -W -f='${Version}' mesa-vulkan-drivers 2>/dev/null || echo 0)" lt 25
}

missing=""
for package in $packages; do is_installed "$package" || missing="$missing $package"; done
if old_mesa; then missing=$(echo "$missing" | sed 's/ mesa-vulkan-drivers//'); missing="$missing mesa-vulkan-drivers/bookworm-backports"; fi
# A Python that did not come from the distribution may already have pip.
if python3 -m pip --version > /dev/null 2>&1; then missing=$(echo "$missing" | sed 's/ python3-pip//'); fi
[ -n "$missing" ] || { echo "setup: everything is there"; exit 0; }

if [ "$(id -u)" != 0 ]; then
  echo "setup: these packages are missing:$missing" >&2
  echo "setup: as root, run: tools/setup.sh $purpose" >&2
  exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
case "$missing" in
  *bookworm-backports*)
    if ! grep -rqs '^[^#]*bookworm-backports' /etc/apt/sources.list /etc/apt/sources.list.d; then
      if [ -e /etc/apt/sources.list.d/debian.sources ]; then
        # The first stanza of the system's own sources with the suite replaced: the same mirror and key.
        awk 'NF == 0 && seen { exit } NF { seen = 1; print }' /etc/apt/sources.list.d/debian.sources |
          sed 's/^Suites:.*/Suites: bookworm-backports/' > /etc/apt/sources.list.d/leeway-backports.sources
      else
        awk '/^deb / && / bookworm / { sub(/ bookworm /, " bookworm-backports "); print; exit }' /etc/apt/sources.list \
          > /etc/apt/sources.list.d/leeway-backports.list
      fi
    fi ;;
esac
log=$(mktemp)
step() {  # a line a step; the log only when it fails
  echo "setup: $1"; shift
  "$@" > "$log" 2>&1 || { tail -n 30 "$log" >&2; echo "setup: '$*' failed; its last lines are above" >&2; exit 1; }
}
step "apt-get update" apt-get update -q
# shellcheck disable=SC2086
step "apt-get install (about 150 MB on a bare machine, a minute or two)" apt-get install -q -y --no-install-recommends $missing
rm -f "$log"
echo "setup: done"

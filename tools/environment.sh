# Sourced by the scripts, from the project's root: where the caches are, and quiet drivers.
export LEEWAY_MODELS="${LEEWAY_MODELS:-$PWD/.cache/models}"
export NODEVICE_SELECT=1     # silences a Mesa layer that looks for a display
swiftshader=/usr/lib/chromium/vk_swiftshader_icd.json

# The devices that a test run asks for: all software devices that the set-up installs. A missing one is a failure.
default_test_devices() {
  devices="webgpu:llvmpipe,opencl"
  [ -e "$swiftshader" ] && devices="$devices,webgpu:SwiftShader"
  echo "$devices"
}

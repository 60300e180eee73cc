// Errors as values: every call of the public API that can fail returns a Result.
//
// A Result<T> holds either a T or an Error. Nothing in Leeway throws, prints or ends the process because of what a caller,
// a file, a device or a driver did.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace leeway {

// Why a call failed. The values are stable: they are part of the ABI of the C interface.
enum class Code {
  kInvalidArgument = 1,  // the caller passed something that the call does not take
  kInvalidModel = 2,     // a file is damaged, truncated or breaks the rules of its format
  kUnsupported = 3,      // well formed, but outside what this build or this device can do
  kNotFound = 4,         // a file, device, tensor or name does not exist
  kOutOfMemory = 5,      // host or device memory ran out
  kDeviceLost = 6,       // the device went away; rebuild on a new one
  kCancelled = 7,        // the caller asked to stop
  kIo = 8,               // reading or writing a file failed
  kInternal = 9,         // a mistake of ours, or a driver that broke its contract
};

// The stable lower-case name of a code, as in "invalid_model".
const char* CodeName(Code code);

struct Error {
  Code code = Code::kInternal;
  // One or more sentences in the present tense: what was found, what was expected, and in which object.
  std::string message;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // Only when ok(). Asking a failed Result for its value is a bug of the caller and ends the process.
  T& value() & { return Checked(), *value_; }
  const T& value() const& { return Checked(), *value_; }
  T&& value() && { return Checked(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  // Only when !ok().
  const Error& error() const { return error_; }

 private:
  void Checked() const {
    if (!value_) {
      std::fprintf(stderr, "leeway: value() of a failed Result: %s\n", error_.message.c_str());
      std::abort();
    }
  }
  std::optional<T> value_;
  Error error_;
};

// A Result without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace leeway

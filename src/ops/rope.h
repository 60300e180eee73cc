// Tables of the operator `rope`: how far a pair of elements turns from one position to the next.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace leeway {

// A fraction of a turn in units of 2^-32, so that position * turn, modulo 2^32, is the angle at any position, exactly: f32
// angles lose three digits at position 1000. `radians` in [0, pi).
uint32_t TurnOf(double radians);

// Pair i of `pairs` turns by base^(-i / pairs) / factors[i] radians a position; no factors: all 1. A factor of 1e30 makes 0.
std::vector<uint32_t> RopeTurns(double base, int64_t pairs, std::span<const double> factors = {});

}  // namespace leeway

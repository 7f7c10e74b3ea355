// What the gate of a feed-forward block goes through.
#pragma once
#include "args.h"

DEV float exp_of(float x) { return fast_exp2(x * 1.4426950408889634f); }
DEV float silu(float x) { return x * fast_reciprocal(1.0f + exp_of(-x)); }
// The tanh form of GELU (Hendrycks and Gimpel 2016); tanh u = 1 - 2 / (e^2u + 1).
DEV float gelu_tanh(float x) {
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (2.0f - 2.0f * fast_reciprocal(exp_of(2.0f * u) + 1.0f));
}
DEV float gated(int gate, float g, float up) {
    return (gate == GATE_SILU ? silu(g) : gelu_tanh(g)) * up;
}

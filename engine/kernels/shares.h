// Work that is counted, cut into shares as equal as can be; divisions by what the host knows.
#pragma once
#include "args.h"

struct Share { int first, end; };

// Share `index` when the first `larger_ones` are one larger than `size`, in steps.
DEV Share share_of(int size, int larger_ones, int step, int index) {
    int first = index * size + least(index, larger_ones);
    return Share{first * step, (first + size + (index < larger_ones ? 1 : 0)) * step};
}

struct Quotient { int whole, rest; };

// x / by by way of a reciprocal, which is off by one at most below 2^24.
DEV Quotient divide(int x, Divisor by) {
    if (__builtin_constant_p(by.value)) return Quotient{(int)((u32)x / by.value), (int)((u32)x % by.value)};
    int whole = (int)((float)x * by.reciprocal), rest = x - whole * by.value;
    if (rest < 0) { whole--; rest += by.value; }
    if (rest >= by.value) { whole++; rest -= by.value; }
    return Quotient{whole, rest};
}

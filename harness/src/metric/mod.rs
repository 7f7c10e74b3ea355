//! From an attempt's output to numbers: expectations first, then metrics.

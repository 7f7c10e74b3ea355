// Rows of the embedding table start the residual stream.
#pragma once
#include "weights.h"

// First kernel of a decode step, outside the captured graph: its argument is how what changes from
// step to step reaches the graph.
KERNEL LAUNCH_BOUNDS(256) begin_step(const BeginArgs a) {
    wait_previous_kernel();
    allow_next_kernel();
    u32 token = *a.token;
    for (int i = BID_X * BDIM_X + TID_X; i < a.table.columns; i += GDIM_X * BDIM_X)
        a.x[i] = element(a.table, (int)token, i) * a.scale;
    if (BID_X == 0 && TID_X == 0) *a.device_state = a.state;
}

KERNEL LAUNCH_BOUNDS(256) embed_rows(const EmbedRowsArgs a) {
    int row = (int)a.tokens[BID_X];
    for (int i = TID_X; i < a.hidden; i += BDIM_X) {
        float value = a.plain.scales ? element(a.plain, row, i) : element(a.tiles, row, i);
        a.x[(long)BID_X * a.hidden + i] = value * a.scale;
    }
}

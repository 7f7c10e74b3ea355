#!/usr/bin/env bash
# Plants bugs in copies of the kernels, one at a time, and shows that the tests on fibers catch each:
# tests that pass with a bug in them test nothing. Exits with 1 when one goes unnoticed.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
planted=0

# plant LAYOUTS DESCRIPTION FILE PYTHON-EXPRESSION-OF-s [FLAGS]: caught in at least one of the layouts.
# As many at a time as there are processors; each says what came of it in a file of its own.
plant() {
    while (($(jobs -rp | wc -l) >= $(nproc))); do
        wait -n || true
    done
    planted=$((planted + 1))
    plant_in "$work/$(printf %03d $planted)" "$@" &
}

plant_in() {
    local place=$1 layouts=$2 description=$3 file=$4 change=$5 flags=${6:-} layout
    mkdir "$place"
    cp -r engine/kernels "$place/kernels"
    if ! python3 - "$place/kernels/$file" "$change" <<'P'; then
import sys
path, change = sys.argv[1:]
before = open(path).read()
s = before
after = eval(change)
if after == before:
    sys.exit(f"the bug could not be planted: {change}")
open(path, "w").write(after)
P
        echo "NOT THERE  $description" >"$place/result"
        return
    fi
    for layout in $layouts; do
        # shellcheck disable=SC2086 # flags are words
        if ! c++ -std=c++17 -O1 -w $flags "-DKPORT_LAYOUT_$layout" "$place/kernels/tests.cpp" -o "$place/tests" 2>"$place/out"; then
            echo "NOT BUILT  $description [$layout: $(grep -m1 error "$place/out" | cut -c1-90)]" >"$place/result"
            return
        fi
        if ! timeout 120 "$place/tests" >"$place/out" 2>&1; then
            echo "caught     $description [$layout: $(grep -m1 -E 'FAILED|ERROR|error' "$place/out" | cut -c1-90)]" >"$place/result"
            return
        fi
    done
    echo "UNNOTICED  $description" >"$place/result"
}

both="NV RDNA3"
plant "$both" "partial products read before they are written" linear_vector.h \
    's.replace("    block_sync();\n    Best best", "    Best best")'
plant "$both" "inputs read before they are staged" row_input.h \
    's.replace("padded, s, then);\n    block_sync();\n}", "padded, s, then);\n}")'
plant "$both" "keys overwritten while they are read" attention_tiles.h \
    's.replace("        block_sync();\n        load_key_tile", "        load_key_tile", 1)'
plant "$both" "results that do not shrink with the maximum" attention_tiles.h \
    's.replace("sums[t].v[i] *= shrink[row_slot(i)];", ";")'
plant "$both" "values read by rows" attention_tiles.h \
    's.replace("load_columns_b(values", "load_rows_b(values")'
plant "$both" "activations overwritten while they are read" linear_matrix.h \
    's.replace("((tile + 1) & 1) * X_BUFFER, x_next)", "(tile & 1) * X_BUFFER, x_next)")'
plant "$both" "no barrier between a store of activations and their use" linear_matrix.h \
    's.replace("X_BUFFER, x_next);\n        block_sync();", "X_BUFFER, x_next);")'
plant NV "a tile of activations replaced before all warps are done with it" linear_warpgroup.h \
    's.replace("            wait_arrivals(stages.empty", "            if (false) wait_arrivals(stages.empty")'
plant NV "a tile of activations that never comes" linear_warpgroup.h \
    's.replace("            fill(stages, tile - 2 + STAGES);", "")'
plant NV "operands overwritten while they are multiplied" linear_warpgroup.h \
    's.replace("wait_products<1>();\n        codes = next;", "codes = next;")'
plant NV "sums read while they are worked on" linear_warpgroup.h 's.replace("    wait_products<0>();", "")'
plant NV "activations in another order than the weights" activations.h 's.replace("(column & 4) * 4 + (column & 2) * 4", "(column & 4) * 2 + (column & 2) * 8")'
plant RDNA3 "activations read past the exchange of their pieces" activations.h \
    's.replace("swizzled(token, 16 * step + 8 * half)", "(16 * step + 8 * half)")'
plant NV "keys replaced while they are multiplied" attention_warpgroup.h \
    's.replace("        block_sync();\n        copy_keys<DIM>(keys", "        copy_keys<DIM>(keys")'
plant NV "columns of values looked for in the wrong tile" attention_warpgroup.h \
    's.replace("multiply_columns<DIM>(out, p[t], values, t, GROUP_KEYS)", "multiply_columns<DIM>(out, p[t], values, t, 32)")'
plant NV "the edge of a tile of keys not masked" attention_warpgroup.h 's.replace("if (edge)", "if (false)")'
plant "$both" "new key used before it is finished" attention_decode.h \
    's.replace("v_in[i] : 0.0f;\n    }\n    block_sync();", "v_in[i] : 0.0f;\n    }")'
plant "$both" "walkers merged before all have written" attention_decode.h \
    's.replace("out[e] = w.out[g][e] * shrink;\n    }\n    block_sync();", "out[e] = w.out[g][e] * shrink;\n    }")'
plant "$both" "largest scores read before all have written" attention_decode.h \
    's.replace("tops[g * WALKERS + mine] = w.most[g];\n    block_sync();", "tops[g * WALKERS + mine] = w.most[g];")'
plant "$both" "row of the new token taken by every walker of a warp" attention_decode.h \
    's.replace("lane_id() < LANES ? score[g] : NO_SCORE", "score[g]")'
plant "$both" "before-image taken after the append" heads.h \
    's.replace("        if (saved) saved[i] = row[i];\n        store_as(row + i, head[i]);", "        store_as(row + i, head[i]);\n        if (saved) saved[i] = row[i];")'
plant "$both" "counter of splits left as it is" attention_decode.h \
    's.replace("if (TID_X == 0) a.arrived[BID_Y] = 0;", "")'
plant "$both" "new row seen twice" attention_decode.h \
    's.replace("least(kind.rows - 1, lo", "least(kind.rows, lo")'
plant "$both" "ring that does not go round" attend.h \
    's.replace("slot < ring.slots ? slot : slot - ring.slots", "slot")'
plant "$both" "maximum of splits ignored" attention_decode.h \
    's.replace("scores[r].x = fast_exp2(scores[r].x - top);", "scores[r].x = 1.0f;")'
plant "$both" "splits beyond one round of loads forgotten" attention_decode.h \
    's.replace("if (first) parts = load_split_parts(p, width, first, splits);", "")'
plant "$both" "rows behind the first ones of a warp forgotten" attention_decode.h \
    's.replace("if (goes_on) load_rows<E, LANES, N>(rows.k, c.k, c, next, end);", "")'
plant NV "keys read before their copy has come" attention_cluster.h 's.replace("wait_tile<2 * TILES_AHEAD - 1>(spares);", "warp_sync();")'
plant NV "values read before their copy has come" attention_cluster.h \
    's.replace("wait_tile<2 * TILES_AHEAD - 2>(spares);\n        add_values", "warp_sync();\n        add_values")'
plant NV "new row of a cluster read where nothing is yet" attention_cluster.h 's.replace("if (has_new && new_row < row", "if (false && new_row < row")'
plant NV "what bf16 rounds away of queries forgotten" attention_cluster.h 's.replace("f2bf(value - bf2f(high_part))", "0")'
plant NV "warps added up before all have left their results" attention_cluster.h \
    's.replace("s.tops + warp * CLUSTER_HEADS);\n    block_sync();", "s.tops + warp * CLUSTER_HEADS);")'
plant NV "peers written to before they have begun" attention_cluster.h 's.replace("    cluster_wait(); // all", "    // all")'
plant NV "shares added up before all have come" attention_cluster.h 's.replace("    cluster_wait();\n    add_shares", "    add_shares")'
plant NV "rows behind the first tiles of a warp never copied" attention_cluster.h 's.replace("next < hi && !spares)", "false)")'
plant NV "spare tiles never read" attention_cluster.h 's.replace("spares ? spare : tiles", "tiles")'
plant NV "spare tiles taken for ones that have come" attention_cluster.h 's.replace("if (spares) wait_copies<BEHIND + 2>();", "if (spares) wait_copies<BEHIND + 4>();")'
plant NV "tiles behind spare ones forgotten" attention_cluster.h 's.replace("per_block <= HELD_ROWS + SPARE_TILES * T::ROWS", "true")'
plant NV "rows behind the last counted" attention_cluster.h 's.replace("2 * t + i % 2 < rows ?", "2 * t + i % 2 < 99 ?")'
plant NV "results of a cluster that do not shrink with the maximum" attention_cluster.h 's.replace("*= shrinks[e % 2];", "*= 1.0f;")'
plant NV "rows of values exchanged in pairs" attention_cluster.h 's.replace("upper ? (a >> 16) | (b & 0xffff0000u) : (a & 0xffffu) | (b << 16)", "upper ? (b >> 16) | (a & 0xffff0000u) : (b & 0xffffu) | (a << 16)")'
plant NV "weights of blocks ignored" attention_cluster.h 's.replace("sum += weights[j] *", "sum +=")'
plant NV "second pieces of many query heads forgotten" attention_cluster.h 's.replace("piece * CLUSTER_HEADS, heads", "0, heads")'
plant NV "queued weights read before their copy has come" weight_units.h 's.replace("wait_copies<N - 1>();", "wait_copies<N>();")'
plant NV "queues of two warps in one place" weight_units.h 's.replace("shared + warp_of_block() * (", "shared + 0 * (")'
plant NV "inputs staged over queued weights" weight_units.h 's.replace("return shared + BDIM_X / WARP * (", "return shared + 0 * (")'
plant NV "queued scales of other rows" weight_units.h 's.replace("queued_scale(q, slot, i), pairs + acc_row(VECTOR_ACC(i))", "queued_scale(q, slot, i), pairs + acc_row(VECTOR_ACC(i ^ 1))")'
plant NV "units behind the first never asked for" linear_vector.h 's.replace("if (d >= a.shares.first_units) { ask(queue, a.w, next, d, d < count);", "if (d >= a.shares.first_units) { ask(queue, a.w, next, d, false);")'
plant NV "a unit's place used again before it has been taken" linear_vector.h \
    's.replace("            const Unit<BITS>& unit = take(queue, d);\n            if (Queue::QUEUED) ask(queue, a.w, next, d, left > AHEAD);", "            if (Queue::QUEUED) ask(queue, a.w, next, d, left > AHEAD);\n            const Unit<BITS>& unit = take(queue, d);")'
plant "$both" "window one row too wide" attention_prefill.h 's.replace("i + a.oldest", "i + a.oldest - 1")'
plant "$both" "causal edge one row too far" attention_prefill.h 's.replace("i + a.newest + 1", "i + a.newest + 2")'
plant "$both" "low parts of inputs forgotten" parts.h \
    's.replace("256 * c.v[2 * i] + c.v[2 * i + 1]", "256 * c.v[2 * i]").replace("lane_id() & 1 ? c.v[i] :", "lane_id() & 1 ? 0 :")'
plant "$both" "inputs of one tile meet the codes of the next" linear_vector.h \
    's.replace("given_tile() == j ? mine", "given_tile() == (j ^ 1) ? mine")'
plant "$both" "sums of other tiles of the unit counted too" linear_vector.h \
    's.replace("given_tile() == j ? mine : s.zeros", "mine")'
plant "$both" "low parts without their sign" parts.h 's.replace("(x[j] + 128) >> 8", "x[j] >> 8")'
plant "$both" "factor of a norm forgotten" linear_vector.h 's.replace("row_total(parts) * factor", "row_total(parts)")'
plant "$both" "warps behind the first four forgotten in a row" linear_vector.h \
    's.replace("warp < p.warps; warp += AT_ONCE", "warp < least(p.warps, AT_ONCE); warp += AT_ONCE")'
plant "$both" "rows behind the first of a thread taken for the first" linear_vector.h \
    's.replace("i == TID_X ? parts_of_mine", "true ? parts_of_mine")'
plant "$both" "second piece of a row forgotten" row_input.h 's.replace("c.v[j] += rest.v[j];", ";")'
plant "$both" "bias in both pieces of a row" linear_vector.h 's.replace("a.w.bias && begins ?", "a.w.bias ?")'
plant "$both" "second piece left as it was where there is none" linear_vector.h \
    's.replace("if (a.y_rest && begins && ends) a.y_rest[row] = 0.0f;", "")'
plant "$both" "row tile that ends with a warp is not written" linear_vector.h \
    's.replace("if (at.unit == 0 || left == 1) leave_rows", "if (at.unit == 0) leave_rows")'
plant "$both" "second sum of a group of 64 forgotten" linear_vector.h 's.replace("(sums[0] + sums[1])", "sums[0]")'
plant "$both" "codes that straddle words lose their high bits" fragments.h \
    's.replace("if (shift + BITS > 32) value |=", "if (false) value |=")'
plant NV "two operand registers exchanged" fragments.h \
    's.replace("even.r[0] = a.x; even.r[1] = a.y;", "even.r[0] = a.y; even.r[1] = a.x;")'
plant RDNA3 "upper half of the wave does not repeat the lower" activations.h \
    's.replace("int token = lane_id() & 15;", "int token = lane_id() >> 1;", 1)'
plant "$both" "wrong row of an accumulator" fragments.h \
    's.replace("DEV int acc_row(int i) { return 2 * i + (lane_id() >> 4); }", "DEV int acc_row(int i) { return i + 8 * (lane_id() >> 4); }").replace("(lane_id() >> 2) + ((i >> 1) & 1) * 8", "(lane_id() >> 2) + (i & 1) * 8")'
plant "$both" "largest id among equals" linear_vector.h 's.replace("id < than.id", "id > than.id")'
plant "$both" "a norm without its eps" rows.h 's.replace("(float)a.width + a.eps", "(float)a.width")'
plant "$both" "rotation the other way round" heads.h 's.replace("a * angle.x - b * angle.y", "a * angle.x + b * angle.y")'
plant "$both" "shuffle that some lanes skip" linear_plain.h \
    's.replace("    sum = warp_sum(sum);", "    if (lane_id() < 24) sum = warp_sum(sum);")'
plant "$both" "barrier that some warps skip" linear_vector.h \
    's.replace("    block_sync();\n    Best best", "    if (TID_X < 32) block_sync();\n    Best best")'
plant NV "read beyond the end of the weights" linear_vector.h \
    's.replace("left > AHEAD);", "true);")' \
    "-fsanitize=address -DSIM_UCONTEXT"
plant NV "queued read beyond the end of the weights" linear_vector.h \
    's.replace("if (Queue::QUEUED) ask(queue, a.w, next, d, left > AHEAD);", "if (Queue::QUEUED) ask(queue, a.w, next, d, true);")' \
    "-fsanitize=address -DSIM_UCONTEXT"
plant NV "write beyond the last row" linear_matrix.h \
    's.replace("if (token < a.tokens && row < a.w.rows)", "if (row < a.w.rows)")' "-fsanitize=address -DSIM_UCONTEXT"
plant "$both" "codes of a stream that straddles words cut off" weights.h 's.replace("if (shift + bits > 32) code |=", "if (false) code |=")'
plant "$both" "codes put into the tile in the order of the file" arrange.h 's.replace("int eight = place / 8, pair = place % 4, odd = place % 8 / 4;", "int eight = place / 8, pair = place % 8 / 2, odd = place % 2;")'
plant "$both" "bf16 weights put into the tile as codes are" arrange.h 's.replace("a.bits == 16 ? i / 8 * 8 + i % 8 / 2 + i % 2 * 4 : i", "i")'
plant "$both" "rows counted from the start of the module, not of what was copied" arrange.h 's.replace("long before = row.row - m.first_row;", "long before = row.row;")'
plant "$both" "scales of other rows than the codes" arrange.h 's.replace("(row.row - m.first_row) * file_groups", "row.row * file_groups")'
plant "$both" "rows of nothing filled with the first row" arrange.h 's.replace("row.matrix < 0 || column >= a.columns", "column >= a.columns").replace("a.matrices[row.matrix];\n    long before", "a.matrices[row.matrix < 0 ? 0 : row.matrix];\n    long before")'
plant "$both" "columns beyond the last filled with the next row" arrange.h 's.replace("row.matrix < 0 || column >= a.columns", "row.matrix < 0")'
plant "$both" "groups beyond the last left as they were" arrange.h 's.replace("        if (some) pair = ((const", "        if (!some) return;\n        pair = ((const")'
plant "$both" "biases read as the scales are stored" arrange.h 's.replace("float_at(m.biases, m.bias_kind, at)", "float_at(m.biases, m.scale_kind, at)")'
plant "$both" "float32 weights cut off, not rounded" arrange.h 's.replace("f2bf(float_at(m.weights, m.weight_kind, before * a.columns + column))", "f2u(float_at(m.weights, m.weight_kind, before * a.columns + column)) >> 16")'
plant "$both" "a NaN rounded to a number" compat/kport.h 's.replace("if ((u & 0x7fffffffu) > 0x7f800000u)", "if (false)")'
plant "$both" "a draw among more than are kept" draw.h 's.replace("share_down(kept, a.uniform)", "share_down(wanted, a.uniform)")'
plant "$both" "a token too many kept" draw.h 's.replace("wanted - before + weight - 1", "wanted - before + weight")'
plant "$both" "tokens counted at the first distance that reaches the target" draw.h 's.replace("if (left < weights[j])", "if (left <= weights[j])")'
plant "$both" "the first of the ties drawn" draw.h 's.replace("rank - in_piece.before", "0")'
plant "$both" "ties of one thread only" draw.h 's.replace("a.state->ties[BID_X] = (u32)sums[BDIM_X - 1]", "a.state->ties[BID_X] = (u32)mine")'
plant "$both" "sums that the next draw finds" draw.h 's.replace("a.state->coarse[i] = 0", ";")'
plant "$both" "tokens that the next draw finds" draw.h 's.replace("a.state->fine[i] = 0", ";")'
plant "$both" "sums read before they are whole" draw.h 's.replace("        sums[TID_X] += more;\n        block_sync();", "        sums[TID_X] += more;")'
plant "$both" "the first bin's exponent for all" draw.h 's.replace("(u64)mantissas[i] << (28 - i * BIN_STEPS / OCTAVE_STEPS)", "(u64)mantissas[i] << 28")'
plant "$both" "a thread too many writes behind the tiles" arrange.h 's.replace("if (tile >= (long)a.row_tiles * a.column_tiles) return;", "")' "-fsanitize=address -DSIM_UCONTEXT"
wait
cat "$work"/*/result
# A bug whose test never came to an end would leave no line.
(($(cat "$work"/*/result | grep -c "^caught ") == planted))

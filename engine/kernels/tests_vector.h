// Part of tests.cpp: products with one row.

typedef void (*VectorKernel)(const VectorArgs);
VectorKernel vector_kernel(int bits) {
    switch (bits) {
    case 2: return vector_product_2;
    case 3: return vector_product_3;
    case 4: return vector_product_4;
    case 5: return vector_product_5;
    case 6: return vector_product_6;
    case 8: return vector_product_8;
    default: return vector_product_16;
    }
}

// Inputs as whole numbers in the unit of their tile (row_input.h).
void round_to_parts(std::vector<double>& x) {
    for (size_t tile = 0; tile < x.size(); tile += 64) {
        size_t end = std::min(x.size(), tile + 64);
        double top = 0;
        for (size_t i = tile; i < end; i++) top = std::max(top, std::fabs(x[i]));
        double unit = top > 0 ? std::exp2(std::floor(std::log2(top)) - 13) : 1;
        for (size_t i = tile; i < end; i++) x[i] = std::nearbyint(x[i] / unit) * unit;
    }
}

// Weights that are queued in shared memory give the same bits.
void compare_queued(const char* name, VectorKernel kernel, int most_first, VectorArgs a, int blocks, int threads, int order) {
    int results = a.output == OUT_GATED ? a.w.rows / 2 : a.w.rows;
    std::vector<float> y(a.w.rows, POISON), y_rest(a.w.rows, POISON);
    std::vector<Best> best(blocks);
    const VectorArgs held = a;
    a.y = y.data();
    if (held.y_rest) a.y_rest = y_rest.data();
    if (held.best) a.best = best.data();
    a.shares.first_units = order % (most_first + 1);
    run(name, blocks, 1, threads, order, [&] { kernel(a); });
    for (int i = 0; i < results; i++) {
        expect("queued row", y[i], held.y[i], 0, i);
        if (held.y_rest) expect("queued rest of a row", y_rest[i], held.y_rest[i], 0, i);
    }
    for (int i = 0; i < blocks && a.output == OUT_BEST; i++) expect("best of a queued block", best[i].id, held.best[i].id, 0, i);
}

// The same cut that the host makes.
UnitShares shares_of(const TileMatrix& w, int blocks, int warps, bool pieces) {
    int tiles = w.bits == 16 ? 1 : UNIT_TILES, units = (w.column_tiles + tiles - 1) / tiles;
    int steps = pieces ? w.row_tiles * units : w.row_tiles, step = pieces ? 1 : units;
    int most_units = (steps + blocks - 1) / blocks * step, warp_units = (most_units + warps - 1) / warps;
    return UnitShares{{units, 1.0f / units}, {warp_units, 1.0f / warp_units}, step, steps / blocks, steps % blocks, 0};
}

enum Pieces { WHOLE, IN_PIECES };
void test_vector(int bits, int group, int scale_kind, int rows, int columns, int output, bool norm, bool c, bool c_norm, int threads, int order, Pieces pieces = WHOLE) {
    Weights w = make_weights(rows, columns, bits, group, scale_kind, output != OUT_BEST);
    auto x = floats(columns), add = floats(columns), rest = floats(columns), weight = floats(columns), add_weight = floats(columns);
    std::vector<float> x_out(columns, POISON), y(rows, POISON), y_rest(rows, POISON);
    const int blocks = 3;
    std::vector<Best> best(blocks);
    VectorArgs a = {};
    a.w = w.tiles();
    a.in.x = x.data();
    a.in.eps = 1e-3f; a.in.c_eps = 2e-3f; a.in.one_over_columns = 1.0f / columns;
    if (norm) a.in.norm = weight.data();
    if (c) { a.in.c = add.data(); a.in.x_out = x_out.data(); }
    if (c_norm) a.in.c_norm = add_weight.data();
    if (pieces == IN_PIECES) {
        a.y_rest = y_rest.data();
        if (c) a.in.c_rest = rest.data();
    }
    a.y = y.data();
    a.best = best.data();
    a.output = output;
    a.gate = rows % 3 ? GATE_SILU : GATE_GELU_TANH;
    a.shares = shares_of(a.w, blocks, threads / 32, pieces == IN_PIECES);
    a.shares.first_units = order % 3;
    run("vector_product", blocks, 1, threads, order, [&] { vector_kernel(bits)(a); });
#if defined(KPORT_NV)
    if (bits == 4 && is_usual(a.w) && a.w.column_tiles % UNIT_TILES == 0) {
        compare_queued("queued_product", queued_product_4, 3, a, blocks, threads, order);
        compare_queued("queued_beside", queued_beside_4, 2, a, blocks, threads, order);
    }
#endif
    for (int i = 0; i < columns && a.in.c_rest; i++) add[i] += rest[i];
    for (int i = 0; i < rows && pieces == IN_PIECES; i++) y[i] += y_rest[i];

    std::vector<double> in(x.begin(), x.end());
    if (c) {
        double squares = 0;
        for (float v : add) squares += (double)v * v;
        double f = 1 / std::sqrt(squares / columns + a.in.c_eps);
        for (int i = 0; i < columns; i++) {
            in[i] += c_norm ? add[i] * f * add_weight[i] : add[i];
            expect("updated row", x_out[i], in[i], 1e-5, i);
        }
    }
    // The row is rounded before its norm's factor is known.
    double factor = 1;
    if (norm) {
        double squares = 0;
        for (double v : in) squares += v * v;
        factor = 1 / std::sqrt(squares / columns + a.in.eps);
        for (int i = 0; i < columns; i++) in[i] *= weight[i];
    }
    if (bits == 16) for (auto& v : in) v = rounded(v);
    else round_to_parts(in);
    for (auto& v : in) v *= factor;
    // An input at the edge of two numbers may be rounded to the other one.
    double tolerance = !norm ? 2e-5 : bits == 16 ? 4e-3 : 1e-3;
    if (output == OUT_GATED) {
        for (int i = 0; i < rows / 2; i++) {
            int tile = i / 8 * 16 + i % 8;
            expect("gated row", y[i], act(a.gate, dot(w, tile, in.data())) * dot(w, tile + 8, in.data()), tolerance * 4, i);
        }
        return;
    }
    Best largest = {-1e30f, 0};
    for (int i = 0; i < rows; i++) {
        expect("row", y[i], dot(w, i, in.data()), tolerance, i);
        if (y[i] > largest.value) largest = Best{y[i], (u32)i};
    }
    if (output != OUT_BEST) return;
    std::vector<u32> tokens(4, 99), host(4, 99);
    PickArgs p = {};
    p.best = best.data(); p.tokens = tokens.data(); p.host_tokens = host.data();
    p.count = blocks; p.slot = 2;
    run("pick", 1, 1, 64, order, [&] { pick(p); });
    expect("picked", tokens[2], largest.id, 0, 2);
    expect("picked for the host", host[2], largest.id, 0, 2);
    BlockBestArgs b = {};
    b.logits = y.data(); b.best = best.data(); b.count = rows;
    run("block_best", blocks, 1, 64, order, [&] { block_best(b); });
    run("pick", 1, 1, 64, order, [&] { pick(p); });
    expect("picked from logits", tokens[2], largest.id, 0, 2);
}

// Tiles of nothing and of next to nothing give nothing, whatever lies beside them.
void test_small_inputs(int order) {
    Weights w = make_weights(16, 256, 4, 64, SCALE_BF16, false);
    std::vector<float> x(256, 0.0f), y(16, POISON);
    for (int i = 64; i < 128; i++) x[i] = 1e-38f * uniform();
    for (int i = 128; i < 192; i++) x[i] = 3e30f * uniform();
    VectorArgs a = {};
    a.w = w.tiles(); a.in.x = x.data(); a.y = y.data(); a.output = OUT_STORE; a.shares = shares_of(a.w, 1, 2, false);
    run("vector_product", 1, 1, 64, order, [&] { vector_product_4(a); });
    std::vector<double> in(x.begin(), x.end());
    round_to_parts(in);
    for (int i = 0; i < 16; i++) expect("row of tiles of all sizes", y[i], dot(w, i, in.data()), 1e-5, i);
}

void test_shares() {
    for (int total : {0, 1, 7, 48, 49})
        for (int parts : {1, 3, 12, 50}) {
            int next = 0;
            for (int i = 0; i < parts; i++) {
                Share s = share_of(total / parts, total % parts, 5, i);
                expect("share begins where the last one ended", s.first, next, 0, i);
                next = s.end;
            }
            expect("all is shared out", next, 5 * total, 0, parts);
        }
    for (int by : {1, 3, 7, 40, 2049})
        for (int x : {0, 1, 6, 7, 8, 39, 40, 41, 163879, 163880, 2097151, 16777215})
            for (int off : {-1, 0, 1}) {
                // A reciprocal that is a bit off.
                Divisor divisor = {by, 1.0f / by * (1.0f + off * 6e-8f)};
                expect("quotient", divide(x, divisor).whole, x / by, 0, x);
                expect("remainder", divide(x, divisor).rest, x % by, 0, x);
            }
}

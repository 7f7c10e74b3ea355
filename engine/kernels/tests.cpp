// Each kernel on fibers against float64 in plain loops, in several schedules. Built once a layout:
//   c++ -std=c++17 -O1 -DKPORT_LAYOUT_NV tests.cpp && ./a.out
// Exits with 1 and says what is wrong at the first difference.
#define KPORT_CPU 1
#include "kernels.cu"
#include "sim_switch.h"

namespace {

std::mt19937 random_bits(1);
float uniform() { return std::uniform_real_distribution<float>(-1, 1)(random_bits); }
std::vector<float> floats(size_t n) {
    std::vector<float> v(n);
    for (auto& x : v) x = uniform();
    return v;
}
const float POISON = 12345.0f; // of results that a kernel must write

[[noreturn]] void fail(const char* what, double got, double wanted, int at) {
    printf("FAILED %s: element %d: got %.6g, expected %.6g\n", what, at, got, wanted);
    exit(1);
}
void expect(const char* what, double got, double wanted, double tolerance, int at) {
    if (!(std::fabs(got - wanted) <= tolerance * (1 + std::fabs(wanted)))) fail(what, got, wanted, at);
}
template <class F> void run(const char* what, int gx, int gy, int threads, int order, F body, int cluster = 1) {
    if (!sim::launch(gx, gy, threads, order, body, cluster) || sim::fault) {
        printf("FAILED %s: %s\n", what, sim::fault);
        exit(1);
    }
}
double rounded(double v) { return bf2f(f2bf((float)v)); }

// ---- weights, packed from the layouts that the manuals give ---------------------------------------

struct Weights {
    int rows, columns, bits, group, scale_kind;
    std::vector<u32> codes;
    std::vector<unsigned char> scales;
    std::vector<float> bias;
    std::vector<double> value; // [row][column]
    TileMatrix tiles() const {
        TileMatrix w = {};
        w.codes = codes.data();
        w.scales = scales.data();
        w.bias = bias.empty() ? nullptr : bias.data();
        w.rows = rows; w.columns = columns;
        w.row_tiles = (rows + 15) / 16; w.column_tiles = (columns + 63) / 64;
        w.bits = bits; w.group = group; w.scale_kind = scale_kind;
        return w;
    }
};

u32 to_half(float f) { // of small exact values only
    u32 u = f2u(f);
    if ((u & 0x7fffffff) == 0) return 0;
    return ((u >> 16) & 0x8000) | (((int)((u >> 23) & 255) - 112) << 10) | ((u >> 13) & 1023);
}

// Row and column in a tile of code `place` of lane `lane`.
void place_of(int lane, int place, int& row, int& column) {
    int eight = place / 8, reg = place % 4, half = place % 8 / 4;
#if defined(KPORT_RDNA3)
    row = lane;
    column = eight * 8 + reg * 2 + half;
#else
    row = lane / 4 + 8 * (reg & 1);
    column = 32 * (eight / 2) + 8 * (lane % 4) + 4 * (eight % 2) + 2 * (reg >> 1) + half;
#endif
}

Weights make_weights(int rows, int columns, int bits, int group, int scale_kind, bool bias) {
    Weights w{rows, columns, bits, group, scale_kind, {}, {}, {}, {}};
    int row_tiles = (rows + 15) / 16, column_tiles = (columns + 63) / 64, padded = column_tiles * 64;
    std::vector<u32> q((size_t)row_tiles * 16 * padded, 0);
    w.value.assign((size_t)rows * columns, 0);
    int groups = padded / group, element = scale_kind == SCALE_F32 ? 4 : 2;
    w.scales.assign(bits == 16 ? 16 : (size_t)row_tiles * groups * 32 * element, 0);
    auto put = [&](int row, int g, int which, float v) {
        size_t at = (((size_t)(row / 16) * groups + g) * 16 + row % 16) * 2 + which;
        u32 half = scale_kind == SCALE_F16 ? to_half(v) : f2u(v) >> 16;
        if (element == 4) memcpy(&w.scales[at * 4], &v, 4);
        else memcpy(&w.scales[at * 2], &half, 2);
    };
    for (int r = 0; r < rows; r++) {
        float scale = 0, offset = 0;
        for (int c = 0; c < columns; c++) {
            if (bits == 16) {
                bf16_t b = f2bf(uniform());
                q[(size_t)r * padded + c] = b;
                w.value[(size_t)r * columns + c] = bf2f(b);
                continue;
            }
            if (c % group == 0) {
                // Few significant bits, so that every way to store them is exact.
                scale = std::round(uniform() * 100) / 64 / (1 << bits) + 1.0f / 1024;
                scale = scale_kind == SCALE_F32 ? scale * 1.0001f : bf2f(f2bf(scale));
                offset = bf2f(f2bf(std::round(uniform() * 64) / 32));
                put(r, c / group, 0, scale);
                put(r, c / group, 1, offset);
            }
            u32 code = random_bits() & ((1u << bits) - 1);
            q[(size_t)r * padded + c] = code;
            w.value[(size_t)r * columns + c] = (double)scale * code + offset;
        }
    }
    w.codes.assign((size_t)row_tiles * column_tiles * TILE_WORDS(bits), 0);
    for (int rt = 0; rt < row_tiles; rt++)
        for (int ct = 0; ct < column_tiles; ct++)
            for (int lane = 0; lane < 1024 / LANE_CODES; lane++)
                for (int place = 0; place < LANE_CODES; place++) {
                    int row, column;
                    place_of(lane, place, row, column);
                    u32 code = q[(size_t)(rt * 16 + row) * padded + ct * 64 + column];
                    u32* words = &w.codes[((size_t)rt * column_tiles + ct) * TILE_WORDS(bits) + lane * LANE_WORDS(bits)];
                    if (bits == 16) words[place / 8 * 4 + place % 4] |= code << (place % 8 < 4 ? 0 : 16);
                    else
                        for (int b = 0; b < bits; b++)
                            if (code >> b & 1) words[(place * bits + b) / 32] |= 1u << (place * bits + b) % 32;
                }
    if (bias) {
        w.bias = floats(row_tiles * 16);
    }
    return w;
}

double dot(const Weights& w, int row, const double* x) {
    double sum = w.bias.empty() ? 0 : w.bias[row];
    for (int c = 0; c < w.columns; c++) sum += w.value[(size_t)row * w.columns + c] * x[c];
    return sum;
}

double act(int gate, double g) {
    if (gate == GATE_SILU) return g / (1 + std::exp(-g));
    return 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
}

#include "tests_vector.h"

void test_ties() {
    std::vector<float> logits(300, -1.0f);
    logits[250] = logits[70] = logits[131] = 2.0f;
    std::vector<Best> best(3);
    u32 token[1], host[1];
    BlockBestArgs b = {};
    b.logits = logits.data(); b.best = best.data(); b.count = 300;
    run("block_best", 3, 1, 64, 0, [&] { block_best(b); });
    PickArgs p = {};
    p.best = best.data(); p.tokens = token; p.host_tokens = host; p.count = 3;
    run("pick", 1, 1, 64, 0, [&] { pick(p); });
    expect("smallest id among equals", token[0], 70, 0, 0);
}

// ---- products with many rows ----------------------------------------------------------------------

typedef void (*MatrixKernel)(const MatrixArgs);
MatrixKernel matrix_kernel(int bits) {
    switch (bits) {
    case 2: return matrix_product_2;
    case 3: return matrix_product_3;
    case 4: return matrix_product_4;
    case 5: return matrix_product_5;
    case 6: return matrix_product_6;
    case 8: return matrix_product_8;
    default: return matrix_product_16;
    }
}

// A kernel, and the row tiles and tokens of its blocks.
struct MatrixLaunch { MatrixKernel kernel; int row_tiles, tokens; };
MatrixLaunch block_launch(int bits) { return {matrix_kernel(bits), BLOCK_ROW_TILES, BLOCK_TOKENS}; }

void test_matrix(const MatrixLaunch& launch, int bits, int group, int rows, int columns, int tokens, bool gate, int order) {
    Weights w = make_weights(rows, columns, bits, group, SCALE_BF16, true);
    int padded = (columns + 63) / 64 * 64, y_stride = rows + 3, outputs = gate ? rows / 2 : rows;
    std::vector<bf16_t> x((size_t)tokens * padded, 0);
    for (int t = 0; t < tokens; t++)
        for (int c = 0; c < columns; c++) x[input_index(t, c, tokens)] = f2bf(uniform());
    std::vector<float> y((size_t)tokens * y_stride, POISON);
    std::vector<bf16_t> gated_y((size_t)tokens * ((outputs + 63) / 64 * 64), f2bf(POISON));
    MatrixArgs a = {};
    a.w = w.tiles();
    a.x = x.data();
    a.y = gate ? (void*)gated_y.data() : y.data();
    a.tokens = tokens; a.y_stride = y_stride; a.gated = gate; a.gate = GATE_GELU_TANH;
    int gx = (a.w.row_tiles + launch.row_tiles - 1) / launch.row_tiles, gy = (tokens + launch.tokens - 1) / launch.tokens;
    run("product", gx, gy, 256, order, [&] { launch.kernel(a); });
    for (auto& v : w.value) v = rounded(v); // weights become bf16 operands
    std::vector<double> in(columns);
    for (int t = 0; t < tokens; t++) {
        for (int c = 0; c < columns; c++) in[c] = bf2f(x[input_index(t, c, tokens)]);
        for (int r = 0; r < outputs; r++) {
            int tile = gate ? r / 8 * 16 + r % 8 : r;
            double wanted = dot(w, tile, in.data());
            if (gate) expect("gated element", bf2f(gated_y[input_index(t, r, tokens)]), act(GATE_GELU_TANH, wanted) * dot(w, tile + 8, in.data()), 0.03, r);
            else expect("element", y[(size_t)t * y_stride + r], wanted, 0.01, r);
        }
        if (!gate && y[(size_t)t * y_stride + rows] != POISON) fail("beyond the last row", y[(size_t)t * y_stride + rows], POISON, t);
    }
}

// ---- between products -----------------------------------------------------------------------------

void test_fold_norm(int width, bool c, bool c_norm, int order) {
    const int rows = 2, stride = (width + 63) / 64 * 64;
    auto x = floats(rows * width), add = floats(rows * width), weight = floats(width), add_weight = floats(width);
    auto before = x;
    std::vector<bf16_t> out(rows * stride, f2bf(POISON));
    std::vector<float> exact(rows * width, POISON);
    FoldNormArgs a = {};
    a.x = x.data(); a.c = c ? add.data() : nullptr; a.c_norm = c_norm ? add_weight.data() : nullptr;
    a.norm = weight.data(); a.out = out.data(); a.c_eps = 1e-3f; a.eps = 2e-3f; a.width = width; a.stride = stride;
    run("fold_norm", rows, 1, 64, order, [&] { fold_norm_bf16(a); });
    FoldNormArgs b = a;
    b.c = nullptr; b.out = exact.data(); b.stride = width;
    run("fold_norm", rows, 1, 64, order, [&] { fold_norm_f32(b); });
    for (int r = 0; r < rows; r++) {
        double c_squares = 0, squares = 0;
        std::vector<double> row(width);
        for (int i = 0; i < width; i++) c_squares += (double)add[r * width + i] * add[r * width + i];
        double f = 1 / std::sqrt(c_squares / width + a.c_eps);
        for (int i = 0; i < width; i++) {
            row[i] = before[r * width + i] + (c ? add[r * width + i] * (c_norm ? f * add_weight[i] : 1) : 0);
            squares += row[i] * row[i];
            expect("residual", x[r * width + i], row[i], 1e-5, i);
        }
        f = 1 / std::sqrt(squares / width + a.eps);
        for (int i = 0; i < stride; i++) {
            double wanted = i < width ? row[i] * f * weight[i] : 0;
            expect("normed bf16", bf2f(out[input_index(r, i, rows)]), wanted, 5e-3, i);
            if (i < width) expect("normed", exact[r * width + i], wanted, 1e-5, i);
        }
    }
}

std::vector<float> angle_table(int positions, int half) {
    std::vector<float> t(positions * half * 2);
    for (int p = 0; p < positions; p++)
        for (int i = 0; i < half; i++) {
            double angle = p * std::pow(100.0, -(double)i / half);
            t[(p * half + i) * 2] = (float)std::cos(angle);
            t[(p * half + i) * 2 + 1] = (float)std::sin(angle);
        }
    return t;
}

std::vector<double> finished(const float* head, const float* norm, float eps, const std::vector<float>& angles, int position, int dim) {
    std::vector<double> v(head, head + dim), out(dim);
    if (norm) {
        double squares = 0;
        for (double x : v) squares += x * x;
        double f = 1 / std::sqrt(squares / dim + eps);
        for (int i = 0; i < dim; i++) v[i] *= f * norm[i];
    }
    for (int i = 0; i < dim / 2; i++) {
        double c = angles[(position * dim / 2 + i) * 2], s = angles[(position * dim / 2 + i) * 2 + 1];
        out[i] = v[i] * c - v[i + dim / 2] * s;
        out[i + dim / 2] = v[i + dim / 2] * c + v[i] * s;
    }
    return out;
}

// softmax(scale q kᵀ) v over the given rows.
std::vector<double> attended(const std::vector<double>& q, const std::vector<std::vector<double>>& k, const std::vector<std::vector<double>>& v, double scale) {
    std::vector<double> score(k.size()), out(q.size(), 0.0);
    double top = -1e300, sum = 0;
    for (size_t r = 0; r < k.size(); r++) {
        score[r] = 0;
        for (size_t d = 0; d < q.size(); d++) score[r] += q[d] * k[r][d];
        score[r] *= scale;
        top = std::max(top, score[r]);
    }
    for (auto& s : score) sum += s = std::exp(s - top);
    for (size_t r = 0; r < k.size(); r++)
        for (size_t d = 0; d < q.size(); d++) out[d] += score[r] / sum * v[r][d];
    return out;
}

std::vector<double> stored(const bf16_t* p, int n) {
    std::vector<double> v(n);
    for (int i = 0; i < n; i++) v[i] = bf2f(p[i]);
    return v;
}

const float LOG2_E = 1.44269504f;

#if defined(KPORT_CLUSTERS)
const int test_cluster_warps = CLUSTER_WARPS;
#else
const int test_cluster_warps = 0;
#endif

// `cluster` blocks have the rows of a kv head, of the kernel for clusters, whose weights are bf16; 0: of the other one.
void test_decode_attention(void (*kernel)(const DecodeAttentionArgs), int group_heads, int dim, int heads, int kv_heads, int rows, int ring_slots, int oldest_slot, int splits, int least_rows, int save_entry, bool norm, int order, int cluster = 0, double scale = 0.3) {
    const int slots = most(40, ring_slots), slot = (oldest_slot + rows - 1) % ring_slots, position = 9, threads = 32 * (cluster ? test_cluster_warps : ATTENTION_WARPS);
    int width = kv_heads * dim, pieces = (heads / kv_heads + group_heads - 1) / group_heads;
    auto qkv = floats((heads + 2 * kv_heads) * dim), q_norm = floats(dim), k_norm = floats(dim);
    auto angles = angle_table(16, dim / 2);
    std::vector<bf16_t> k(slots * width), v(slots * width), saved_k(3 * width, 0), saved_v(3 * width, 0);
    for (auto& x : k) x = f2bf(uniform());
    for (auto& x : v) x = f2bf(uniform());
    auto k_before = k, v_before = v;
    LayerCache cache = {k.data(), v.data(), saved_k.data(), saved_v.data()};
    StepState state = {};
    state.layers = &cache;
    state.ropes[1] = angles.data();
    state.kinds[1] = KindState{slot, rows, ring_slots, oldest_slot, save_entry, 0};
    state.position = position;
    std::vector<float> out(heads * dim, POISON), partials((size_t)heads * splits * (dim + 2), POISON);
    std::vector<u32> arrived(kv_heads * pieces, 0);
    DecodeAttentionArgs a = {};
    a.state = &state; a.qkv = qkv.data(); a.out = out.data(); a.partials = partials.data(); a.arrived = arrived.data();
    a.q_norm = norm ? q_norm.data() : nullptr; a.k_norm = norm ? k_norm.data() : nullptr;
    a.q_eps = 1e-3f; a.k_eps = 2e-3f; a.scale = (float)scale * LOG2_E;
    a.kind = 1; a.rope = 1; a.heads = heads; a.kv_heads = kv_heads; a.head_dim = dim; a.least_rows = least_rows;
    if (cluster) run("cluster_attention", cluster, kv_heads * pieces, threads, order, [&] { kernel(a); }, cluster);
    else run("decode_attention", splits, kv_heads * pieces, threads, order, [&] { kernel(a); });
    for (u32 count : arrived) expect("counter", count, 0, 0, 0);
    for (int h = 0; h < kv_heads; h++) {
        auto new_k = finished(&qkv[(heads + h) * dim], a.k_norm, a.k_eps, angles, position, dim);
        for (int d = 0; d < dim; d++) {
            int at = slot * width + h * dim + d;
            expect("appended key", bf2f(k[at]), rounded(new_k[d]), 5e-3, d);
            expect("appended value", bf2f(v[at]), rounded(qkv[(heads + kv_heads + h) * dim + d]), 0, d);
            if (save_entry >= 0) {
                expect("kept key", saved_k[save_entry * width + h * dim + d], k_before[at], 0, d);
                expect("kept value", saved_v[save_entry * width + h * dim + d], v_before[at], 0, d);
            }
        }
        std::vector<std::vector<double>> keys, values;
        for (int r = 0; r < rows; r++) {
            int at = (oldest_slot + r) % ring_slots * width + h * dim;
            keys.push_back(stored(&k[at], dim));
            values.push_back(stored(&v[at], dim));
        }
        for (int g = 0; g < heads / kv_heads; g++) {
            int head = h * (heads / kv_heads) + g;
            auto q = finished(&qkv[head * dim], a.q_norm, a.q_eps, angles, position, dim);
            auto wanted = attended(q, keys, values, scale);
            for (int d = 0; d < dim; d++) expect("attention", out[head * dim + d], wanted[d], cluster ? 2e-3 : 1e-4, d);
        }
    }
    for (int r = 0; r < slots; r++)
        for (int i = 0; i < width; i++)
            if (r != slot) expect("other rows", k[r * width + i] + v[r * width + i], k_before[r * width + i] + v_before[r * width + i], 0, r);
    for (int i = 0; i < 3 * width; i++)
        if (i / width != save_entry) expect("other saved rows", saved_k[i] + saved_v[i], 0, 0, i);
}

template <class T> double as_double(T v) { return sizeof(T) == 2 ? bf2f((u32)v) : (double)v; }

template <class T>
void test_prefill_attention(void (*finish)(const FinishRowsArgs), void (*kernel)(const PrefillAttentionArgs), int group_heads, int dim, int heads, int kv_heads, int tokens, int window, bool norm, int order) {
    // 5 old rows lie in front; a query sees `window` rows with its own.
    const int old_rows = 5, rows = old_rows + tokens, first_token = 1;
    int width = kv_heads * dim, row = (heads + 2 * kv_heads) * dim, pieces = (heads / kv_heads + group_heads - 1) / group_heads;
    auto qkv = floats(tokens * row), q_norm = floats(dim), k_norm = floats(dim);
    auto before = qkv;
    auto angles = angle_table(rows + 3, dim / 2);
    std::vector<T> k(rows * width), v(rows * width), saved(width, 0), saved_v(width, 0);
    for (auto* c : {&k, &v}) for (auto& x : *c) store_as(&x, uniform());
    auto k_before = k;
    FinishRowsArgs f = {};
    f.qkv = qkv.data(); f.rope = angles.data(); f.q_norm = norm ? q_norm.data() : nullptr; f.k_norm = norm ? k_norm.data() : nullptr;
    f.cache = LayerCache{k.data(), v.data(), saved.data(), saved_v.data()};
    f.q_eps = 1e-3f; f.k_eps = 2e-3f; f.tokens = tokens; f.first_position = 3; f.first_slot = old_rows;
    f.save_entry = tokens == 1 ? 0 : -1; f.heads = heads; f.kv_heads = kv_heads; f.head_dim = dim;
    run("finish_rows", (tokens * (heads + 2 * kv_heads) + 1) / 2, 1, 64, order, [&] { finish(f); });
    double tight = sizeof(T) == 2 ? 5e-3 : 1e-5;
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < heads + 2 * kv_heads; h++) {
            const float* head = &before[t * row + h * dim];
            bool value = h >= heads + kv_heads;
            auto wanted = value ? std::vector<double>(head, head + dim) : finished(head, h < heads ? f.q_norm : f.k_norm, h < heads ? f.q_eps : f.k_eps, angles, 3 + t, dim);
            for (int d = 0; d < dim; d++) {
                if (h < heads) expect("finished query", qkv[t * row + h * dim + d], wanted[d], 1e-5, d);
                else {
                    auto& c = value ? v : k;
                    int kv = h - heads - (value ? kv_heads : 0);
                    expect("appended row", as_double(c[(old_rows + t) * width + kv * dim + d]), wanted[d], tight, d);
                }
            }
        }
    if (tokens == 1)
        for (int i = 0; i < width; i++) expect("kept row", as_double(saved[i]), as_double(k_before[old_rows * width + i]), 0, i);
    if (tokens <= first_token) return;
    int stride = (heads * dim + 63) / 64 * 64;
    std::vector<T> out((tokens - first_token) * stride, 0);
    PrefillAttentionArgs a = {};
    a.qkv = qkv.data(); a.cache = f.cache; a.out = out.data(); a.scale = 0.3f * LOG2_E;
    a.tokens = tokens - first_token; a.first_token = first_token; a.out_stride = stride; a.rows = rows; a.ring_slots = rows;
    a.newest = old_rows; a.oldest = window ? old_rows + 1 - window : -1000;
    a.heads = heads; a.kv_heads = kv_heads; a.head_dim = dim;
    bool tiles = group_heads == 1;
    if (tiles) run("tile_attention", (a.tokens + TILE_QUERIES - 1) / TILE_QUERIES, heads, 128, order, [&] { kernel(a); });
    else run("prefill_attention", (a.tokens + 1) / 2, kv_heads * pieces, 64, order, [&] { kernel(a); });
    // There queries and probabilities are rounded to bf16, too.
    if (tiles) tight = 0.02;
    for (int t = first_token; t < tokens; t++)
        for (int h = 0; h < heads; h++) {
            int kv = h / (heads / kv_heads);
            std::vector<std::vector<double>> keys, values;
            for (int r = window ? std::max(0, old_rows + t + 1 - window) : 0; r <= old_rows + t; r++) {
                std::vector<double> key(dim), value(dim);
                for (int d = 0; d < dim; d++) { key[d] = as_double(k[r * width + kv * dim + d]); value[d] = as_double(v[r * width + kv * dim + d]); }
                keys.push_back(key);
                values.push_back(value);
            }
            std::vector<double> q(&qkv[t * row + h * dim], &qkv[t * row + h * dim] + dim);
            auto wanted = attended(q, keys, values, 0.3);
            for (int d = 0; d < dim; d++) expect("prefill attention", as_double(*input_at(out.data(), t - first_token, h * dim + d, a.tokens, stride)), wanted[d], tight, d);
        }
}

void test_embed(int bits, int order) {
    Weights w = make_weights(40, 96, bits, 32, SCALE_F16, false);
    u32 token = 37;
    std::vector<float> x(96, POISON);
    StepState device_state = {};
    BeginArgs a = {};
    a.state.position = 77; a.device_state = &device_state; a.token = &token; a.table = w.tiles(); a.x = x.data(); a.scale = 3;
    run("begin_step", 2, 1, 64, order, [&] { begin_step(a); });
    for (int i = 0; i < 96; i++) expect("embedding", x[i], 3 * w.value[37 * 96 + i], 1e-5, i);
    expect("state", device_state.position, 77, 0, 0);
    std::vector<u32> tokens = {5, 39};
    std::vector<float> rows(2 * 96, POISON);
    EmbedRowsArgs e = {};
    e.tiles = w.tiles(); e.tokens = tokens.data(); e.x = rows.data(); e.scale = 2; e.hidden = 96;
    run("embed_rows", 2, 1, 64, order, [&] { embed_rows(e); });
    for (int i = 0; i < 192; i++) expect("embedding rows", rows[i], 2 * w.value[tokens[i / 96] * 96 + i % 96], 1e-5, i);
}

void test_plain(int order) {
    const int rows = 5, columns = 64, tokens = 3;
    for (int bits : {0, 3, 4}) {
        std::vector<u32> codes(rows * columns * 4 / 32 + 1);
        for (auto& c : codes) c = random_bits();
        auto scales = floats(rows * columns), biases = floats(rows * 2), x = floats(tokens * columns), bias = floats(rows);
        std::vector<float> y(tokens * rows, POISON);
        PlainMatrixArgs a = {};
        a.w = PlainMatrix{bits ? codes.data() : nullptr, scales.data(), biases.data(), bias.data(), rows, columns, bits, 32};
        a.x = x.data(); a.y = y.data(); a.tokens = tokens; a.stride = columns; a.y_stride = rows;
        run("plain_product", 3, tokens, 64, order, [&] { plain_product(a); });
        for (int t = 0; t < tokens; t++)
            for (int r = 0; r < rows; r++) {
                double sum = bias[r];
                for (int c = 0; c < columns; c++) {
                    double weight = scales[r * columns + c];
                    if (bits) {
                        u32 code = 0;
                        for (int b = 0; b < bits; b++) {
                            int bit = c * bits + b;
                            code |= (codes[r * columns * bits / 32 + bit / 32] >> bit % 32 & 1) << b;
                        }
                        weight = (double)scales[r * 2 + c / 32] * code + biases[r * 2 + c / 32];
                    }
                    sum += weight * x[t * columns + c];
                }
                expect("plain product", y[t * rows + r], sum, 1e-5, r);
            }
    }
}

// What is no number stays none, whatever its bits are, and the largest numbers round to infinity.
void test_rounding() {
    for (u32 bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff800001u, 0x7fc00000u}) {
        if (!std::isnan(bf2f(f2bf(u2f(bits))))) fail("rounded NaN", bf2f(f2bf(u2f(bits))), NAN, (int)bits);
    }
    expect("rounded infinity", f2bf(u2f(0x7f800000u)), 0x7f80, 0, 0);
    expect("rounded largest", f2bf(u2f(0x7f7fffffu)), 0x7f80, 0, 0);
    expect("rounded to even", f2bf(u2f(0x3f808000u)), 0x3f80, 0, 0);
    expect("rounded up to even", f2bf(u2f(0x3f818000u)), 0x3f82, 0, 0);
}

#include "tests_arrange.h"
#include "tests_draw.h"

void all(int order) {
    for (int bits : {2, 3, 4, 5, 6, 8, 16}) {
        test_vector(bits, 64, SCALE_BF16, 70, 192, OUT_STORE, false, false, false, 64, order);
        test_matrix(block_launch(bits), bits, 64, 40, 128, 20, false, order);
        if (bits != 16) test_embed(bits, order);
    }
    test_vector(4, 32, SCALE_F16, 48, 96, OUT_STORE, true, true, true, 96, order);
    test_vector(4, 128, SCALE_F32, 48, 384, OUT_BEST, true, true, false, 64, order);
    test_vector(4, 64, SCALE_BF16, 48, 640, OUT_BEST, true, true, true, 640, order);
    test_vector(4, 64, SCALE_BF16, 48, 640, OUT_GATED, true, false, false, 128, order);
    test_vector(8, 32, SCALE_BF16, 64, 128, OUT_GATED, true, true, true, 64, order);
    test_vector(4, 64, SCALE_BF16, 35, 1216, OUT_STORE, true, true, true, 64, order);
    test_vector(4, 64, SCALE_BF16, 35, 1344, OUT_STORE, false, false, false, 64, order);
    test_vector(4, 64, SCALE_BF16, 70, 640, OUT_STORE, false, false, false, 64, order, IN_PIECES);
    test_vector(4, 64, SCALE_BF16, 67, 1024, OUT_STORE, true, true, true, 96, order, IN_PIECES);
    test_vector(16, 64, SCALE_BF16, 50, 320, OUT_STORE, true, true, true, 64, order, IN_PIECES);
    // Of weights that are queued: more units a warp than are on their way, and fewer; groups of two tiles.
    test_vector(4, 64, SCALE_BF16, 80, 1280, OUT_STORE, true, true, true, 64, order, IN_PIECES);
    test_vector(4, 64, SCALE_BF16, 48, 1024, OUT_STORE, false, false, false, 64, order);
    test_vector(4, 64, SCALE_BF16, 48, 256, OUT_GATED, true, true, false, 96, order);
    test_vector(4, 128, SCALE_BF16, 60, 768, OUT_BEST, true, false, false, 64, order);
    // Ten warps have a part of each row; more rows than threads.
    test_vector(4, 64, SCALE_BF16, 48, 2560, OUT_STORE, true, false, false, 320, order);
    test_vector(4, 64, SCALE_BF16, 250, 256, OUT_STORE, false, false, false, 64, order);
    test_small_inputs(order);
    test_shares();
    test_matrix(block_launch(4), 4, 32, 144, 96, 5, false, order);
    test_matrix(block_launch(4), 4, 128, 32, 256, 130, true, order);
#if defined(KPORT_WARPGROUPS)
    test_matrix({warpgroup_product_4_64, GROUP_BLOCK_TILES, 64}, 4, 64, 300, 200, 67, false, order);
    test_matrix({warpgroup_product_4_128, GROUP_BLOCK_TILES, 128}, 4, 128, 32, 640, 130, true, order);
    test_matrix({warpgroup_product_4_160, GROUP_BLOCK_TILES, 160}, 4, 64, 20, 512, 165, false, order);
    test_matrix({warpgroup_product_4_128, GROUP_BLOCK_TILES, 128}, 4, 64, 256, 64, 3, true, order);
#endif
    test_ties();
    test_draw(order);
    for (int c = 0; c < 3; c++)
        for (int width : {100, 90, 1200}) test_fold_norm(width, c > 0, c > 1, order);
    test_decode_attention(decode_attention_8_2, 2, 64, 4, 2, 20, 20, 0, 3, 1, -1, true, order);
    test_decode_attention(decode_attention_8_4, 4, 32, 6, 1, 33, 35, 10, 5, 8, 2, false, order);
    test_decode_attention(decode_attention_16_4, 4, 128, 4, 1, 1, 1, 0, 2, 4, 0, true, order);
    test_decode_attention(decode_attention_32_2, 2, 256, 4, 2, 40, 40, 12, 20, 1, 1, true, order);
    test_decode_attention(decode_attention_32_2, 2, 256, 2, 1, 40, 40, 12, 3, 20, 1, true, order);
#if defined(KPORT_CLUSTERS)
    test_decode_attention(cluster_attention_64, 8, 64, 4, 2, 20, 20, 0, 1, 1, -1, true, order, 2);
    test_decode_attention(cluster_attention_128, 8, 128, 4, 1, 1, 1, 0, 1, 1, 0, true, order, 4);
    test_decode_attention(cluster_attention_128, 8, 128, 8, 2, 150, 170, 60, 1, 1, 1, false, order, 2);
    test_decode_attention(cluster_attention_128, 8, 128, 20, 2, 97, 97, 0, 1, 1, 2, true, order, 3, 20);
    test_decode_attention(cluster_attention_256, 8, 256, 2, 1, 90, 90, 12, 1, 1, 1, true, order, 4);
    test_decode_attention(cluster_attention_64, 8, 64, 3, 1, 33, 40, 20, 1, 1, -1, false, order, 1);
    // 96 rows a block, all that spare tiles have room for; one more; a part of them; a last block that has none.
    test_decode_attention(cluster_attention_128, 8, 128, 4, 1, 192, 200, 90, 1, 1, 1, true, order, 2);
    test_decode_attention(cluster_attention_128, 8, 128, 4, 1, 193, 200, 90, 1, 1, 1, true, order, 2);
    test_decode_attention(cluster_attention_256, 8, 256, 4, 2, 41, 41, 7, 1, 1, 1, true, order, 1);
    test_decode_attention(cluster_attention_128, 8, 128, 4, 1, 193, 200, 90, 1, 1, 1, true, order, 3);
#endif
    test_prefill_attention<bf16_t>(finish_rows_bf16, prefill_attention_bf16_2_2, 2, 64, 4, 2, 9, 6, true, order);
    test_prefill_attention<bf16_t>(finish_rows_bf16, prefill_attention_bf16_8_4, 4, 256, 3, 1, 4, 0, false, order);
    test_prefill_attention<float>(finish_rows_f32, prefill_attention_f32_4_2, 2, 96, 4, 4, 7, 3, true, order);
    test_prefill_attention<float>(finish_rows_f32, prefill_attention_f32_2_4, 4, 32, 4, 1, 1, 0, true, order);
    test_prefill_attention<bf16_t>(finish_rows_bf16, tile_attention_64, 1, 64, 4, 2, 70, 40, true, order);
    test_prefill_attention<bf16_t>(finish_rows_bf16, tile_attention_256, 1, 256, 2, 1, 20, 0, false, order);
#if defined(KPORT_WARPGROUPS)
    test_prefill_attention<bf16_t>(finish_rows_bf16, group_attention_64, 1, 64, 4, 2, 150, 40, true, order);
    test_prefill_attention<bf16_t>(finish_rows_bf16, group_attention_128, 1, 128, 2, 1, 70, 0, true, order);
    test_prefill_attention<bf16_t>(finish_rows_bf16, group_attention_256, 1, 256, 2, 1, 80, 30, false, order);
#endif
    test_plain(order);
    test_arrange_formats(order);
}

} // namespace

int main() {
    test_rounding();
    for (int order = 0; order < 4; order++) all(order);
    printf("ok\n");
}

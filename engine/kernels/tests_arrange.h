// Part of tests.cpp: weights as a file has them into tiles.

// A module of the file, its floats as numbers beside their bytes.
struct FileModule {
    int rows;
    std::vector<u32> codes; // of whole words a row
    std::vector<unsigned char> weights, scales, biases;
};

struct FileFormat { int bits, group, weight_kind, scale_kind, bias_kind; };

std::vector<unsigned char> file_floats(int kind, size_t count) {
    std::vector<unsigned char> bytes;
    for (size_t i = 0; i < count; i++) {
        float v = uniform();
        // Few significant bits, so that halves have them all; float32 has some to be rounded.
        u32 u = kind == FLOAT_F32 ? f2u(v) : kind == FLOAT_F16 ? to_half(std::round(v * 512) / 512) : f2bf(v);
        for (int b = 0; b < (kind == FLOAT_F32 ? 4 : 2); b++) bytes.push_back(u >> (8 * b) & 255);
    }
    return bytes;
}

double file_float(const std::vector<unsigned char>& bytes, int kind, size_t at) {
    if (kind == FLOAT_F32) {
        float v;
        memcpy(&v, &bytes[4 * at], 4);
        return v;
    }
    u32 half = bytes[2 * at] | bytes[2 * at + 1] << 8;
    return kind == FLOAT_BF16 ? bf2f(half) : half_to_float(half);
}

FileModule file_module(const FileFormat& f, int rows, int columns) {
    FileModule m = {rows, {}, {}, {}, {}};
    if (f.bits == 16) {
        m.weights = file_floats(f.weight_kind, (size_t)rows * columns);
        return m;
    }
    m.codes.resize((size_t)rows * columns * f.bits / 32);
    for (auto& c : m.codes) c = random_bits();
    m.scales = file_floats(f.scale_kind, (size_t)rows * columns / f.group);
    m.biases = file_floats(f.bias_kind, (size_t)rows * columns / f.group);
    return m;
}

// A code bit by bit, or a weight rounded to bf16.
u32 wanted_weight(const FileFormat& f, const FileModule& m, int row, int column, int columns) {
    if (f.bits == 16) return f2bf((float)file_float(m.weights, f.weight_kind, (size_t)row * columns + column));
    u32 code = 0;
    for (int b = 0; b < f.bits; b++) {
        size_t bit = ((size_t)row * columns + column) * f.bits + b;
        code |= (m.codes[bit / 32] >> bit % 32 & 1) << b;
    }
    return code;
}

void expect_codes(const FileFormat& f, const std::vector<u32>& codes, const std::vector<FileRow>& rows, const FileModule* modules, int columns) {
    int column_tiles = (columns + 63) / 64;
    for (size_t tile = 0; tile < rows.size() / 16 * column_tiles; tile++)
        for (int lane = 0; lane < 1024 / LANE_CODES; lane++)
            for (int place = 0; place < LANE_CODES; place++) {
                int row, column;
                place_of(lane, place, row, column);
                FileRow source = rows[tile / column_tiles * 16 + row];
                column += tile % column_tiles * 64;
                const u32* words = &codes[tile * TILE_WORDS(f.bits) + lane * LANE_WORDS(f.bits)];
                u32 got = 0, wanted = 0;
                if (source.matrix >= 0 && column < columns) wanted = wanted_weight(f, modules[source.matrix], source.row, column, columns);
                if (f.bits == 16) got = words[place / 8 * 4 + place % 4] >> (place % 8 < 4 ? 0 : 16) & 0xffff;
                else
                    for (int b = 0; b < f.bits; b++) got |= (words[(place * f.bits + b) / 32] >> (place * f.bits + b) % 32 & 1) << b;
                expect("code in its tile", got, wanted, 0, (int)(tile * 1024) + lane * LANE_CODES + place);
            }
}

void expect_scales(const FileFormat& f, int kind, const std::vector<u32>& pairs, const std::vector<FileRow>& rows, const FileModule* modules, int columns) {
    int padded = (columns + 63) / 64 * 64 / f.group, groups = columns / f.group;
    for (int i = 0; i < (int)rows.size() * padded; i++) {
        FileRow source = rows[i / 16 / padded * 16 + i % 16];
        int group = i / 16 % padded;
        Scale got = read_scale(pairs.data(), kind, i), wanted = {0, 0};
        if (source.matrix >= 0 && group < groups) {
            size_t at = (size_t)source.row * groups + group;
            wanted.scale = (float)file_float(modules[source.matrix].scales, f.scale_kind, at);
            wanted.bias = (float)file_float(modules[source.matrix].biases, f.bias_kind, at);
        }
        expect("scale in its tile", got.scale, wanted.scale, 0, i);
        expect("bias in its tile", got.bias, wanted.bias, 0, i);
    }
}

// Two modules by eights; of the first one only rows from `first_row` on are there. 19 rows of each fill
// two tiles and three rows of a third.
void test_arrange(const FileFormat& f, int columns, int first_row, int order) {
    const int module_rows = 19 + first_row, row_tiles = 3;
    FileModule modules[2] = {file_module(f, module_rows, columns), file_module(f, module_rows, columns)};
    std::vector<FileRow> rows;
    for (int i = 0; i < row_tiles * 16; i++) {
        int row = first_row + i / 16 * 8 + i % 8;
        rows.push_back(row < module_rows ? FileRow{i % 16 / 8, row} : FileRow{-1, 0});
    }
    FileMatrix matrices[2];
    for (int m = 0; m < 2; m++) {
        int from = m ? 0 : first_row;
        size_t weight_bytes = (size_t)columns * (f.bits != 16 ? f.bits : f.weight_kind == FLOAT_F32 ? 32 : 16) / 8;
        auto pair_bytes = [&](int kind) { return (size_t)columns / f.group * (kind == FLOAT_F32 ? 4 : 2); };
        const unsigned char* weights = f.bits == 16 ? modules[m].weights.data() : (const unsigned char*)modules[m].codes.data();
        matrices[m] = FileMatrix{weights + from * weight_bytes, nullptr, nullptr, from, f.weight_kind, f.scale_kind, f.bias_kind};
        if (f.bits == 16) continue;
        matrices[m].scales = modules[m].scales.data() + from * pair_bytes(f.scale_kind);
        matrices[m].biases = modules[m].biases.data() + from * pair_bytes(f.bias_kind);
    }
    bool alike = f.scale_kind == f.bias_kind;
    int column_tiles = (columns + 63) / 64, kind = alike ? f.scale_kind : SCALE_F32, pairs = row_tiles * 16 * column_tiles * 64 / f.group;
    std::vector<u32> codes(row_tiles * column_tiles * TILE_WORDS(f.bits) + 1, 0xabababab);
    std::vector<u32> scales(pairs * (kind == SCALE_F32 ? 2 : 1) + 1, 0xabababab);
    ArrangeArgs a = {matrices, rows.data(), codes.data(), scales.data(), columns, row_tiles, column_tiles, f.bits, f.group, kind};
    int threads = row_tiles * column_tiles * 1024 / LANE_CODES;
    run("arrange_codes", (threads + 63) / 64, 1, 64, order, [&] { arrange_codes(a); });
    expect_codes(f, codes, rows, modules, columns);
    expect("word behind the codes", codes.back(), 0xabababab, 0, 0);
    if (f.bits == 16) return;
    run("arrange_scales", (pairs + 63) / 64, 1, 64, order, [&] { arrange_scales(a); });
    expect_scales(f, kind, scales, rows, modules, columns);
    expect("word behind the scales", scales.back(), 0xabababab, 0, 0);
}

// What is no number stays none: a sum with it must not look like a result.
void test_arrange_nan(int order) {
    std::vector<u32> weights(64, 0x7fffffff), codes(512, 0);
    FileMatrix m = {weights.data(), nullptr, nullptr, 0, FLOAT_F32, 0, 0};
    std::vector<FileRow> rows(16, FileRow{-1, 0});
    rows[0] = FileRow{0, 0};
    ArrangeArgs a = {&m, rows.data(), codes.data(), nullptr, 64, 1, 1, 16, 64, 0};
    run("arrange_codes", 1, 1, 64, order, [&] { arrange_codes(a); });
    if (!std::isnan(bf2f(codes[0] & 0xffff))) fail("not a number", bf2f(codes[0] & 0xffff), NAN, 0);
}

void test_arrange_formats(int order) {
    for (int bits : {2, 3, 4, 5, 6, 8}) test_arrange({bits, 32, 0, FLOAT_BF16, FLOAT_BF16}, 96, bits, order);
    test_arrange({4, 64, 0, FLOAT_F16, FLOAT_F16}, 192, 0, order);
    test_arrange({4, 128, 0, FLOAT_F32, FLOAT_F32}, 128, 1, order);
    test_arrange({3, 64, 0, FLOAT_F16, FLOAT_BF16}, 64, 0, order);
    for (int kind : {FLOAT_BF16, FLOAT_F16, FLOAT_F32}) test_arrange({16, 64, kind, 0, 0}, 100, 3, order);
    test_arrange_nan(order);
}

// Tests of draws (draw.h): each token against what sorting and sums of 128 bits give.
#pragma once

u32 sorted_draw(const std::vector<float>& logits, u32 likeliest, float scale, u32 keep, u32 uniform) {
    typedef unsigned __int128 Wide;
    std::vector<std::pair<u32, u32>> order; // distance, id
    for (u32 i = 0; i < logits.size(); i++) {
        u32 distance = distance_of(logits[i], logits[likeliest], scale);
        if (distance < FARTHEST) order.push_back({distance, i});
    }
    std::sort(order.begin(), order.end());
    std::vector<Wide> ends;
    for (auto& token : order) ends.push_back((ends.empty() ? 0 : ends.back()) + weight_of(token.first));
    if (ends.empty()) return likeliest;
    size_t last = 0, drawn = 0;
    while ((ends[last] << 24) < ends.back() * keep) last++;
    while (ends[drawn] <= (ends[last] * uniform) >> 24) drawn++;
    return order[drawn].second;
}

// Draws in a row, which find what the ones before them have left.
void test_draws(const std::vector<float>& logits, int blocks, int order) {
    const float step = OCTAVE_STEPS * LOG2_E;
    u32 likeliest = 0;
    for (u32 i = 0; i < logits.size(); i++)
        if (logits[i] > logits[likeliest] || logits[likeliest] != logits[likeliest]) likeliest = i;
    if (logits[likeliest] != logits[likeliest]) likeliest = 0;
    static DrawState state = {};
    for (u32 keep : {DRAW_ONE, DRAW_ONE / 2, DRAW_ONE / 3, DRAW_ONE - 9, 1u})
        for (u32 uniform : {DRAW_ONE - 1, DRAW_ONE / 2, (u32)random_bits() % DRAW_ONE}) {
            u32 tokens[] = {7, likeliest}, host_tokens[] = {7, likeliest};
            DrawArgs a = {};
            a.logits = logits.data(); a.tokens = tokens; a.host_tokens = host_tokens; a.state = &state;
            a.scale = step / 1.5f; a.keep = keep; a.uniform = uniform; a.count = (int)logits.size(); a.slot = 1;
            run("draw_coarse", blocks, 1, 64, order, [&] { draw_coarse(a); });
            a.finds_kept = 1;
            if (keep < DRAW_ONE) run("draw_fine", blocks, 1, 64, order, [&] { draw_fine(a); });
            a.finds_kept = 0;
            run("draw_fine", blocks, 1, 64, order, [&] { draw_fine(a); });
            run("draw_token", blocks, 1, 64, order, [&] { draw_token(a); });
            u32 wanted = sorted_draw(logits, likeliest, a.scale, keep, uniform);
            expect("drawn token", tokens[1], wanted, 0, (int)keep);
            expect("drawn token for the host", host_tokens[1], wanted, 0, (int)keep);
            expect("tokens of other slots", tokens[0] + host_tokens[0], 14, 0, 0);
        }
}

void test_draw(int order) {
    for (u32 distance = 0; distance < FARTHEST; distance += 1 + random_bits() % 20000)
        expect("weight", (double)weight_of(distance), std::exp2(43 - distance / 65536.0), 4e-5, (int)distance);
    for (int steps : {3, 1000000}) // many equal ones; next to none
        for (float spread : {0.001f, 4.0f, 60.0f})
            for (int count : {1, 300, 2500}) {
                auto logits = floats(count);
                for (auto& x : logits) x = spread * std::floor(x * steps) / steps;
                test_draws(logits, 3, order);
            }
    auto logits = floats(200);
    logits[20] = logits[30] = NAN;
    logits[0] = -INFINITY;
    test_draws(logits, 4, order);
    logits[77] = logits[90] = INFINITY;
    test_draws(logits, 4, order);
    test_draws(std::vector<float>(100, NAN), 2, order);
    test_draws(std::vector<float>(700, -INFINITY), 8, order);
    test_draws(floats(300), 1, order);
    // A share that ends with a token.
    test_draws(std::vector<float>(4, 1.0f), 1, order);
    test_draws(std::vector<float>(256, -3.0f), 2, order);
}

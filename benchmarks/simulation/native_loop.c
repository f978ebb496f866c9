/* The loop of one trial by hand: softmax regression of 10 classes on 50 features, asynchronous check-ins, Laplace noise.
 *
 * What a good C programmer would write for this one task, as a yardstick for the compiled loop of the simulation. A
 * version is 50 vectors of 16 numbers, the classes side by side, so that every operation fills a vector. Rows and past
 * versions are asked for some check-ins before they are needed. Noise is a counter hash and a logarithm by series.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FEATURES = 50, CLASSES = 10, LANES = 16, GROUP = 5, AHEAD = 4, MOST_ROWS = 1024 };

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));

static const ints LANE = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static inline floats all(float value) { return value - (floats){0}; }

static inline floats pick(ints where, floats one, floats other) {
    return (floats)((where & (ints)one) | (~where & (ints)other));
}

static inline floats exponential(floats x) {
    x *= 1.44269504f;
    x = pick(x < -125.0f, all(-125.0f), x);
    ints whole = __builtin_convertvector(x - 0.5f, ints); /* x is never above 0, so this rounds to the nearest */
    floats f = (x - __builtin_convertvector(whole, floats)) * 0.69314718f;
    floats series = 1 + f * (1 + f * (0.5f + f * (0.16666667f + f * (0.041666668f + f * 0.0083333338f))));
    return series * (floats)((whole + 127) << 23);
}

static inline floats logarithm(floats x) { /* of numbers in (0, 1] */
    ints bits = (ints)x;
    ints exponent = (bits - 0x3f3504f3) >> 23; /* leaves a mantissa between √½ and √2 */
    floats m = (floats)(bits - (exponent << 23));
    floats s = (m - 1) / (m + 1), z = s * s;
    floats series = 2 * s * (1 + z * (0.33333334f + z * (0.2f + z * 0.14285715f)));
    return series + 0.69314718f * __builtin_convertvector(exponent, floats);
}

static inline words scrambled(words h) {
    h = (h ^ (h >> 16)) * 0x7feb352du;
    h = (h ^ (h >> 15)) * 0x846ca68bu;
    return h ^ (h >> 16);
}

/* A vector turned by half, a quarter, … of its length: what is added up or compared that way ends up in every lane. */
#define BY_8(v) __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define BY_4(v) __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define BY_2(v) __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define BY_1(v) __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)

static inline floats sum_of(floats v) {
    v += BY_8(v);
    v += BY_4(v);
    v += BY_2(v);
    return v + BY_1(v);
}

static inline floats larger(floats one, floats other) { return pick(one > other, one, other); }

static inline floats largest_of(floats v) {
    v = larger(v, BY_8(v));
    v = larger(v, BY_4(v));
    v = larger(v, BY_2(v));
    return larger(v, BY_1(v));
}

/* The slope of the loss at the outputs: probabilities, less one at the label. */
static inline floats slope(floats outputs, int label) {
    outputs = pick(LANE < CLASSES, outputs, all(-1e30f));
    floats raised = exponential(outputs - largest_of(outputs));
    raised = pick(LANE < CLASSES, raised, all(0));
    raised *= 1 / sum_of(raised);
    return raised - pick(LANE == label, all(1), all(0));
}

void run(const float *rows, const int32_t *labels, const int32_t *batches, const int32_t *staleness, long check_ins, int b,
         float noise, float c, float radius, uint32_t seed, int depth, float *out) {
    floats *past = aligned_alloc(64, sizeof(floats) * FEATURES * (size_t)depth);
    floats w[FEATURES] = {{0}}, g[FEATURES], slopes[MOST_ROWS];
    memset(past, 0, sizeof(floats) * FEATURES * (size_t)depth);
    for (long t = 0; t < check_ins; t++) {
        const floats *read = w;
        const int32_t *batch = batches + t * b;
        if (depth > 1) {
            memcpy(past + (t % depth) * FEATURES, w, sizeof w);
            read = past + ((t - staleness[t]) % depth) * FEATURES;
            if (t + 1 < check_ins)
                for (int d = 0; d < FEATURES; d++)
                    __builtin_prefetch(past + ((t + 1 - staleness[t + 1]) % depth) * FEATURES + d);
        }
        if (t + AHEAD < check_ins)
            for (int i = 0; i < b; i++)
                for (int d = 0; d < FEATURES; d += LANES)
                    __builtin_prefetch(rows + (size_t)batch[AHEAD * b + i] * FEATURES + d);
        for (int first = 0; first < b; first += GROUP) {
            int last = first + GROUP < b ? first + GROUP : b;
            if (last - first == GROUP) { /* some rows at once: each vector of the version is read once for all of them */
                floats z[GROUP] = {{0}};
                const float *x[GROUP];
                for (int i = 0; i < GROUP; i++) x[i] = rows + (size_t)batch[first + i] * FEATURES;
                for (int d = 0; d < FEATURES; d++)
                    for (int i = 0; i < GROUP; i++) z[i] += read[d] * x[i][d];
                for (int i = 0; i < GROUP; i++) slopes[first + i] = slope(z[i], labels[batch[first + i]]) / (float)b;
            } else {
                for (int i = first; i < last; i++) { /* several sums at once: one would wait for itself */
                    const float *x = rows + (size_t)batch[i] * FEATURES;
                    floats z[5] = {{0}};
                    for (int d = 0; d < FEATURES; d += 5)
                        for (int part = 0; part < 5; part++) z[part] += read[d + part] * x[d + part];
                    slopes[i] = slope(z[0] + z[1] + (z[2] + z[3]) + z[4], labels[batch[i]]) / (float)b;
                }
            }
        }
        for (int d = 0; d < FEATURES; d += 10) {
            floats part[10] = {{0}};
            for (int i = 0; i < b; i++) {
                const float *x = rows + (size_t)batch[i] * FEATURES + d;
                for (int j = 0; j < 10; j++) part[j] += slopes[i] * x[j];
            }
            memcpy(g + d, part, sizeof part);
        }
        if (noise > 0) {
            float drawn[FEATURES * CLASSES + LANES] __attribute__((aligned(64)));
            for (int j = 0; j < FEATURES * CLASSES; j += LANES) {
                words h = scrambled((words)(LANE + j) + (seed + (uint32_t)t * 512u));
                floats u = __builtin_convertvector((ints)(h & 0x7fffffffu), floats) * 4.656612e-10f + 2.3e-10f;
                floats size = logarithm(u) * noise; /* at most 0; the top bit turns it round */
                *(floats *)(drawn + j) = (floats)((words)size ^ (h & 0x80000000u));
            }
            for (int d = 0; d < FEATURES; d++) {
                floats own;
                memcpy(&own, drawn + d * CLASSES, sizeof own);
                g[d] += pick(LANE < CLASSES, own, all(0));
            }
        }
        float rate = c / sqrtf((float)(t + 1));
        floats squares = {0}, more = {0};
        for (int d = 0; d < FEATURES; d += 2) {
            w[d] -= rate * g[d];
            w[d + 1] -= rate * g[d + 1];
            squares += w[d] * w[d];
            more += w[d + 1] * w[d + 1];
        }
        float norm = sum_of(squares + more)[0];
        if (norm > radius * radius)
            for (int d = 0; d < FEATURES; d++) w[d] *= radius / sqrtf(norm);
    }
    for (int k = 0; k < CLASSES; k++)
        for (int d = 0; d < FEATURES; d++) out[k * FEATURES + d] = w[d][k];
    free(past);
}

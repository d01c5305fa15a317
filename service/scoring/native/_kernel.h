/* The loops for one kind of processor; _halves.c includes this once for each:
 *
 *   KIND(name)   the name with the kind in it    TARGET   the attribute that lets the compiler use its instructions
 *   LANES        floats of a vector              TALL     rows whose sums are in registers at once, a multiple of 3
 *
 * Matrices of a block have ROWS rows, `stride` bytes apart.
 */
typedef float KIND(vector) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t KIND(mask) __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
#define VECTOR KIND(vector)
#define AT(address) (*(VECTOR *)(address))
#define VECTORS 2 /* of a panel at once */
#define EACH(n, count) _Pragma("GCC unroll 16") for (int n = 0; n < (count); n++)

/* max(0, x), but NaN stays what it is. */
TARGET static inline VECTOR KIND(relu)(VECTOR x) {
    KIND(mask) negative = x < 0;
    return (VECTOR)(~negative & (KIND(mask))x);
}

/* y = x·W + b of one panel, 32 outputs; max(0, y) where `relu`. */
TARGET static void KIND(panel)(const char *x, int64_t inputs, const float *weight, const float *bias, char *y,
                               int64_t stride, int relu) {
    for (int64_t row = 0; row < ROWS; row += TALL, x += TALL * stride, y += TALL * stride)
        for (int64_t part = 0; part < PANEL; part += LANES * VECTORS) {
            const float *w = weight + part;
            const char *from[TALL / 3]; /* three rows are reached from one address */
            VECTOR sum[TALL][VECTORS];
            EACH(n, TALL / 3) from[n] = x + 3 * n * stride;
            EACH(r, TALL) EACH(v, VECTORS) sum[r][v] = AT(bias + part + v * LANES);
            for (int64_t k = 0; k < inputs; k++, w += PANEL) {
                VECTOR b[VECTORS];
                EACH(v, VECTORS) b[v] = AT(w + v * LANES);
                EACH(r, TALL) {
                    float a = *(const float *)(from[r / 3] + (r % 3) * stride);
                    EACH(v, VECTORS) sum[r][v] += a * b[v];
                }
                EACH(n, TALL / 3) from[n] += sizeof(float);
            }
            EACH(r, TALL) EACH(v, VECTORS) {
                AT(y + r * stride + 4 * (part + v * LANES)) = relu ? KIND(relu)(sum[r][v]) : sum[r][v];
            }
        }
}

/* max(0, item + user) of one pair, `width` floats. */
TARGET static void KIND(meet)(const float *item, const float *user, int64_t width, float *x) {
    int64_t h = 0;
    for (; h + LANES <= width; h += LANES) AT(x + h) = KIND(relu)(AT(item + h) + AT(user + h));
    for (; h < width; h++) {
        float sum = item[h] + user[h];
        x[h] = 0 > sum ? 0 : sum;
    }
}

TARGET static float KIND(dot)(const float *x, const float *weight, int64_t inputs) {
    VECTOR sums = {0};
    float sum = 0;
    int64_t k = 0;
    for (; k + LANES <= inputs; k += LANES) sums += AT(x + k) * AT(weight + k);
    for (int v = 0; v < LANES; v++) sum += sums[v];
    for (; k < inputs; k++) sum += x[k] * weight[k];
    return sum;
}

static const Kernel KIND(kernel) = {KIND(panel), KIND(meet), KIND(dot)};

#undef VECTOR
#undef AT
#undef VECTORS
#undef EACH

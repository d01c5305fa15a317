/* Rows of embedding tables: gathered for a batch, and changed where it touched them.
 *
 * What rows.py and optimizers.py say in torch, without an index, a sort or a copy on the way. Addresses come as plain
 * integers: the callers hold the tensors, and have checked shapes, types and that every id lies in its table. Sums are
 * taken in the order of the batch's rows whatever the number of threads, so that a fit can be repeated to the bit.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GNUC__)
#define PREFETCH(address, write) __builtin_prefetch(address, write)
#else
#define PREFETCH(address, write) (void)0
#endif
#define SPREAD UINT64_C(0x9E3779B97F4A7C15)
#define AHEAD 8 /* rows fetched before they are needed: a miss takes as long as some rows' work */
#define LINE 16 /* floats of a cache's line */

/* A column of a batch as it lies in rows.py's plan: six int64 each. */
typedef struct {
    int64_t keys;    /* address of the first id */
    int64_t wide;    /* 1: int64, 0: int32 */
    int64_t stride;  /* from one id to the next, in ids */
    int64_t count;   /* of ids */
    int64_t offsets; /* of a bag: address of its B + 1 int64; 0: one id a row */
    int64_t mean;    /* of a bag: 1 where a row's gradient is shared among its ids */
} Column;

static inline int64_t id_at(const Column *column, int64_t n) {
    n *= column->stride;
    return column->wide ? ((const int64_t *)column->keys)[n] : (int64_t)((const int32_t *)column->keys)[n];
}

/* Numbers of the distinct ids of one column, in the order in which they are met; -1 where memory ran out. */
static int64_t number(const Column *column, int32_t *inverse, int64_t *distinct) {
    int bits = 4;
    while (((int64_t)1 << bits) < 2 * column->count) bits++;
    int64_t places = (int64_t)1 << bits, found = 0;
    int32_t *slots = malloc((size_t)places * sizeof *slots);
    if (slots == NULL) return -1;
    memset(slots, 0xff, (size_t)places * sizeof *slots);
    for (int64_t n = 0; n < column->count; n++) {
        int64_t id = id_at(column, n);
        uint64_t place = ((uint64_t)id * SPREAD) >> (64 - bits);
        int32_t slot;
        while ((slot = slots[place]) >= 0 && distinct[slot] != id) place = (place + 1) & (uint64_t)(places - 1);
        if (slot < 0) {
            slot = slots[place] = (int32_t)found;
            distinct[found++] = id;
        }
        inverse[n] = slot;
    }
    free(slots);
    return found;
}

static inline void add_row(float *restrict into, const float *restrict from, float by, int64_t dim) {
    for (int64_t d = 0; d < dim; d++) into[d] += by * from[d];
}

/* Sums (found, dim) of one column's gradients, `line` floats from one row's to the next. */
static inline void sum(const Column *column, const int32_t *inverse, int64_t found, const float *grad, int64_t line,
                       int64_t dim, float *into) {
    memset(into, 0, (size_t)(found * dim) * sizeof *into);
    if (!column->offsets) {
        for (int64_t b = 0; b < column->count; b++) {
            if (b + AHEAD < column->count) { /* a row's gradients lie pages apart, where no processor looks ahead */
                PREFETCH(grad + (b + AHEAD) * line, 0);
                PREFETCH(grad + (b + AHEAD) * line + dim - 1, 0);
                PREFETCH(into + inverse[b + AHEAD] * dim, 1);
            }
            add_row(into + inverse[b] * dim, grad + b * line, 1, dim);
        }
        return;
    }
    const int64_t *ends = (const int64_t *)column->offsets;
    for (int64_t b = 0, n = ends[0]; n < ends[0] + column->count; b++) {
        float by = column->mean ? 1.0f / (float)(ends[b + 1] - ends[b]) : 1;
        for (; n < ends[b + 1]; n++) add_row(into + inverse[n - ends[0]] * dim, grad + b * line, by, dim);
    }
}

static inline void gather_rows(const Column *columns, const int64_t *starts, int64_t count, int64_t from, int64_t to,
                               const float *table, int64_t dim, float *out, int64_t line) {
    for (int64_t b = from; b < to; b++) {
        float *into = out + b * line;
        for (int64_t c = 0; c < count && b + 2 < to; c++) {
            const float *next = table + (id_at(columns + c, b + 2) + starts[c]) * dim;
            for (int64_t d = 0; d < dim; d += LINE) PREFETCH(next + d, 0);
        }
        for (int64_t c = 0; c < count; c++)
            memcpy(into + c * dim, table + (id_at(columns + c, b) + starts[c]) * dim, (size_t)dim * sizeof *into);
    }
}

/* gather(columns, starts, count, rows, table, dim, out, line, threads): rows of the table side by side. */
static PyObject *gather(PyObject *self, PyObject *arguments) {
    long long columns, starts, count, rows, table, dim, out, line;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLLLi", &columns, &starts, &count, &rows, &table, &dim, &out, &line,
                          &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        int64_t from = rows * part / threads, to = rows * (part + 1) / threads;
        const Column *first = (const Column *)columns;
        if (dim == 16)
            gather_rows(first, (const int64_t *)starts, count, from, to, (const float *)table, 16, (float *)out, line);
        else
            gather_rows(first, (const int64_t *)starts, count, from, to, (const float *)table, dim, (float *)out, line);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* weigh(columns, starts, count, rows, weights, out, threads): adds to out (rows,) the sum of each row's weights. */
static PyObject *weigh(PyObject *self, PyObject *arguments) {
    long long columns, starts, count, rows, weights, out;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLi", &columns, &starts, &count, &rows, &weights, &out, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t b = 0; b < rows; b++) {
        float sum = 0;
        for (int64_t c = 0; c < count && b + 4 < rows; c++)
            PREFETCH((const float *)weights + id_at((const Column *)columns + c, b + 4) + ((const int64_t *)starts)[c], 0);
        for (int64_t c = 0; c < count; c++)
            sum += ((const float *)weights)[id_at((const Column *)columns + c, b) + ((const int64_t *)starts)[c]];
        ((float *)out)[b] += sum;
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* distinct(columns, count, inverse, ids, found, threads): each column's distinct ids, found[c] of them, and of each id
 * its number among them; a column's own begin where the counts of those before it end. */
static PyObject *distinct(PyObject *self, PyObject *arguments) {
    long long columns, count, inverse, ids, found;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLi", &columns, &count, &inverse, &ids, &found, &threads)) return NULL;
    const Column *first = (const Column *)columns;
    int64_t *counts = (int64_t *)found, failed = 0;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t c = 0; c < count; c++) {
        int64_t at = 0;
        for (int64_t before = 0; before < c; before++) at += first[before].count;
        counts[c] = number(first + c, (int32_t *)inverse + at, (int64_t *)ids + at);
    }
    for (int64_t c = 0; c < count; c++) failed += counts[c] < 0;
    Py_END_ALLOW_THREADS
    return failed ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

/* sums(columns, count, plan, grad, line, dim, out, threads): summed gradients of distinct ids. The plan has six int64 a
 * column: address of the inverse, of the ids, their number, the table's row of id 0, the column's first float in a
 * gradient's row, its first row in out. rows: (found,) int64, the table's rows. */
static PyObject *sums(PyObject *self, PyObject *arguments) {
    long long columns, count, plan, grad, line, dim, out, rows;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLLLi", &columns, &count, &plan, &grad, &line, &dim, &out, &rows, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
    for (int64_t c = 0; c < count; c++) {
        const Column *column = (const Column *)columns + c;
        const int64_t *p = (const int64_t *)plan + 6 * c, *ids = (const int64_t *)p[1];
        const float *from = (const float *)grad + p[4];
        float *into = (float *)out + p[5] * dim;
        for (int64_t n = 0; n < p[2]; n++) ((int64_t *)rows)[p[5] + n] = ids[n] + p[3];
        if (dim == 16)
            sum(column, (const int32_t *)p[0], p[2], from, line, 16, into);
        else if (dim == 1)
            sum(column, (const int32_t *)p[0], p[2], from, line, 1, into);
        else
            sum(column, (const int32_t *)p[0], p[2], from, line, dim, into);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static inline void fetch(float *state, int64_t row, int64_t width) {
    for (int64_t d = 0; d < width; d += LINE) PREFETCH(state + row * width + d, 1);
}

/* adagrad(rows, grads, count, dim, weights, sums, width, lr, eps, decay, threads): see RowAdagrad; rowwise at
 * width 1. */
static PyObject *adagrad(PyObject *self, PyObject *arguments) {
    long long rows, grads, count, dim, weights, totals, width;
    float lr, eps, decay;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLLfffi", &rows, &grads, &count, &dim, &weights, &totals, &width, &lr, &eps,
                          &decay, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < count; n++) {
        const int64_t *row = (const int64_t *)rows + n;
        if (n + AHEAD < count) fetch((float *)weights, row[AHEAD], dim), fetch((float *)totals, row[AHEAD], width);
        float *w = (float *)weights + *row * dim, *total = (float *)totals + *row * width;
        float *g = (float *)grads + n * dim, square = 0;
        for (int64_t d = 0; d < dim && decay != 0; d++) g[d] += decay * w[d];
        if (width == 1) {
            for (int64_t d = 0; d < dim; d++) square += g[d] * g[d];
            float step = lr / (sqrtf(*total += square / (float)dim) + eps);
            for (int64_t d = 0; d < dim; d++) w[d] -= step * g[d];
        } else
            for (int64_t d = 0; d < dim; d++) w[d] -= lr * g[d] / (sqrtf(total[d] += g[d] * g[d]) + eps);
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* adam(rows, grads, count, dim, weights, means, squares, lr, first, second, correction, eps, decay, threads): see
 * RowAdam; lr is divided by 1 - beta1^t, first and second are 1 - beta1 and 1 - beta2, correction 1 / (1 - beta2^t). */
static PyObject *adam(PyObject *self, PyObject *arguments) {
    long long rows, grads, count, dim, weights, means, squares;
    float lr, first, second, correction, eps, decay;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLLffffffi", &rows, &grads, &count, &dim, &weights, &means, &squares, &lr,
                          &first, &second, &correction, &eps, &decay, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t n = 0; n < count; n++) {
        const int64_t *row = (const int64_t *)rows + n;
        if (n + AHEAD < count) {
            fetch((float *)weights, row[AHEAD], dim);
            fetch((float *)means, row[AHEAD], dim), fetch((float *)squares, row[AHEAD], dim);
        }
        float *w = (float *)weights + *row * dim, *mean = (float *)means + *row * dim;
        float *square = (float *)squares + *row * dim;
        const float *grad = (const float *)grads + n * dim;
        for (int64_t d = 0; d < dim; d++) {
            float g = grad[d] + decay * w[d];
            mean[d] += first * (g - mean[d]);
            square[d] += second * (g * g - square[d]);
            w[d] -= lr * mean[d] / (sqrtf(square[d] * correction) + eps);
        }
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* ftrl(rows, grads, count, dim, weights, zs, ns, lr, l1, l2, beta, examples, threads): see Ftrl. */
static PyObject *ftrl(PyObject *self, PyObject *arguments) {
    long long rows, grads, count, dim, weights, zs, ns;
    float lr, l1, l2, beta, examples;
    int threads;
    if (!PyArg_ParseTuple(arguments, "LLLLLLLfffffi", &rows, &grads, &count, &dim, &weights, &zs, &ns, &lr, &l1, &l2,
                          &beta, &examples, &threads))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t m = 0; m < count; m++) {
        const int64_t *row = (const int64_t *)rows + m;
        if (m + AHEAD < count) {
            fetch((float *)weights, row[AHEAD], dim);
            fetch((float *)zs, row[AHEAD], dim), fetch((float *)ns, row[AHEAD], dim);
        }
        for (int64_t d = 0; d < dim; d++) {
            float *w = (float *)weights + *row * dim + d, *z = (float *)zs + *row * dim + d;
            float *n = (float *)ns + *row * dim + d, g = ((const float *)grads)[m * dim + d] * examples;
            float root = sqrtf(*n + g * g);
            *z += g - (root - sqrtf(*n)) / lr * *w;
            *n += g * g;
            *w = fabsf(*z) <= l1 ? 0 : (copysignf(l1, *z) - *z) / ((beta + root) / lr + l2);
        }
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

PyObject *meet(PyObject *self, PyObject *arguments); /* _meeting.c */
static PyMethodDef functions[] = {
    {"meet", meet, METH_VARARGS, "meet(numbers, rank, size, number)"},
    {"gather", gather, METH_VARARGS, "gather(columns, starts, count, rows, table, dim, out, line, threads)"},
    {"weigh", weigh, METH_VARARGS, "weigh(columns, starts, count, rows, weights, out, threads)"},
    {"distinct", distinct, METH_VARARGS, "distinct(columns, count, inverse, ids, found, threads)"},
    {"sums", sums, METH_VARARGS, "sums(columns, count, plan, grad, line, dim, out, rows, threads)"},
    {"adagrad", adagrad, METH_VARARGS, "adagrad(rows, grads, count, dim, weights, sums, width, lr, eps, decay, threads)"},
    {"adam", adam, METH_VARARGS,
     "adam(rows, grads, count, dim, weights, means, squares, lr, first, second, correction, eps, decay, threads)"},
    {"ftrl", ftrl, METH_VARARGS,
     "ftrl(rows, grads, count, dim, weights, zs, ns, lr, l1, l2, beta, examples, threads)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_rows", .m_doc = "Rows of embedding tables, see rows.py.", .m_size = 0,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__rows(void) { return PyModule_Create(&module); }

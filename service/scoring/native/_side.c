/* One side of a module: its rows to halves. See _halves.c; the words are those of training/sides.py. */
#include "_halves.h"

typedef struct {
    int64_t count; /* of rows */
    const float *numerics;
    const int64_t *ids;
    int64_t numerics_apart, ids_apart; /* from one row to the next: the other side's columns may lie between */
    const int64_t **values, **offsets; /* of each bag */
} Rows;

typedef struct {
    int bag;
    int64_t column, start, place;
    int table;
} Vector;

typedef struct {
    const float *weight;
    int64_t rows, dim;
} Table;

typedef struct {
    PyObject_HEAD
    const Kernel *kernel;
    Lent lent;
    int64_t numerics, ids, bags, width, outputs, stride;
    const float *weight, *bias, *numeric_weight;
    const int64_t *numeric_columns;
    int64_t wide_numerics;
    Wide wide;
    Vector *vectors;
    Table *tables;
    int64_t *wide_columns; /* three each: bag, column, start */
    Cross *crosses, *parts;
    int vector_count, table_count, wide_count, cross_count, part_count;
} Side;

static inline int weigh(const Wide *wide, int64_t row, float *sum) {
    if (row < 0 || row >= wide->rows) return 0;
    *sum += wide->weight[row];
    return 1;
}

/* The ids of one row in a column or a bag. */
static inline const int64_t *ids_of(const Rows *rows, int bag, int64_t column, int64_t row,
                                    int64_t *count) {
    if (!bag) {
        *count = 1;
        return rows->ids + row * rows->ids_apart + column;
    }
    *count = rows->offsets[column][row + 1] - rows->offsets[column][row];
    return rows->values[column] + rows->offsets[column][row];
}

/* The numbers of one row in a cross, written where `to` is not NULL, else weighed into *sum; how many, or -1. */
static int64_t cross_row(const Side *side, const Rows *rows, const Cross *cross, int64_t row, int64_t *to, float *sum) {
    const int64_t *ids[MEMBERS];
    int64_t count[MEMBERS], at[MEMBERS] = {0}, all = 1;
    for (int m = 0; m < cross->members; m++) {
        ids[m] = ids_of(rows, cross->member[m].bag, cross->member[m].column, row, &count[m]);
        all *= count[m];
    }
    for (int64_t n = 0; n < all; n++) {
        uint64_t number = 0; /* wraps, as int64 does in torch */
        for (int m = 0; m < cross->members; m++) number += (uint64_t)ids[m][at[m]] * (uint64_t)cross->member[m].stride;
        if (to != NULL)
            to[n] = (int64_t)number;
        else if (!weigh_number(&side->wide, cross, (int64_t)number, sum))
            return -1;
        for (int m = cross->members - 1; m >= 0 && ++at[m] == count[m]; m--) at[m] = 0; /* the last turns fastest */
    }
    return all;
}

/* The vectors of one row, in the first layer's order; 0 where an id has none. */
static int gather(const Side *side, const Rows *rows, int64_t row, float *x) {
    memcpy(x, rows->numerics + row * rows->numerics_apart, (size_t)side->numerics * sizeof(float));
    for (int n = 0; n < side->vector_count; n++) {
        const Vector *vector = &side->vectors[n];
        const Table *table = &side->tables[vector->table];
        int64_t count, dim = table->dim;
        const int64_t *ids = ids_of(rows, vector->bag, vector->column, row, &count);
        float *to = x + vector->place;
        if (count != 1) memset(to, 0, (size_t)dim * sizeof(float));
        for (int64_t k = 0; k < count; k++) {
            int64_t at = ids[k] + vector->start;
            if (at < 0 || at >= table->rows) return 0;
            const float *from = table->weight + at * dim;
            if (count == 1)
                memcpy(to, from, (size_t)dim * sizeof(float));
            else
                for (int64_t d = 0; d < dim; d++) to[d] += from[d];
        }
        if (count > 1)
            for (int64_t d = 0; d < dim; d++) to[d] /= (float)count;
    }
    return 1;
}

static void expect(const Side *side, const Rows *rows, int64_t row) {
    for (int n = 0; n < side->vector_count; n++) {
        const Vector *vector = &side->vectors[n];
        if (vector->bag) continue;
        const Table *table = &side->tables[vector->table];
        int64_t at = rows->ids[row * rows->ids_apart + vector->column] + vector->start;
        if (at >= 0 && at < table->rows)
            for (int64_t d = 0; d < table->dim; d += LINE) PREFETCH(table->weight + at * table->dim + d);
    }
    for (int n = 0; n < side->wide_count; n++) {
        const int64_t *column = side->wide_columns + 3 * n;
        int64_t at = column[0] ? -1 : rows->ids[row * rows->ids_apart + column[1]] + column[2];
        if (at >= 0 && at < side->wide.rows) PREFETCH(side->wide.weight + at);
    }
}

static int wide_of(const Side *side, const Rows *rows, int64_t row, float *wide) {
    float sum = 0;
    for (int64_t n = 0; n < side->wide_numerics; n++)
        sum += rows->numerics[row * rows->numerics_apart + side->numeric_columns[n]] * side->numeric_weight[n];
    for (int n = 0; n < side->wide_count; n++) {
        const int64_t *column = side->wide_columns + 3 * n;
        int64_t count;
        const int64_t *ids = ids_of(rows, (int)column[0], column[1], row, &count);
        for (int64_t k = 0; k < count; k++)
            if (!weigh(&side->wide, ids[k] + column[2], &sum)) return 0;
    }
    for (int n = 0; n < side->cross_count; n++)
        if (cross_row(side, rows, &side->crosses[n], row, NULL, &sum) < 0) return 0;
    *wide = sum;
    return 1;
}

/* The halves of all rows: first (B, H) and wide (B, 1). */
static Outcome halves(const Side *side, const Rows *rows, float *first, float *wide) {
    char *memory, *x = two_blocks(side->stride, &memory), *y = x + ROWS * side->stride;
    if (memory == NULL) return NO_MEMORY;
    memset(x, 0, (size_t)(ROWS * side->stride)); /* rows of a last, short block may be any numbers, but numbers */
    for (int64_t start = 0; start < rows->count; start += ROWS) {
        int64_t here = rows->count - start < ROWS ? rows->count - start : ROWS;
        for (int64_t r = 0; r < here; r++) expect(side, rows, start + r);
        for (int64_t r = 0; r < here; r++)
            if (!gather(side, rows, start + r, (float *)(x + r * side->stride)) ||
                !wide_of(side, rows, start + r, wide + start + r)) {
                free(memory);
                return NO_ROW;
            }
        for (int64_t panel = 0; panel < side->outputs; panel += PANEL)
            side->kernel->panel(x, side->width, side->weight + panel * side->width, side->bias + panel,
                                y + panel * (int64_t)sizeof(float), side->stride, 0);
        for (int64_t r = 0; r < here; r++)
            memcpy(first + (start + r) * side->outputs, y + r * side->stride, (size_t)side->outputs * sizeof(float));
    }
    free(memory);
    return DONE;
}

/* Fill in `rows` from what Python gives; -1 with an error set. */
static int take_rows(const Side *side, Lent *lent, Rows *rows, PyObject *numerics, PyObject *ids, PyObject *values,
                     PyObject *offsets, const int64_t *before, int64_t count) {
    rows->count = count;
    if (PyList_GET_SIZE(values) < before[2] + side->bags || PyList_GET_SIZE(offsets) != PyList_GET_SIZE(values))
        return refuse("bags");
    int64_t numbers = borrow(lent, numerics, 0, sizeof(float), &rows->numerics);
    if (numbers < 0) return -1;
    int64_t keys = borrow(lent, ids, 0, sizeof(int64_t), &rows->ids);
    if (keys < 0) return -1;
    rows->numerics_apart = count ? numbers / count : 0, rows->ids_apart = count ? keys / count : 0;
    if (count && (numbers % count || keys % count || rows->numerics_apart < before[0] + side->numerics ||
                  rows->ids_apart < before[1] + side->ids))
        return refuse("rows");
    rows->numerics += before[0], rows->ids += before[1];
    for (int64_t n = 0; n < side->bags; n++) {
        int64_t held = borrow(lent, PyList_GET_ITEM(values, before[2] + n), 0, sizeof(int64_t), &rows->values[n]);
        if (held < 0) return -1;
        int64_t ends = borrow(lent, PyList_GET_ITEM(offsets, before[2] + n), 0, sizeof(int64_t), &rows->offsets[n]);
        if (ends < 0) return -1;
        if (ends != count + 1 || rows->offsets[n][0] != 0 || rows->offsets[n][count] > held) return refuse("a bag");
        for (int64_t row = 0; row < count; row++)
            if (rows->offsets[n][row + 1] < rows->offsets[n][row]) return refuse("a bag");
    }
    return 0;
}

/* [(values, offsets)] of the side's parts of crosses of both sides, as bytearrays of int64. */
static PyObject *parts_of(const Side *side, const Rows *rows) {
    PyObject *made = PyList_New(0);
    for (int n = 0; made != NULL && n < side->part_count; n++) {
        const Cross *part = &side->parts[n];
        int64_t all = 0;
        PyObject *offsets = PyByteArray_FromStringAndSize(NULL, (rows->count + 1) * (Py_ssize_t)sizeof(int64_t));
        PyObject *values = NULL, *both = NULL;
        if (offsets != NULL) {
            int64_t *ends = (int64_t *)PyByteArray_AS_STRING(offsets);
            ends[0] = 0;
            for (int64_t row = 0; row < rows->count; row++) {
                int64_t numbers = 1, count;
                for (int m = 0; m < part->members; m++) {
                    ids_of(rows, part->member[m].bag, part->member[m].column, row, &count);
                    numbers *= count;
                }
                ends[row + 1] = all += numbers;
            }
            values = PyByteArray_FromStringAndSize(NULL, all * (Py_ssize_t)sizeof(int64_t));
            if (values != NULL) {
                int64_t *to = (int64_t *)PyByteArray_AS_STRING(values);
                for (int64_t row = 0; row < rows->count; row++) to += cross_row(side, rows, part, row, to, NULL);
                both = PyTuple_Pack(2, values, offsets);
            }
        }
        if (both == NULL || PyList_Append(made, both) < 0) Py_CLEAR(made);
        Py_XDECREF(offsets), Py_XDECREF(values), Py_XDECREF(both);
    }
    return made;
}

PyDoc_STRVAR(side_halves_doc, "halves(numerics, ids, bag_values, bag_offsets, before, first, wide)\n\n"
                              "Write the halves of B rows: float32 (B, .), int64 (B, .), lists of int64 arrays, of\n"
                              "which so many (numerics, ids, bags) before the side's are another's; and float32\n"
                              "(B, H) and (B, 1) to write to. Gives (values, offsets) of each part of a cross of both\n"
                              "sides, bytes of int64. IndexError where an id lies outside of its table.");
static PyObject *Side_halves(Side *self, PyObject *args) {
    PyObject *numerics, *ids, *values, *offsets, *first, *wide, *result = NULL;
    long long before[3];
    if (!PyArg_ParseTuple(args, "OOO!O!(LLL)OO:halves", &numerics, &ids, &PyList_Type, &values, &PyList_Type, &offsets,
                          &before[0], &before[1], &before[2], &first, &wide))
        return NULL;
    const int64_t skipped[3] = {before[0], before[1], before[2]};
    Lent lent = {0};
    float *to_first, *to_wide;
    Rows rows = {0};
    rows.values = PyMem_Calloc(2 * (size_t)self->bags + 1, sizeof *rows.values);
    if (rows.values == NULL) return PyErr_NoMemory();
    rows.offsets = rows.values + self->bags;
    int64_t count = borrow(&lent, wide, 1, sizeof(float), &to_wide);
    int64_t room = count < 0 ? -1 : borrow(&lent, first, 1, sizeof(float), &to_first);
    if (room >= 0 && (room != count * self->outputs || before[0] < 0 || before[1] < 0 || before[2] < 0))
        room = refuse("halves");
    if (room >= 0 && take_rows(self, &lent, &rows, numerics, ids, values, offsets, skipped, count) == 0) {
        Outcome outcome;
        Py_BEGIN_ALLOW_THREADS
        outcome = halves(self, &rows, to_first, to_wide);
        Py_END_ALLOW_THREADS
        result = outcome == DONE ? parts_of(self, &rows) : failed(outcome);
    }
    give_back(&lent);
    PyMem_Free(rows.values);
    return result;
}

/* Crosses from numbers: members, buckets, exact, start, then bag, column, stride of each member. */
static int take_crosses(Side *self, PyObject *array, Cross **crosses, int *found) {
    const int64_t *plan;
    int64_t length = borrow(&self->lent, array, 0, sizeof(int64_t), &plan), at = 0;
    if (length < 0) return -1;
    *crosses = PyMem_Calloc((size_t)length / 4 + 1, sizeof **crosses);
    if (*crosses == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    while (at + 4 <= length && *found < MOST) {
        Cross *cross = &(*crosses)[*found];
        int64_t members = plan[at];
        if (members < 1 || members > MEMBERS || at + 4 + 3 * members > length) return refuse("crosses");
        cross->buckets = plan[at + 1], cross->exact = plan[at + 2], cross->start = plan[at + 3];
        cross->members = (int)members;
        if (!cross->exact && cross->buckets < 1) return refuse("crosses");
        at += 4;
        for (int64_t m = 0; m < members; m++, at += 3) {
            cross->member[m] = (Member){plan[at] != 0, plan[at + 1], plan[at + 2]};
            if (plan[at + 1] < 0 || plan[at + 1] >= (plan[at] ? self->bags : self->ids)) return refuse("crosses");
        }
        ++*found;
    }
    return at == length ? 0 : refuse("crosses");
}

static int take_vectors(Side *self, PyObject *tables, PyObject *array) {
    const int64_t *plan;
    int64_t length = borrow(&self->lent, array, 0, sizeof(int64_t), &plan), count = PyList_GET_SIZE(tables);
    if (length < 0) return -1;
    if (length % 5 || length / 5 > MOST || count > MOST) return refuse("vectors");
    self->tables = PyMem_Calloc((size_t)count + 1, sizeof *self->tables);
    self->vectors = PyMem_Calloc((size_t)length / 5 + 1, sizeof *self->vectors);
    if (self->tables == NULL || self->vectors == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (; self->table_count < count; self->table_count++) {
        Table *table = &self->tables[self->table_count];
        PyObject *weight;
        long long dim;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(tables, self->table_count), "OL", &weight, &dim)) return -1;
        int64_t numbers = borrow(&self->lent, weight, 0, sizeof(float), &table->weight);
        if (numbers < 0) return -1;
        if (dim < 1 || numbers % dim) return refuse("tables");
        table->dim = dim, table->rows = numbers / dim;
    }
    for (; length >= 5; length -= 5, plan += 5, self->vector_count++) {
        if (plan[1] < 0 || plan[1] >= (plan[0] ? self->bags : self->ids) || plan[3] < 0 || plan[3] >= count ||
            plan[4] < self->numerics || plan[4] + self->tables[plan[3]].dim > self->width)
            return refuse("vectors");
        self->vectors[self->vector_count] = (Vector){plan[0] != 0, plan[1], plan[2], plan[4], (int)plan[3]};
    }
    return 0;
}

static int take_wide(Side *self, PyObject *weight, PyObject *columns, PyObject *numeric_columns,
                     PyObject *numeric_weight) {
    int64_t length = borrow(&self->lent, columns, 0, sizeof(int64_t), &self->wide_columns);
    if (length < 0 || (self->wide.rows = borrow(&self->lent, weight, 0, sizeof(float), &self->wide.weight)) < 0)
        return -1;
    self->wide_numerics = borrow(&self->lent, numeric_columns, 0, sizeof(int64_t), &self->numeric_columns);
    int64_t weights = borrow(&self->lent, numeric_weight, 0, sizeof(float), &self->numeric_weight);
    if (self->wide_numerics < 0 || weights < 0) return -1;
    if (length % 3 || length / 3 > MOST || weights != self->wide_numerics) return refuse("wide columns");
    self->wide_count = (int)(length / 3);
    for (int n = 0; n < self->wide_count; n++) {
        const int64_t *column = self->wide_columns + 3 * n;
        if (column[1] < 0 || column[1] >= (column[0] ? self->bags : self->ids)) return refuse("wide columns");
    }
    for (int64_t n = 0; n < weights; n++)
        if (self->numeric_columns[n] < 0 || self->numeric_columns[n] >= self->numerics) return refuse("wide numerics");
    return 0;
}

PyDoc_STRVAR(side_doc,
             "Side(lanes, numerics, ids, bags, width, outputs, weight, bias, tables, vectors, wide_weight,\n"
             "wide_columns, numeric_columns, numeric_weight, crosses, parts)\n\n"
             "One side of a module, of N numerics, C ids and M bags: the packed first layer of `width` inputs and\n"
             "its bias; tables [(weight, dim)]; vectors (bag, column, start, table, place) and wide columns (bag,\n"
             "column, start), int64; crosses and parts of crosses, int64: (members, buckets, exact, start), then\n"
             "(bag, column, stride) of each member. RuntimeError where this processor has no kernel.");
static PyObject *Side_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *weight, *bias, *tables, *vectors, *wide, *columns, *numeric_columns, *numeric_weight, *crosses, *parts;
    int lanes;
    long long numerics, ids, bags, width, outputs;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iLLLLLOOO!OOOOOOO:Side", &lanes, &numerics, &ids, &bags, &width, &outputs, &weight,
                          &bias, &PyList_Type, &tables, &vectors, &wide, &columns, &numeric_columns, &numeric_weight,
                          &crosses, &parts))
        return NULL;
    Side *self = (Side *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->numerics = numerics, self->ids = ids, self->bags = bags, self->width = width, self->outputs = outputs;
    int64_t panels = (outputs + PANEL - 1) / PANEL, widest = width > panels * PANEL ? width : panels * PANEL;
    self->stride = stride_of(widest);
    self->kernel = kernel_of(lanes);
    int right = self->kernel == NULL ? -1 : 0;
    if (right == 0 && (numerics < 0 || ids < 0 || bags < 0 || bags > MOST || width < numerics || width > 1 << 24 ||
                       outputs < 1 || outputs > 1 << 24))
        right = refuse("sizes");
    if (right == 0) {
        int64_t weights = borrow(&self->lent, weight, 0, sizeof(float), &self->weight);
        int64_t biases = weights < 0 ? -1 : borrow(&self->lent, bias, 0, sizeof(float), &self->bias);
        right = weights < 0 || biases < 0                                              ? -1
                : weights != panels * PANEL * width || biases != panels * PANEL ? refuse("the first layer")
                                                                                : 0;
    }
    if (right < 0 || take_vectors(self, tables, vectors) < 0 ||
        take_wide(self, wide, columns, numeric_columns, numeric_weight) < 0 ||
        take_crosses(self, crosses, &self->crosses, &self->cross_count) < 0 ||
        take_crosses(self, parts, &self->parts, &self->part_count) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void Side_dealloc(Side *self) {
    give_back(&self->lent);
    PyMem_Free(self->vectors), PyMem_Free(self->tables), PyMem_Free(self->crosses), PyMem_Free(self->parts);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef side_methods[] = {{"halves", (PyCFunction)Side_halves, METH_VARARGS, side_halves_doc}, {0}};

PyTypeObject SideType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "service.scoring._halves.Side",
    .tp_basicsize = sizeof(Side),
    .tp_doc = side_doc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = Side_new,
    .tp_dealloc = (destructor)Side_dealloc,
    .tp_methods = side_methods,
};

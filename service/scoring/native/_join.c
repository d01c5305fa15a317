/* The join: pairs of a user's and an item's half to probabilities. See _halves.c; `rank` of training/halves.py. */
#include <math.h>

#include "_halves.h"

typedef struct {
    int64_t inputs, outputs;
    const float *weight, *bias;
} Layer;

typedef struct {
    PyObject_HEAD
    const Kernel *kernel;
    Lent lent;
    Layer *layers;
    Cross *crosses;
    int count, cross_count;
    int64_t width, stride;
    Wide wide;
    float scale, shift;
} Join;

typedef struct {
    const float *first, *wide;
    const int64_t **values, **offsets; /* of each cross of both sides */
    int64_t rows;
} Half;

typedef struct {
    Half items, users;
    const int64_t *row, *user;
    int64_t count;
} Pairs;

static int cross_pair(const Join *self, const Pairs *pairs, int64_t row, int64_t user, float *sum) {
    for (int n = 0; n < self->cross_count; n++) {
        const int64_t *left = pairs->users.values[n], *left_ends = pairs->users.offsets[n] + user;
        const int64_t *right = pairs->items.values[n], *right_ends = pairs->items.offsets[n] + row;
        for (int64_t l = left_ends[0]; l < left_ends[1]; l++)
            for (int64_t r = right_ends[0]; r < right_ends[1]; r++) {
                int64_t number = (int64_t)((uint64_t)left[l] + (uint64_t)right[r]);
                if (!weigh_number(&self->wide, &self->crosses[n], number, sum)) return 0;
            }
    }
    return 1;
}

/* Probabilities of all pairs. */
static Outcome join(const Join *self, const Pairs *pairs, float *scores) {
    const Kernel *kernel = self->kernel;
    const Half *items = &pairs->items, *users = &pairs->users;
    char *memory, *blocks = two_blocks(self->stride, &memory);
    if (memory == NULL) return NO_MEMORY;
    Outcome outcome = DONE;
    for (int64_t start = 0; start < pairs->count && outcome == DONE; start += ROWS) {
        char *x = blocks, *y = blocks + ROWS * self->stride;
        int64_t here = pairs->count - start < ROWS ? pairs->count - start : ROWS;
        for (int64_t p = start + ROWS; p < start + 2 * ROWS && p < pairs->count; p++)
            for (int64_t h = 0; h < self->width; h += LINE) PREFETCH(items->first + pairs->row[p] * self->width + h);
        for (int64_t r = 0; r < ROWS; r++) {
            int64_t p = start + (r < here ? r : here - 1); /* what no pair is for is a copy of the last */
            kernel->meet(items->first + pairs->row[p] * self->width, users->first + pairs->user[p] * self->width,
                         self->width, (float *)(x + r * self->stride));
        }
        for (int n = 0; n < self->count - 1; n++) {
            const Layer *layer = &self->layers[n];
            for (int64_t panel = 0; panel < layer->outputs; panel += PANEL)
                kernel->panel(x, layer->inputs, layer->weight + panel * layer->inputs, layer->bias + panel,
                              y + panel * (int64_t)sizeof(float), self->stride, 1);
            char *used = x;
            x = y, y = used;
        }
        const Layer *head = &self->layers[self->count - 1];
        for (int64_t r = 0; r < here; r++) {
            int64_t row = pairs->row[start + r], user = pairs->user[start + r];
            float logit = kernel->dot((const float *)(x + r * self->stride), head->weight, head->inputs);
            logit += head->bias[0] + items->wide[row] + users->wide[user];
            if (!cross_pair(self, pairs, row, user, &logit)) outcome = NO_ROW;
            scores[start + r] = 1 / (1 + expf(-(logit * self->scale + self->shift)));
        }
    }
    free(memory);
    return outcome;
}

/* Fill in one side of the pairs from (first, wide, [values], [offsets]); -1 with an error set. */
static int take_half(const Join *self, Lent *lent, Half *half, const int64_t **ragged, PyObject *given) {
    PyObject *first, *wide, *values, *offsets;
    if (!PyArg_ParseTuple(given, "OOO!O!", &first, &wide, &PyList_Type, &values, &PyList_Type, &offsets)) return -1;
    half->values = ragged, half->offsets = ragged + self->cross_count;
    int64_t numbers = borrow(lent, first, 0, sizeof(float), &half->first);
    half->rows = numbers < 0 ? -1 : borrow(lent, wide, 0, sizeof(float), &half->wide);
    if (half->rows < 0) return -1;
    if (numbers != half->rows * self->width || PyList_GET_SIZE(values) != self->cross_count ||
        PyList_GET_SIZE(offsets) != self->cross_count)
        return refuse("a half");
    for (int n = 0; n < self->cross_count; n++) {
        int64_t held = borrow(lent, PyList_GET_ITEM(values, n), 0, sizeof(int64_t), &half->values[n]);
        int64_t ends = held < 0 ? -1 : borrow(lent, PyList_GET_ITEM(offsets, n), 0, sizeof(int64_t), &half->offsets[n]);
        if (ends < 0) return -1;
        if (ends != half->rows + 1 || half->offsets[n][half->rows] > held) return refuse("a cross");
    }
    return 0;
}

static int within(const int64_t *places, int64_t count, int64_t rows) {
    for (int64_t p = 0; p < count; p++)
        if (places[p] < 0 || places[p] >= rows) {
            PyErr_Format(PyExc_IndexError, "a pair is of row %lld of %lld", (long long)places[p], (long long)rows);
            return 0;
        }
    return 1;
}

PyDoc_STRVAR(join_call_doc, "scores(users, items, rows, index, scores)\n\n"
                            "Write the probabilities of P pairs: items' row rows[p] with users' row index[p]. Halves\n"
                            "are (first, wide, [values], [offsets]); int64 (P,) each, and float32 (P,) to write to.");
static PyObject *Join_scores(Join *self, PyObject *args) {
    PyObject *users, *items, *rows, *index, *scores, *result = NULL;
    if (!PyArg_ParseTuple(args, "O!O!OOO:scores", &PyTuple_Type, &users, &PyTuple_Type, &items, &rows, &index, &scores))
        return NULL;
    Lent lent = {0};
    Pairs pairs = {0};
    float *to;
    const int64_t **ragged = PyMem_Calloc(4 * (size_t)self->cross_count + 1, sizeof *ragged);
    if (ragged == NULL) return PyErr_NoMemory();
    int64_t asking, room;
    if (take_half(self, &lent, &pairs.users, ragged, users) < 0 ||
        take_half(self, &lent, &pairs.items, ragged + 2 * self->cross_count, items) < 0 ||
        (pairs.count = borrow(&lent, rows, 0, sizeof(int64_t), &pairs.row)) < 0 ||
        (asking = borrow(&lent, index, 0, sizeof(int64_t), &pairs.user)) < 0 ||
        (room = borrow(&lent, scores, 1, sizeof(float), &to)) < 0)
        goto done;
    if (asking != pairs.count || room != pairs.count) {
        refuse("pairs");
        goto done;
    }
    if (!within(pairs.row, pairs.count, pairs.items.rows) || !within(pairs.user, pairs.count, pairs.users.rows))
        goto done;
    Outcome outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = join(self, &pairs, to);
    Py_END_ALLOW_THREADS
    result = outcome == DONE ? Py_NewRef(Py_None) : failed(outcome);
done:
    give_back(&lent);
    PyMem_Free(ragged);
    return result;
}

static int take_layers(Join *self, PyObject *list) {
    Py_ssize_t count = PyList_GET_SIZE(list);
    if (count < 1 || count > MOST) return refuse("layers");
    self->layers = PyMem_Calloc((size_t)count, sizeof *self->layers);
    if (self->layers == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int64_t widest = PANEL;
    for (; self->count < count; self->count++) {
        Layer *layer = &self->layers[self->count];
        int head = self->count == count - 1;
        PyObject *weight, *bias;
        long long inputs, outputs;
        if (!PyArg_ParseTuple(PyList_GET_ITEM(list, self->count), "LLOO", &inputs, &outputs, &weight, &bias)) return -1;
        layer->inputs = inputs, layer->outputs = outputs;
        int64_t weights = borrow(&self->lent, weight, 0, sizeof(float), &layer->weight);
        int64_t biases = weights < 0 ? -1 : borrow(&self->lent, bias, 0, sizeof(float), &layer->bias);
        if (biases < 0) return -1;
        if (inputs < 1 || outputs < 1 || inputs > 1 << 24 || outputs > 1 << 24 || (head && outputs != 1) ||
            (self->count && inputs != self->layers[self->count - 1].outputs))
            return refuse("layers");
        int64_t columns = head ? 1 : (outputs + PANEL - 1) / PANEL * PANEL; /* the head's weight lies as it is */
        if (weights != inputs * columns || biases != columns) return refuse("layers");
        if (inputs > widest) widest = inputs;
        if (columns > widest) widest = columns;
    }
    self->width = self->layers[0].inputs;
    self->stride = stride_of(widest);
    return 0;
}

PyDoc_STRVAR(join_doc, "Join(lanes, layers, wide_weight, crosses, scale, shift)\n\n"
                       "What stands behind the first layer: [(inputs, outputs, packed weight, bias)], the last with\n"
                       "one output and its weight as it is; crosses of both sides (buckets, exact, start), int64,\n"
                       "rows of the wide table; and the correction scale * z + shift. RuntimeError as for Side.");
static PyObject *Join_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *layers, *wide, *crosses;
    const int64_t *plan;
    int lanes;
    float scale, shift;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "iO!OOff:Join", &lanes, &PyList_Type, &layers, &wide, &crosses, &scale, &shift))
        return NULL;
    Join *self = (Join *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->scale = scale, self->shift = shift, self->kernel = kernel_of(lanes);
    int right = self->kernel == NULL ? -1 : take_layers(self, layers);
    if (right == 0 && (self->wide.rows = borrow(&self->lent, wide, 0, sizeof(float), &self->wide.weight)) < 0)
        right = -1;
    int64_t length = right < 0 ? -1 : borrow(&self->lent, crosses, 0, sizeof(int64_t), &plan);
    if (length >= 0) {
        self->crosses = PyMem_Calloc((size_t)length / 3 + 1, sizeof *self->crosses);
        if (self->crosses == NULL) PyErr_NoMemory();
        if (length % 3 || length / 3 > MOST) length = refuse("crosses");
    }
    if (length < 0 || self->crosses == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    for (; self->cross_count < length / 3; self->cross_count++, plan += 3) {
        self->crosses[self->cross_count] = (Cross){.buckets = plan[0], .exact = plan[1], .start = plan[2]};
        if (!plan[1] && plan[0] < 1) {
            refuse("crosses");
            Py_DECREF(self);
            return NULL;
        }
    }
    return (PyObject *)self;
}

static void Join_dealloc(Join *self) {
    give_back(&self->lent);
    PyMem_Free(self->layers), PyMem_Free(self->crosses);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef join_methods[] = {{"scores", (PyCFunction)Join_scores, METH_VARARGS, join_call_doc}, {0}};

PyTypeObject JoinType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "service.scoring._halves.Join",
    .tp_basicsize = sizeof(Join),
    .tp_doc = join_doc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = Join_new,
    .tp_dealloc = (destructor)Join_dealloc,
    .tp_methods = join_methods,
};

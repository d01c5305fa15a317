/* Halves of rows, and their join, on a CPU: what training/halves.py says in torch, for native.py, which tells where.
 *
 *   _side.c    rows of one side to halves     _join.c    pairs of halves to probabilities     _kernel.h    the loops
 *
 * A dozen rows go through all layers together: what stands between two layers never leaves the nearest cache. Weights
 * of layers come packed: panels (ceil(outputs / 32), inputs, 32), zeros where a layer has no such output. There are
 * kernels for processors with AVX-512 and for those with AVX2 and FMA; for others none of this can be made.
 */
#include "_halves.h"

#if defined(__x86_64__) && defined(__GNUC__)
#define TARGET __attribute__((target("avx512f,fma")))
#define KIND(name) avx512_##name
#define LANES 16
#define TALL 12
#include "_kernel.h"
#undef TARGET
#undef KIND
#undef LANES
#undef TALL
#define TARGET __attribute__((target("avx2,fma")))
#define KIND(name) avx2_##name
#define LANES 8
#define TALL 6
#include "_kernel.h"

static const Kernel *find_kernel(int lanes) {
    __builtin_cpu_init();
    if (lanes >= 16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")) return &avx512_kernel;
    if (lanes >= 8 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return &avx2_kernel;
    return NULL;
}
#else
static const Kernel *find_kernel(int lanes) {
    (void)lanes;
    return NULL;
}
#endif

const Kernel *kernel_of(int lanes) {
    const Kernel *found = find_kernel(lanes);
    if (found == NULL) PyErr_SetString(PyExc_RuntimeError, "there is no kernel for this processor");
    return found;
}

int64_t borrow(Lent *lent, PyObject *array, int writable, size_t size, void *address) {
    if (lent->count == lent->room) {
        int room = 2 * lent->room + 8;
        Py_buffer *held = PyMem_Realloc(lent->held, (size_t)room * sizeof *held);
        if (held == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        lent->held = held, lent->room = room;
    }
    Py_buffer *view = &lent->held[lent->count];
    if (PyObject_GetBuffer(array, view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0) return -1;
    lent->count++;
    memcpy(address, &view->buf, sizeof view->buf);
    return view->len / (Py_ssize_t)size;
}

void give_back(Lent *lent) {
    for (int n = 0; n < lent->count; n++) PyBuffer_Release(&lent->held[n]);
    PyMem_Free(lent->held);
    *lent = (Lent){0};
}

int refuse(const char *what) {
    PyErr_Format(PyExc_ValueError, "%s: the arrays do not fit each other", what);
    return -1;
}

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014), as mix64 there; then the floored modulo. */
static inline int64_t table_row(const Cross *cross, int64_t number) {
    if (cross->exact) return cross->start + number;
    uint64_t x = (uint64_t)number;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    int64_t rest = (int64_t)(x ^ x >> 31) % cross->buckets;
    return cross->start + (rest < 0 ? rest + cross->buckets : rest);
}

int weigh_number(const Wide *wide, const Cross *cross, int64_t number, float *sum) {
    int64_t row = table_row(cross, number);
    if (row < 0 || row >= wide->rows) return 0;
    *sum += wide->weight[row];
    return 1;
}

PyObject *failed(Outcome outcome) {
    if (outcome == NO_MEMORY) return PyErr_NoMemory();
    PyErr_SetString(PyExc_IndexError, "an id lies outside of its table");
    return NULL;
}

char *two_blocks(int64_t stride, char **memory) {
    *memory = malloc((size_t)(2 * ROWS * stride + 64));
    return *memory == NULL ? NULL : *memory + (64 - (uintptr_t)*memory % 64) % 64;
}

int64_t stride_of(int64_t widest) {
    return (int64_t)sizeof(float) * ((widest + PANEL - 1) / PANEL * PANEL + LINE);
}

static PyObject *is_here(PyObject *module, PyObject *given) {
    long lanes = PyLong_AsLong(given);
    (void)module;
    return lanes == -1 && PyErr_Occurred() ? NULL : PyBool_FromLong(find_kernel((int)lanes) != NULL);
}

static PyMethodDef functions[] = {
    {"is_here", is_here, METH_O, "is_here(lanes): whether there is a kernel with vectors of at most so many floats."},
    {0}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_halves", .m_doc = "Halves and their join, see native.py.", .m_size = 0,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__halves(void) {
    if (PyType_Ready(&SideType) < 0 || PyType_Ready(&JoinType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddObjectRef(made, "Side", (PyObject *)&SideType) < 0 ||
                         PyModule_AddObjectRef(made, "Join", (PyObject *)&JoinType) < 0))
        Py_CLEAR(made);
    return made;
}

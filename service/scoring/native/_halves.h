/* What _halves.c, _side.c and _join.c share. */
#ifndef TWINRANK_HALVES_H
#define TWINRANK_HALVES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PANEL 32 /* outputs of a layer that are computed together */
#define ROWS 12  /* rows that go through all layers together */
#define LINE 16  /* floats of a cache's line */
#define MOST 1024 /* of layers, columns, tables or crosses: beyond, something is wrong */
#define MEMBERS 16

#if defined(__GNUC__)
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) (void)0
#endif

/* The loops of one kind of processor, see _kernel.h. */
typedef struct {
    void (*panel)(const char *, int64_t, const float *, const float *, char *, int64_t, int);
    void (*meet)(const float *, const float *, int64_t, float *);
    float (*dot)(const float *, const float *, int64_t);
} Kernel;

/* The kernel of this processor with vectors of at most so many floats; NULL, RuntimeError set, where there is none. */
const Kernel *kernel_of(int lanes);

/* Arrays that Python lends. */
typedef struct {
    Py_buffer *held;
    int count, room;
} Lent;

/* How many `size`-byte numbers an array holds, its address in *address; -1 with an error set. */
int64_t borrow(Lent *lent, PyObject *array, int writable, size_t size, void *address);
void give_back(Lent *lent);
int refuse(const char *what); /* -1, ValueError set */

typedef struct {
    int bag;
    int64_t column, stride;
} Member;

typedef struct {
    int64_t buckets, exact, start; /* where its numbers lie in the wide table */
    int members;
    Member member[MEMBERS];
} Cross;

typedef struct {
    const float *weight;
    int64_t rows;
} Wide;

/* Add the weight of a combination's number, as training/crosses.py has it; 0 where the table has no such row. */
int weigh_number(const Wide *wide, const Cross *cross, int64_t number, float *sum);

typedef enum { DONE, NO_MEMORY, NO_ROW } Outcome;
PyObject *failed(Outcome outcome); /* NULL, MemoryError or IndexError set */

/* Memory for two blocks of rows of so many bytes: `*memory` to be freed, and its first aligned place. */
char *two_blocks(int64_t stride, char **memory);
/* Bytes of a row of so many floats. A line more than needed: rows that lie a power of two apart would meet in the same
 * places of the cache. */
int64_t stride_of(int64_t widest);

extern PyTypeObject SideType, JoinType;
#endif

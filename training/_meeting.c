/* Where the processes of one machine wait for each other: a number in shared memory for each, a cache line apart.
 *
 * A collective of a network library takes some 100 us even over loopback; this takes one or two where all come in time.
 */
#define _GNU_SOURCE
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define APART 8           /* int64 from one process's number to the next */
#define SPINS 20000       /* looks before the core is offered to others: some 0.3 ms */
#define YIELDS 2000       /* offers of the core before sleeping: a process that shares it must not wait for this one */
#define NAP 100000        /* ns */
#define NAPS 1000         /* then the caller sees whether the others live, and whether a signal came */

#if defined(__x86_64__) || defined(__i386__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() (void)0
#endif

/* meet(numbers, rank, size, number): tells that this process has come to meeting `number` and waits for the others.
 * Returns -1 where all have come, after about 0.1 s the rank of one that has not. What a process wrote before it came
 * is seen by all who left. */
PyObject *meet(PyObject *self, PyObject *arguments) {
    long long numbers, number;
    int rank, size, missing = -1;
    if (!PyArg_ParseTuple(arguments, "LiiL", &numbers, &rank, &size, &number)) return NULL;
    int64_t *first = (int64_t *)numbers;
    Py_BEGIN_ALLOW_THREADS
    __atomic_store_n(first + APART * rank, (int64_t)number, __ATOMIC_RELEASE);
    int64_t looks = 0;
    for (int other = 0; other < size && missing < 0; other++)
        while (__atomic_load_n(first + APART * other, __ATOMIC_ACQUIRE) < number) {
            if (++looks < SPINS) {
                RELAX();
            } else if (looks < SPINS + YIELDS) {
                sched_yield();
            } else if (looks < SPINS + YIELDS + NAPS) {
                struct timespec nap = {0, NAP};
                nanosleep(&nap, NULL);
            } else {
                missing = other;
                break;
            }
        }
    Py_END_ALLOW_THREADS
    return PyLong_FromLong(missing);
}

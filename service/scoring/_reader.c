/* Rows of a request, and item ids, straight from their JSON to numbers and ids; and the look-up of many keys.
 *
 * It reads the ordinary alone: a list of flat objects whose names it knows, with numbers, plain strings and null; or a
 * list of numbers or plain strings. For everything else `read` and `read_keys` give None, and reader.py's caller goes
 * the long way, which says what is wrong. So it may refuse what is right, but must never read what is wrong, nor read
 * anything in another way: rows.py is the measure.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { NUMBER, INTEGER, TEXT, OTHER };        /* as in reader.py */
enum { ABSENT = -1, EMPTY = -2, UNKNOWN = 0 }; /* as in index.py and layout.py */
#define NOTHING INT64_MIN
#define SPREAD UINT64_C(0x9E3779B97F4A7C15)
#define AHEAD 8 /* keys whose place is fetched while others are looked up */
#define MAX_NUMBER 64 /* bytes; a longer one is out of the ordinary */

typedef struct {
    const char *text; /* borrowed from `Reader.names` */
    Py_ssize_t size;
    int kind;
    Py_ssize_t place; /* the column of numerics, or of ids */
    uint64_t salt;
    int64_t missing; /* the id of a value that is not there */
    int part;        /* of a row in two objects: which one has it */
    uint64_t seen;   /* the number of the last row that had it */
} Name;

typedef struct {
    PyObject_HEAD
    PyObject *names;
    Name *table;
    Py_ssize_t count, numerics, ids;
    Py_ssize_t *order; /* which name stood at each place of the last row: the next one has it there too */
    Py_buffer keys, values;
    int bits, held;
    int64_t reach;
    uint64_t row;
} Reader;

typedef struct {
    const char *at, *end;
} Text;

/* What is read so far: R rows of numerics (R, N), ids (R, I); keys (names,) are of the row that is being read. */
typedef struct {
    double *numerics;
    int64_t *ids;
    uint64_t *keys;
    uint8_t *found; /* of each name in this row: 0 missing, 1 there */
    int64_t *unknown, *missing;
    Py_ssize_t rows, room;
} Block;

static inline void skip_space(Text *text) {
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t' || *text->at == '\r'))
        text->at++;
}

static inline int take(Text *text, char wanted) {
    skip_space(text);
    if (text->at >= text->end || *text->at != wanted)
        return 0;
    text->at++;
    return 1;
}

static inline int take_word(Text *text, const char *word, Py_ssize_t size) {
    if (text->end - text->at < size || memcmp(text->at, word, (size_t)size) != 0)
        return 0;
    text->at += size;
    return 1;
}

/* A string without escapes: where it begins and how long it is. The opening quote is behind us. */
static inline int take_string(Text *text, const char **start, Py_ssize_t *size) {
    const char *at = text->at;
    while (at < text->end && *at != '"') {
        if (*at == '\\' || (unsigned char)*at < 0x20)
            return 0;
        at++;
    }
    if (at >= text->end)
        return 0;
    *start = text->at;
    *size = at - text->at;
    text->at = at + 1;
    return 1;
}

static inline int is_digit(const Text *text) {
    return text->at < text->end && *text->at >= '0' && *text->at <= '9';
}

typedef struct {
    int whole; /* no fraction and no exponent: `integer` is it */
    int64_t integer;
    double value;
} Number;

static const double POWERS[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* A number by JSON's grammar, rounded as Python rounds it. A whole one of more than 18 digits is out of the ordinary. */
static int take_number(Text *text, Number *number) {
    const char *start = text->at;
    int negative = text->at < text->end && *text->at == '-';
    uint64_t digits = 0;
    int count = 0, scale = 0;
    text->at += negative;
    if (!is_digit(text) || (*text->at == '0' && text->at + 1 < text->end && text->at[1] >= '0' && text->at[1] <= '9'))
        return 0;
    for (; is_digit(text); text->at++, count++)
        digits = digits * 10 + (uint64_t)(*text->at - '0'); /* wraps beyond 19 digits, which `count` tells */
    number->whole = 1;
    if (text->at < text->end && *text->at == '.') {
        number->whole = 0;
        text->at++;
        if (!is_digit(text))
            return 0;
        for (; is_digit(text); text->at++, count++, scale--)
            digits = digits * 10 + (uint64_t)(*text->at - '0');
    }
    if (text->at < text->end && (*text->at == 'e' || *text->at == 'E')) {
        int sign = 1, exponent = 0;
        number->whole = 0;
        text->at++;
        if (text->at < text->end && (*text->at == '+' || *text->at == '-'))
            sign = *text->at++ == '-' ? -1 : 1;
        if (!is_digit(text))
            return 0;
        for (; is_digit(text); text->at++)
            exponent = exponent < 10000 ? exponent * 10 + (*text->at - '0') : exponent;
        scale += sign * exponent;
    }
    if (text->at - start > MAX_NUMBER || (number->whole && count > 18))
        return 0;
    if (number->whole) {
        number->integer = negative ? -(int64_t)digits : (int64_t)digits;
        number->value = (double)number->integer;
        return 1;
    }
    if (count <= 18 && digits <= (UINT64_C(1) << 53) && scale >= -22 && scale <= 22) {
        /* Both exact, so their quotient or product is rounded once (Clinger 1990). */
        double value = scale < 0 ? (double)digits / POWERS[-scale] : (double)digits * POWERS[scale];
        number->value = negative ? -value : value;
    } else {
        char copy[MAX_NUMBER + 1];
        memcpy(copy, start, (size_t)(text->at - start));
        copy[text->at - start] = 0;
        number->value = PyOS_string_to_double(copy, NULL, NULL);
        if (PyErr_Occurred()) {
            PyErr_Clear();
            return 0;
        }
    }
    return isfinite(number->value);
}

/* The integer that a text writes in its one canonical form, else NOTHING; 0 where it may be one of 19 digits. */
static int whole_of(const char *start, Py_ssize_t size, int64_t *integer) {
    int negative = size > 0 && *start == '-';
    const char *at = start + negative, *end = start + size;
    uint64_t digits = 0;
    *integer = NOTHING;
    if (at == end || (*at == '0' && (negative || end - at > 1)))
        return 1;
    if (end - at > 18)
        return 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 1;
        digits = digits * 10 + (uint64_t)(*at - '0');
    }
    *integer = negative ? -(int64_t)digits : (int64_t)digits;
    return 1;
}

static Py_ssize_t find_name(Reader *self, const char *start, Py_ssize_t size, Py_ssize_t place) {
    Py_ssize_t guess = place < self->count ? self->order[place] : 0;
    Name *name = &self->table[guess];
    if (name->size == size && memcmp(name->text, start, (size_t)size) == 0)
        return guess;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        name = &self->table[n];
        if (name->size == size && memcmp(name->text, start, (size_t)size) == 0) {
            if (place < self->count)
                self->order[place] = n;
            return n;
        }
    }
    return -1;
}

static inline void expect(const Reader *self, uint64_t key) {
    uint64_t place = key >> (64 - self->bits);
    __builtin_prefetch((const uint64_t *)self->keys.buf + place);
    __builtin_prefetch((const int32_t *)self->values.buf + place);
}

static inline int64_t look_up(const Reader *self, uint64_t key) {
    const uint64_t *keys = self->keys.buf;
    uint64_t place = key >> (64 - self->bits);
    for (int64_t step = 0; step <= self->reach; step++, place++)
        if (keys[place] == key)
            return ((const int32_t *)self->values.buf)[place];
    return ABSENT;
}

/* Python's own hash of a text, as index.py has it; 0 where it is no UTF-8. */
static int hash_text(const char *start, Py_ssize_t size, uint64_t *hash) {
    PyObject *text = PyUnicode_DecodeUTF8(start, size, NULL);
    if (text == NULL) {
        PyErr_Clear();
        return 0;
    }
    *hash = (uint64_t)PyObject_Hash(text);
    Py_DECREF(text);
    return 1;
}

/* A category's key; 0 where the value is out of the ordinary. `*there` is whether there is one. */
static int take_category(Text *text, const Name *name, uint64_t *key, uint8_t *there) {
    const char *start;
    Py_ssize_t size;
    Number number;
    if (text->at >= text->end)
        return 0;
    if (*text->at == '"') {
        text->at++;
        if (!take_string(text, &start, &size))
            return 0;
        if (name->kind == INTEGER) {
            int64_t integer;
            for (Py_ssize_t n = 0; n < size; n++)
                if ((unsigned char)start[n] >= 0x80)
                    return 0; /* other digits, or no UTF-8 */
            if (!whole_of(start, size, &integer))
                return 0;
            /* int() takes spaces, signs and underscores that a canonical form has not: all of that is NOTHING. */
            *there = size > 0;
            *key = ((uint64_t)integer * SPREAD) ^ name->salt;
            return 1;
        }
        if (!hash_text(start, size, key))
            return 0;
        *there = 1; /* the empty text is a key too */
        *key ^= name->salt;
        return 1;
    }
    if (name->kind == TEXT || !take_number(text, &number) || !number.whole)
        return 0;
    *there = 1;
    *key = ((uint64_t)number.integer * SPREAD) ^ name->salt;
    return 1;
}

/* What no feature needs, as long as it is simple. */
static int skip_value(Text *text) {
    const char *start;
    Py_ssize_t size;
    Number number;
    uint64_t hash;
    if (text->at >= text->end)
        return 0;
    if (*text->at == '"') {
        text->at++;
        if (!take_string(text, &start, &size))
            return 0;
        return hash_text(start, size, &hash);
    }
    return take_number(text, &number);
}

static int take_value(Reader *self, Text *text, Block *block, Py_ssize_t n) {
    Name *name = &self->table[n];
    skip_space(text);
    if (take_word(text, "null", 4))
        return 1;
    if (name->kind == OTHER)
        return skip_value(text);
    if (name->kind == NUMBER) {
        Number number;
        if (!take_number(text, &number))
            return 0;
        block->numerics[block->rows * self->numerics + name->place] = number.value;
        block->found[n] = 1;
        return 1;
    }
    if (!take_category(text, name, &block->keys[n], &block->found[n]))
        return 0;
    if (block->found[n])
        expect(self, block->keys[n]);
    return 1;
}

static void settle_row(Reader *self, Block *block) {
    int64_t *ids = block->ids + block->rows * self->ids;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        Name *name = &self->table[n];
        if (name->kind == OTHER)
            continue;
        if (name->kind == NUMBER) {
            block->missing[n] += !block->found[n];
            continue;
        }
        int64_t id = block->found[n] ? look_up(self, block->keys[n]) : EMPTY;
        if (id == EMPTY) {
            block->missing[n]++;
            id = name->missing;
        } else if (id < 0) {
            block->unknown[n]++;
            id = UNKNOWN;
        }
        ids[name->place] = id;
    }
}

static int grow(Reader *self, Block *block) {
    if (block->rows < block->room)
        return 1;
    Py_ssize_t room = block->room * 2;
    void *numerics = PyMem_Realloc(block->numerics, (size_t)(room * self->numerics + 1) * sizeof(double));
    if (numerics != NULL)
        block->numerics = numerics;
    void *ids = numerics == NULL ? NULL : PyMem_Realloc(block->ids, (size_t)(room * self->ids + 1) * sizeof(int64_t));
    if (ids != NULL)
        block->ids = ids;
    if (ids == NULL)
        return 0;
    block->room = room;
    return 1;
}

static int open_row(Reader *self, Block *block) {
    if (!grow(self, block))
        return 0;
    self->row++;
    for (Py_ssize_t n = 0; n < self->numerics; n++)
        block->numerics[block->rows * self->numerics + n] = NAN;
    memset(block->found, 0, (size_t)self->count);
    return 1;
}

/* An object of a row's names: all of one part, or of any where `part` is negative. */
static int take_object(Reader *self, Text *text, Block *block, int part) {
    Py_ssize_t place = 0;
    if (!take(text, '{'))
        return 0;
    if (take(text, '}'))
        return 1;
    do {
        const char *start;
        Py_ssize_t size, n;
        if (!take(text, '"') || !take_string(text, &start, &size))
            return 0;
        n = find_name(self, start, size, place++);
        if (n < 0 || self->table[n].seen == self->row || !take(text, ':'))
            return 0; /* a name that is not known here, or twice */
        if (part >= 0 && self->table[n].part != part)
            return 0;
        self->table[n].seen = self->row;
        if (!take_value(self, text, block, n))
            return 0;
    } while (take(text, ','));
    return take(text, '}');
}

static int take_row(Reader *self, Text *text, Block *block) {
    if (!open_row(self, block) || !take_object(self, text, block, -1))
        return 0;
    settle_row(self, block);
    block->rows++;
    return 1;
}

static int take_rows(Reader *self, Text *text, Block *block, Py_ssize_t most) {
    if (!take(text, '['))
        return 0;
    do {
        if (block->rows >= most || !take_row(self, text, block))
            return 0;
    } while (take(text, ','));
    if (!take(text, ']'))
        return 0;
    skip_space(text);
    return text->at == text->end;
}

static int open_block(Reader *self, Block *block) {
    size_t names = (size_t)self->count + 1;
    block->room = 1;
    block->numerics = PyMem_Malloc((size_t)(self->numerics + 1) * sizeof(double));
    block->ids = PyMem_Malloc((size_t)(self->ids + 1) * sizeof(int64_t));
    block->keys = PyMem_Calloc(names, sizeof(uint64_t));
    block->found = PyMem_Calloc(names, 1);
    block->unknown = PyMem_Calloc(names, sizeof(int64_t));
    block->missing = PyMem_Calloc(names, sizeof(int64_t));
    return block->numerics && block->ids && block->keys && block->found && block->unknown && block->missing;
}

static void close_block(Block *block) {
    PyMem_Free(block->numerics);
    PyMem_Free(block->ids);
    PyMem_Free(block->keys);
    PyMem_Free(block->found);
    PyMem_Free(block->unknown);
    PyMem_Free(block->missing);
}

/* {name: count} of what is not 0. */
static PyObject *counts(const Reader *self, const int64_t *found) {
    PyObject *result = PyDict_New();
    for (Py_ssize_t n = 0; result != NULL && n < self->count; n++) {
        if (found[n] == 0)
            continue;
        PyObject *count = PyLong_FromLongLong(found[n]);
        if (count == NULL || PyDict_SetItem(result, PyTuple_GET_ITEM(self->names, n), count) < 0)
            Py_CLEAR(result);
        Py_XDECREF(count);
    }
    return result;
}

static PyObject *result_of(const Reader *self, const Block *block) {
    PyObject *unknown = counts(self, block->unknown), *missing = counts(self, block->missing), *result = NULL;
    if (unknown != NULL && missing != NULL)
        result = Py_BuildValue("ny#y#OO", block->rows, (const char *)block->numerics,
                               block->rows * self->numerics * (Py_ssize_t)sizeof(double), (const char *)block->ids,
                               block->rows * self->ids * (Py_ssize_t)sizeof(int64_t), unknown, missing);
    Py_XDECREF(unknown);
    Py_XDECREF(missing);
    return result;
}

static int take_whole_object(Reader *self, const Py_buffer *data, Block *block, int part) {
    Text text = {data->buf, (const char *)data->buf + data->len};
    if (!take_object(self, &text, block, part))
        return 0;
    skip_space(&text);
    return text.at == text.end;
}

static int check_filled(const Reader *self) {
    if (!self->held)
        PyErr_SetString(PyExc_RuntimeError, "the reader was never filled");
    return self->held;
}

static PyObject *Reader_read(Reader *self, PyObject *args) {
    Py_buffer data;
    Py_ssize_t most;
    if (!check_filled(self) || !PyArg_ParseTuple(args, "y*n", &data, &most))
        return NULL;
    Block block = {0};
    PyObject *result = NULL;
    if (!open_block(self, &block)) {
        PyErr_NoMemory();
    } else {
        Text text = {data.buf, (const char *)data.buf + data.len};
        if (take_rows(self, &text, &block, most))
            result = result_of(self, &block);
        else
            result = Py_NewRef(Py_None);
    }
    close_block(&block);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *Reader_read_parts(Reader *self, PyObject *args) {
    Py_buffer first, second;
    if (!check_filled(self) || !PyArg_ParseTuple(args, "y*y*", &first, &second))
        return NULL;
    Block block = {0};
    PyObject *result = NULL;
    if (!open_block(self, &block)) {
        PyErr_NoMemory();
    } else if (open_row(self, &block) && take_whole_object(self, &first, &block, 0) &&
               take_whole_object(self, &second, &block, 1)) {
        settle_row(self, &block);
        block.rows++;
        result = result_of(self, &block);
    } else {
        result = Py_NewRef(Py_None);
    }
    close_block(&block);
    PyBuffer_Release(&first);
    PyBuffer_Release(&second);
    return result;
}

static int fill_table(Reader *self, PyObject *plan) {
    self->count = PyTuple_GET_SIZE(plan);
    self->table = PyMem_Calloc((size_t)self->count + 1, sizeof(Name));
    self->order = PyMem_Calloc((size_t)self->count + 1, sizeof(Py_ssize_t));
    self->names = PyTuple_New(self->count);
    if (self->table == NULL || self->order == NULL || self->names == NULL)
        return -1;
    for (Py_ssize_t n = 0; n < self->count; n++) {
        Name *name = &self->table[n];
        PyObject *text;
        unsigned long long salt;
        long long missing;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(plan, n), "UinKLi", &text, &name->kind, &name->place, &salt, &missing,
                              &name->part))
            return -1;
        PyTuple_SET_ITEM(self->names, n, Py_NewRef(text));
        name->text = PyUnicode_AsUTF8AndSize(text, &name->size);
        if (name->text == NULL)
            return -1;
        name->salt = salt;
        name->missing = missing;
        if (name->kind < NUMBER || name->kind > OTHER || name->place < 0 ||
            (name->kind == NUMBER && name->place >= self->numerics) ||
            ((name->kind == INTEGER || name->kind == TEXT) && name->place >= self->ids)) {
            PyErr_SetString(PyExc_ValueError, "a name's place is outside of its columns");
            return -1;
        }
    }
    return 0;
}

static int check_index(Reader *self) {
    Py_ssize_t size = self->keys.len / 8;
    if (self->bits < 1 || self->bits > 40 || self->reach < 0 || self->values.len / 4 != size ||
        size < ((Py_ssize_t)1 << self->bits) + self->reach) {
        PyErr_SetString(PyExc_ValueError, "the index is smaller than it says");
        return -1;
    }
    return 0;
}

static int Reader_init(Reader *self, PyObject *args, PyObject *kwargs) {
    PyObject *plan, *keys, *values;
    long long reach;
    if (self->held || kwargs != NULL) {
        PyErr_SetString(PyExc_TypeError, "a reader is filled once, by place");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "O!nnOOiL", &PyTuple_Type, &plan, &self->numerics, &self->ids, &keys, &values,
                          &self->bits, &reach))
        return -1;
    self->reach = reach;
    if (self->numerics < 0 || self->ids < 0 || fill_table(self, plan) < 0)
        return PyErr_Occurred() ? -1 : (PyErr_NoMemory(), -1);
    if (PyObject_GetBuffer(keys, &self->keys, PyBUF_SIMPLE) < 0)
        return -1;
    if (PyObject_GetBuffer(values, &self->values, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&self->keys);
        return -1;
    }
    self->held = 1;
    return check_index(self);
}

static void Reader_dealloc(Reader *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->held) {
        PyBuffer_Release(&self->keys);
        PyBuffer_Release(&self->values);
    }
    PyMem_Free(self->table);
    PyMem_Free(self->order);
    Py_XDECREF(self->names);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* read_keys(data, integers, most): the unsalted key of each category of a list, in bytes; or None. */
static PyObject *read_keys(PyObject *module, PyObject *args) {
    Py_buffer data;
    int integers;
    Py_ssize_t most, count = 0, room;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*pn", &data, &integers, &most))
        return NULL;
    Text text = {data.buf, (const char *)data.buf + data.len};
    Name column = {.kind = integers ? INTEGER : TEXT};
    room = data.len / 2 + 1; /* each is a byte at least, and a comma */
    if (room > most)
        room = most > 0 ? most : 0;
    uint64_t *keys = PyMem_Malloc(((size_t)room + 1) * sizeof(uint64_t));
    PyObject *result = NULL;
    if (keys == NULL) {
        PyErr_NoMemory();
    } else {
        int right = take(&text, '[');
        do {
            uint8_t there = 0;
            if (right)
                skip_space(&text);
            right = right && count < room && take_category(&text, &column, &keys[count], &there) && there;
            count++;
        } while (right && take(&text, ','));
        right = right && take(&text, ']');
        skip_space(&text);
        if (right && text.at == text.end)
            result = PyBytes_FromStringAndSize((const char *)keys, count * (Py_ssize_t)sizeof(uint64_t));
        else
            result = Py_NewRef(Py_None);
    }
    PyMem_Free(keys);
    PyBuffer_Release(&data);
    return result;
}

/* find(keys, values, bits, reach, wanted, salt): a number for each wanted key, in bytes; as KeyIndex.find. */
static PyObject *find(PyObject *module, PyObject *args) {
    Py_buffer wanted;
    PyObject *keys, *values, *result = NULL;
    unsigned long long salt;
    long long reach;
    Reader index = {0};
    (void)module;
    if (!PyArg_ParseTuple(args, "OOiLy*K", &keys, &values, &index.bits, &reach, &wanted, &salt))
        return NULL;
    index.reach = reach;
    if (PyObject_GetBuffer(keys, &index.keys, PyBUF_SIMPLE) == 0) {
        if (PyObject_GetBuffer(values, &index.values, PyBUF_SIMPLE) == 0) {
            Py_ssize_t count = wanted.len / 8;
            const uint64_t *key = wanted.buf;
            if (check_index(&index) == 0)
                result = PyBytes_FromStringAndSize(NULL, count * (Py_ssize_t)sizeof(int32_t));
            if (result != NULL) {
                int32_t *found = (int32_t *)PyBytes_AS_STRING(result);
                for (Py_ssize_t n = 0; n < count; n++) {
                    if (n + AHEAD < count)
                        expect(&index, key[n + AHEAD] ^ salt);
                    found[n] = (int32_t)look_up(&index, key[n] ^ salt);
                }
            }
            PyBuffer_Release(&index.values);
        }
        PyBuffer_Release(&index.keys);
    }
    PyBuffer_Release(&wanted);
    return result;
}

static PyMethodDef functions[] = {
    {"find", find, METH_VARARGS,
     "find(keys, values, bits, reach, wanted, salt): the numbers of wanted keys, once salted, in an index."},
    {"read_keys", read_keys, METH_VARARGS,
     "read_keys(data, integers, most): the key of each category of a list, or None where one is out of the ordinary."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef Reader_methods[] = {
    {"read", (PyCFunction)Reader_read, METH_VARARGS,
     "read(data, most): (rows, numerics, ids, unknown, missing), or None where something is out of the ordinary."},
    {"read_parts", (PyCFunction)Reader_read_parts, METH_VARARGS,
     "read_parts(first, second): the same of one row in two objects, each with the names of its own part."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot Reader_slots[] = {
    {Py_tp_init, Reader_init},
    {Py_tp_dealloc, Reader_dealloc},
    {Py_tp_methods, Reader_methods},
    {Py_tp_new, PyType_GenericNew},
    {0, NULL},
};

static PyType_Spec Reader_spec = {
    .name = "service.scoring._reader.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = Reader_slots,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_reader", .m_doc = "Rows of a request from JSON, see reader.py.", .m_size = 0,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__reader(void) {
    PyObject *made = PyModule_Create(&module);
    PyObject *type = made == NULL ? NULL : PyType_FromSpec(&Reader_spec);
    if (type == NULL || PyModule_AddObjectRef(made, "Reader", type) < 0)
        Py_CLEAR(made);
    Py_XDECREF(type);
    return made;
}

/* Runs calls of native functions as a file says, on buffers that end at a page that may not be touched.

   Input, 64-bit integers but for contents: the number of buffers; of each its bytes, its alignment and its content;
   the number of pointers; of each the buffer and offset where it is to be written, and the buffer that it points to;
   the number of calls; of each the function, its threads and its arguments, and for each thread every argument as a
   buffer and an offset, or -1 and a number; the number of outputs, and of each its buffer, whose bytes are written.
   Threads of one call run at the same time. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MOST_ARGUMENTS = 96, MOST_THREADS = 8, PAGE = 4096 };
typedef int64_t word;
typedef void function(); /* of any number of words: those too many are nobody's */
extern function *const functions[];

#define FOUR(i) a[i], a[i + 1], a[i + 2], a[i + 3]
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)

struct call {
    function *run;
    word a[MOST_ARGUMENTS];
};

static word number(FILE *in) {
    word value;
    if (fread(&value, sizeof value, 1, in) != 1) {
        fprintf(stderr, "the input ends early\n");
        exit(3);
    }
    return value;
}

static char *buffer(word nbytes, word align) {
    word size = (nbytes + align + PAGE - 1) / PAGE * PAGE;
    char *start = mmap(0, size + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED || mprotect(start + size, PAGE, PROT_NONE)) {
        perror("memory");
        exit(3);
    }
    memset(start, 0xC5, size);
    return start + (size - nbytes) / align * align;
}

static void *run(void *data) {
    struct call *c = data;
    word *a = c->a;
    c->run(SIXTEEN(0), SIXTEEN(16), SIXTEEN(32), SIXTEEN(48), SIXTEEN(64), SIXTEEN(80));
    return 0;
}

int main(int count, char **argument) {
    FILE *in = count == 3 ? fopen(argument[1], "rb") : 0, *out = count == 3 ? fopen(argument[2], "wb") : 0;
    if (!in || !out)
        return 3;
    word n = number(in);
    char **buffers = calloc(n + 1, sizeof *buffers);
    word *sizes = calloc(n + 1, sizeof *sizes);
    for (word i = 0; i < n; i++) {
        sizes[i] = number(in);
        buffers[i] = buffer(sizes[i], number(in));
        word nbytes = number(in);
        if (nbytes > sizes[i] || fread(buffers[i], 1, nbytes, in) != (size_t)nbytes)
            return 3;
    }
    for (n = number(in); n > 0; n--) {
        word where = number(in), offset = number(in);
        *(char **)(buffers[where] + offset) = buffers[number(in)];
    }
    for (n = number(in); n > 0; n--) {
        struct call calls[MOST_THREADS];
        pthread_t threads[MOST_THREADS];
        function *called = functions[number(in)];
        word n_threads = number(in), n_arguments = number(in);
        if (n_threads > MOST_THREADS || n_arguments > MOST_ARGUMENTS)
            return 3;
        memset(calls, 0, sizeof calls);
        for (word t = 0; t < n_threads; t++) {
            calls[t].run = called;
            for (word i = 0; i < n_arguments; i++) {
                word home = number(in), offset = number(in);
                calls[t].a[i] = home < 0 ? offset : (word)(buffers[home] + offset);
            }
        }
        for (word t = 1; t < n_threads; t++)
            pthread_create(&threads[t], 0, run, &calls[t]);
        run(&calls[0]);
        for (word t = 1; t < n_threads; t++)
            pthread_join(threads[t], 0);
    }
    for (n = number(in); n > 0; n--) {
        word i = number(in);
        fwrite(buffers[i], 1, sizes[i], out);
    }
    return fclose(out) ? 3 : 0;
}

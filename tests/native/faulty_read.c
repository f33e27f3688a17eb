/* A disk with faults: preloaded, it stands before pread of large reads and does what the file in FAULTY_READ says, a
 * word that may change at any time: "short" (a part of what was asked for, whole pages), "odd" (less than a page),
 * "end" (none, as after a file's end), "error" (EIO), "interrupted" (EINTR, every other time), or nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE = 4096 };

static atomic_uint calls;

static void look(char word[16]) {
  const char* path = getenv("FAULTY_READ");
  const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  const ssize_t n = fd >= 0 ? read(fd, word, 15) : 0;
  word[n > 0 ? n : 0] = 0;
  if (fd >= 0) close(fd);
}

static ssize_t faulty(int fd, void* to, size_t bytes, off_t offset) {
  static ssize_t (*real)(int, void*, size_t, off_t);
  char word[16];
  if (!real) real = (ssize_t (*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread64");
  if (bytes % PAGE != 0 || offset % PAGE != 0) return real(fd, to, bytes, offset);
  look(word);
  const unsigned call = atomic_fetch_add(&calls, 1);
  if (strcmp(word, "error") == 0 || (strcmp(word, "interrupted") == 0 && call % 2 == 0)) {
    errno = word[0] == 'e' ? EIO : EINTR;
    return -1;
  }
  if (strcmp(word, "end") == 0) return 0;
  if (strcmp(word, "short") == 0 && bytes > PAGE) bytes = (bytes / PAGE + 1) / 2 * PAGE;
  const ssize_t got = real(fd, to, bytes, offset);
  return strcmp(word, "odd") == 0 && got > 100 ? 100 : got;
}

ssize_t pread(int fd, void* to, size_t bytes, off_t offset) { return faulty(fd, to, bytes, offset); }
ssize_t pread64(int fd, void* to, size_t bytes, off64_t offset) { return faulty(fd, to, bytes, offset); }

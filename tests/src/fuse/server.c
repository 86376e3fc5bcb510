/* FUSE servers that go wrong.
   server silent FOLDER                   says hello, and then takes every question without an answer: whoever asks cannot
                                          even be killed.
   server device FOLDER BACKING CONTROL   has one file, `disk`, with the bytes of BACKING. CONTROL is three 32-bit numbers:
                                          whether reads and writes fail, how many milliseconds each write takes, and
                                          (counted here) how many writes there were.
   Ends with the thread that started it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 1 << 17 };
static char question[MOST + 8192], answer[MOST + 8192];
static int device, backing = -1;
static volatile int32_t *control;

static void reply(uint64_t unique, int error, size_t length) {
    struct fuse_out_header *head = (struct fuse_out_header *)answer;
    *head = (struct fuse_out_header){sizeof *head + (error ? 0 : length), error, unique};
    /* The one who asked may be gone. */
    if (write(device, answer, head->len) < 0 && errno != ENOENT) perror("answer");
}

static void attributes(struct fuse_attr *attr, uint64_t node) {
    struct stat file;
    fstat(backing, &file);
    *attr = (struct fuse_attr){.ino = node, .nlink = 1, .blksize = 4096, .mode = node == 1 ? S_IFDIR | 0700 : S_IFREG | 0600,
                               .size = node == 1 ? 0 : file.st_size, .blocks = node == 1 ? 0 : file.st_blocks};
}

static void serve(struct fuse_in_header *head) {
    void *in = head + 1, *out = answer + sizeof(struct fuse_out_header);
    size_t length = 0;
    int error = 0;
    memset(answer, 0, 512);
    switch (head->opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_INIT: {
        struct fuse_init_in *asked = in;
        struct fuse_init_out *init = out;
        *init = (struct fuse_init_out){
            .major = FUSE_KERNEL_VERSION, .max_readahead = asked->max_readahead, .max_write = MOST, .flags = FUSE_BIG_WRITES, .max_background = 16,
            .minor = asked->minor < FUSE_KERNEL_MINOR_VERSION ? asked->minor : FUSE_KERNEL_MINOR_VERSION};
        length = sizeof *init;
        break;
    }
    case FUSE_LOOKUP:
        if (strcmp(in, "disk")) {
            error = -ENOENT;
            break;
        }
        ((struct fuse_entry_out *)out)->nodeid = 2;
        attributes(&((struct fuse_entry_out *)out)->attr, 2);
        length = sizeof(struct fuse_entry_out);
        break;
    case FUSE_GETATTR:
    case FUSE_SETATTR:
        attributes(&((struct fuse_attr_out *)out)->attr, head->nodeid);
        length = sizeof(struct fuse_attr_out);
        break;
    case FUSE_OPEN:
    case FUSE_OPENDIR:
        length = sizeof(struct fuse_open_out);
        break;
    case FUSE_READ: {
        struct fuse_read_in *read = in;
        ssize_t got = control[0] ? -1 : pread(backing, out, read->size, read->offset);
        error = got < 0 ? -EIO : 0;
        length = got;
        break;
    }
    case FUSE_WRITE: {
        struct fuse_write_in *write = in;
        control[2]++;
        if (control[1]) usleep(control[1] * 1000);
        ssize_t put = control[0] ? -1 : pwrite(backing, write + 1, write->size, write->offset);
        error = put < 0 ? -EIO : 0;
        ((struct fuse_write_out *)out)->size = put;
        length = sizeof(struct fuse_write_out);
        break;
    }
    case FUSE_FSYNC:
        error = control[0] ? -EIO : 0;
        break;
    case FUSE_STATFS:
        length = sizeof(struct fuse_statfs_out);
        break;
    case FUSE_FLUSH:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_DESTROY:
        break;
    case FUSE_FALLOCATE:
        error = -EOPNOTSUPP;
        break;
    default:
        error = -ENOSYS;
    }
    reply(head->unique, error, length);
}

int main(int count, char **words) {
    char options[128];
    int silent = count == 3 && !strcmp(words[1], "silent");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!silent && (count != 5 || strcmp(words[1], "device"))) return 2;
    if (!silent) {
        int file = open(words[4], O_RDWR);
        backing = open(words[3], O_RDWR);
        if (file < 0 || backing < 0) return perror("files"), 2;
        control = mmap(NULL, 12, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (control == MAP_FAILED) return perror("mmap"), 2;
    }
    device = open("/dev/fuse", O_RDWR);
    if (device < 0) return perror("/dev/fuse"), 2;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount(words[1], words[2], "fuse", MS_NOSUID | MS_NODEV, options)) return perror("mount"), 2;
    for (;;) {
        ssize_t length = read(device, question, sizeof question);
        if (length < 0 && (errno == EINTR || errno == ENOENT)) continue;
        if (length < 0) return perror("read"), 1;
        struct fuse_in_header *head = (struct fuse_in_header *)question;
        if (head->opcode == FUSE_INIT || !silent) serve(head);
    }
}

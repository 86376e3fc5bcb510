/* A FUSE server that says hello and then takes every question without an answer: whoever asks cannot even be killed.
   silent FOLDER */
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int count, char **words) {
    char options[128], question[1 << 17];
    int device = open("/dev/fuse", O_RDWR);
    if (count != 2 || device < 0) return perror("/dev/fuse"), 2;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
    if (mount("silent", words[1], "fuse", MS_NOSUID | MS_NODEV, options)) return perror("mount"), 2;
    for (;;) {
        ssize_t length = read(device, question, sizeof question);
        if (length < 0) return perror("read"), 1;
        struct fuse_in_header *head = (struct fuse_in_header *)question;
        if (head->opcode != FUSE_INIT) continue;
        struct fuse_init_in *asked = (struct fuse_init_in *)(head + 1);
        struct { struct fuse_out_header head; struct fuse_init_out init; } answer = {
            {sizeof answer, 0, head->unique},
            {.major = FUSE_KERNEL_VERSION, .minor = asked->minor < FUSE_KERNEL_MINOR_VERSION ? asked->minor : FUSE_KERNEL_MINOR_VERSION,
             .max_readahead = asked->max_readahead, .max_write = 4096}};
        if (write(device, &answer, sizeof answer) < 0) return perror("hello"), 1;
    }
}

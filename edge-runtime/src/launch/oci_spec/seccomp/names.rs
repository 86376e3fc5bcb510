//! Names of the system calls that `RuntimeDefault` lets through, by what they are for. A name that this kernel or
//! libseccomp does not know is skipped by the OCI runtime.

use oci_spec::runtime::Capability;

/// Allowed for every process.
pub(super) const ALWAYS: &str = "
    read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek _llseek readahead close close_range
    open openat openat2 creat dup dup2 dup3 pipe pipe2 fcntl fcntl64 ioctl flock
    sendfile sendfile64 copy_file_range splice tee vmsplice
    stat stat64 lstat lstat64 fstat fstat64 fstatat64 newfstatat statx statfs statfs64 fstatfs fstatfs64
    statmount listmount access faccessat faccessat2 name_to_handle_at cachestat
    chmod fchmod fchmodat fchmodat2 chown chown32 fchown fchown32 fchownat lchown lchown32 umask
    utime utimes utimensat utimensat_time64 futimesat truncate truncate64 ftruncate ftruncate64 fallocate
    fadvise64 fadvise64_64 sync syncfs fsync fdatasync sync_file_range sync_file_range2
    chdir fchdir getcwd mkdir mkdirat mknod mknodat rmdir link linkat symlink symlinkat readlink readlinkat
    rename renameat renameat2 unlink unlinkat readdir getdents getdents64
    getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr setxattrat
    listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat
    inotify_init inotify_init1 inotify_add_watch inotify_rm_watch fanotify_mark
    select _newselect pselect6 pselect6_time64 poll ppoll ppoll_time64
    epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_wait epoll_wait_old epoll_pwait epoll_pwait2
    eventfd eventfd2 signalfd signalfd4
    io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents io_pgetevents_time64
    brk mmap mmap2 munmap mprotect mremap msync madvise mincore mlock mlock2 mlockall munlock munlockall mseal
    map_shadow_stack remap_file_pages memfd_create memfd_secret membarrier pkey_alloc pkey_free pkey_mprotect
    fork vfork execve execveat exit exit_group wait4 waitid waitpid kill tkill tgkill
    pidfd_open pidfd_send_signal process_mrelease process_vm_readv process_vm_writev ptrace
    getpid getppid gettid getpgid getpgrp setpgid getsid setsid
    getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getresuid getresuid32 getresgid getresgid32
    getgroups getgroups32 setuid setuid32 setgid setgid32 setreuid setreuid32 setregid setregid32
    setresuid setresuid32 setresgid setresgid32 setfsuid setfsuid32 setfsgid setfsgid32 setgroups setgroups32
    capget capset prctl seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
    lsm_get_self_attr lsm_list_modules
    getpriority setpriority getrlimit ugetrlimit setrlimit prlimit64 getrusage ioprio_get ioprio_set
    sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam
    sched_getscheduler sched_setscheduler sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval sched_rr_get_interval_time64 getcpu
    futex futex_time64 futex_wait futex_wake futex_requeue futex_waitv get_robust_list set_robust_list
    set_tid_address get_thread_area set_thread_area rseq restart_syscall
    sigaction sigaltstack signal sigpending sigprocmask sigreturn sigsuspend pause alarm
    rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
    rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo
    time times gettimeofday getitimer setitimer nanosleep adjtimex clock_adjtime clock_adjtime64
    clock_getres clock_getres_time64 clock_gettime clock_gettime64 clock_nanosleep clock_nanosleep_time64
    timer_create timer_delete timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
    timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
    socketpair socketcall bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt
    send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg recvmmsg_time64
    ipc msgctl msgget msgrcv msgsnd semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
    mq_open mq_unlink mq_notify mq_getsetattr mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64
    uname sysinfo getrandom";

/// Calls allowed with a capability: those that fail without it, or that allow much more than it.
pub(super) const WITH: &[(Capability, &str)] = &[
    (Capability::DacReadSearch, "open_by_handle_at"),
    (
        Capability::SysAdmin,
        "bpf clone clone3 fanotify_init fsconfig fsmount fsopen fspick lookup_dcookie mount mount_setattr move_mount
         open_tree open_tree_attr perf_event_open quotactl quotactl_fd setdomainname sethostname setns syslog
         umount umount2 unshare",
    ),
    (Capability::SysBoot, "reboot"),
    (Capability::SysChroot, "chroot"),
    (Capability::SysModule, "delete_module init_module finit_module"),
    (Capability::SysPacct, "acct"),
    (Capability::SysPtrace, "kcmp pidfd_getfd process_madvise"),
    (Capability::SysRawio, "iopl ioperm"),
    (Capability::SysTime, "settimeofday stime clock_settime clock_settime64"),
    (Capability::SysTtyConfig, "vhangup"),
    (Capability::SysNice, "get_mempolicy mbind set_mempolicy set_mempolicy_home_node"),
    (Capability::Syslog, "syslog"),
    (Capability::Bpf, "bpf"),
    (Capability::Perfmon, "perf_event_open"),
];

pub(super) fn of_architecture(arch: &str) -> &'static str {
    match arch {
        "x86_64" | "x86" => "arch_prctl modify_ldt uretprobe",
        "aarch64" | "arm" => "arm_fadvise64_64 arm_sync_file_range breakpoint cacheflush set_tls",
        _ => "",
    }
}

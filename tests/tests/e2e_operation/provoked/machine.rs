//! The machine itself: the user, its cgroups, kernel, clock, board and limits.

use sampan_tests::{FakeClock, can_run};

use crate::assert_provoked;
use crate::stage::Stage;

/// Lines of `/proc/meminfo` for a machine with this much memory, in kB.
fn meminfo(total: u64, available: u64, swap: u64) -> String {
    format!(
        "MemTotal: {total} kB\nMemFree: 1000 kB\nMemAvailable: {available} kB\nSwapTotal: {swap} kB\nSwapFree: 0 kB\n"
    )
}

#[test]
fn a_stranger_is_told_that_he_sees_little() {
    if can_run() {
        let stage = Stage::new().by("setpriv --reuid 65534 --regid 65534 --clear-groups");
        assert_provoked(&stage.examined(), "rights", "warning", "as root", "sudo edge-runtime doctor");
    }
}

#[test]
fn a_kernel_without_cgroups_or_without_that_for_memory() {
    if !can_run() {
        return;
    }
    let none = Stage::new().run("umount -R -l /sys/fs/cgroup").examined();
    assert_provoked(&none, "cgroups", "error", "no cgroup file system", "mount -t cgroup2 none /sys/fs/cgroup");
    // The version of cgroups of this host, made to lack the memory controller.
    let without = || {
        Stage::new()
            .file("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io pids\n")
            .run("[ -e /sys/fs/cgroup/cgroup.controllers ] || umount /sys/fs/cgroup/memory")
            .file("/proc/cmdline", "root=/dev/mmcblk0p2 cgroup_disable=memory\n")
    };
    for (folder, file, cure) in [
        (
            "/boot",
            "firmware/cmdline.txt",
            "in /boot/firmware/cmdline.txt add at the end of its one line: cgroup_enable=memory",
        ),
        ("/boot", "cmdline.txt", "in /boot/cmdline.txt add at the end"),
        ("/boot", "armbianEnv.txt", "in /boot/armbianEnv.txt add to the line extraargs="),
        ("/boot", "extlinux/extlinux.conf", "in /boot/extlinux/extlinux.conf add to the line APPEND"),
        ("/etc/default", "grub", "update-grub && reboot"),
    ] {
        let stage = without().folder("/boot", &[]).folder(folder, &[(file, "quiet")]);
        let found = stage.examined();
        assert_provoked(&found, "cgroups", "warning", "no cgroup controller for memory", cure);
        assert_provoked(&found, "cgroups", "warning", "memory", "take out cgroup_disable=memory");
    }
}

#[test]
fn a_kernel_without_the_modules_that_pods_need() {
    if !can_run() {
        return;
    }
    // The check also fails without the right to create a network namespace.
    let bare = Stage::new()
        .layer("/usr/lib")
        .run("mkdir -p \"/usr/lib/modules/$(uname -r)\"; echo kernel/fs/ext4/ext4.ko > \"/usr/lib/modules/$(uname -r)/modules.builtin\"")
        .run(": > \"/usr/lib/modules/$(uname -r)/modules.dep\"")
        .file("/proc/modules", "")
        .file("/proc/filesystems", "nodev\tsysfs\n\text4\n")
        .folder("/sys/module", &[])
        .by("setpriv --bounding-set=-sys_admin");
    let found = bare.examined();
    for name in ["overlay", "bridge", "veth", "nf_tables", "nf_nat"] {
        assert_provoked(&found, "kernel", "error", &format!("has no {name}"), &format!("modprobe {name};"));
    }
    assert_provoked(&found, "kernel", "info", "has no br_netfilter", "");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's");
    assert_provoked(&found, "kernel", "error", release.trim(), "apt-get install linux-image-");
}

#[test]
fn kernel_older_than_the_oldest_supported() {
    if !can_run() {
        return;
    }
    let found = Stage::new().file("/proc/sys/kernel/osrelease", "4.9.253-tegra\n").examined();
    assert_provoked(&found, "kernel", "warning", "is older than 4.19", "install a newer kernel");
}

#[test]
fn a_clock_of_another_century_or_that_nobody_keeps() {
    if !can_run() {
        return;
    }
    let temp = tempfile::tempdir().expect("a folder");
    let clock = FakeClock::new(temp.path());
    let told = |state: &str| {
        let variables = clock.env().into_iter().map(|(name, value)| format!("{name}={value}"));
        let variables = variables.collect::<Vec<_>>().join(" ");
        Stage::new().by(&format!("env {variables} FAKE_CLOCK_STATE={state}")).examined()
    };
    // TIME_ERROR of adjtimex(2), TIME_OK, and a kernel that does not know the call.
    assert_provoked(&told("5"), "clock", "warning", "not synchronized", "systemctl enable --now systemd-timesyncd");
    assert_provoked(&told("-1"), "clock", "info", "does not say", "");
    clock.set(-10 * 366 * 86_400);
    assert_provoked(&told("0"), "clock", "error", "before this program was made", "date -s 'YYYY-MM-DD HH:MM:SS'");
}

#[test]
fn a_board_that_is_hot_and_badly_fed() {
    if !can_run() {
        return;
    }
    let files = [
        ("hwmon/hwmon0/name", "rpi_volt"),
        ("hwmon/hwmon0/in0_lcrit_alarm", "1"),
        ("thermal/thermal_zone0/temp", "86000"),
    ];
    let found = Stage::new().folder("/sys/class", &files).examined();
    assert_provoked(&found, "supply", "warning", "under-voltage", "power supply");
    assert_provoked(&found, "temperature", "warning", "86 °C", "heat sink");
}

#[test]
fn a_machine_that_is_short_of_everything() {
    if !can_run() {
        return;
    }
    let pressure = |full: &str| {
        format!("some avg10=0 avg60=90.00 avg300=0 total=1\nfull avg10=0.00 avg60={full} avg300=0.00 total=1\n")
    };
    let short = Stage::new()
        .file("/proc/meminfo", &meminfo(500_000, 10_000, 100_000))
        .file("/proc/loadavg", "0.10 0.10 0.10 1/3900 4000\n")
        .file("/proc/sys/kernel/pid_max", "4096\n")
        .file("/proc/pressure/memory", &pressure("40.25"))
        .file("/proc/pressure/io", &pressure("50.50"))
        .run("ulimit -Sn 1024; ulimit -Hn 1024");
    let found = short.examined();
    assert_provoked(&found, "memory", "warning", "9 of 488 MB", "edge-runtime top");
    assert_provoked(&found, "swap", "info", "97 MB of swap", "");
    assert_provoked(&found, "pids", "warning", "3900 of 4096", "security.pod-pids-limit");
    assert_provoked(&found, "descriptors", "warning", "at most 1024", "LimitNOFILE=65536");
    // Only if the kernel has these counters.
    if std::path::Path::new("/proc/pressure/io").exists() {
        assert_provoked(&found, "memory-pressure", "warning", "40 % of the last minute", "edge-runtime top");
        assert_provoked(&found, "io-pressure", "warning", "50 % of the last minute", "iotop -oa");
    }
    let small = Stage::new().file("/proc/meminfo", &meminfo(65_536, 40_000, 0)).examined();
    assert_provoked(&small, "memory", "warning", "has 64 MB", "gpu_mem=16 in config.txt");
}

/// Without its cause, none of these findings appears.
#[test]
fn a_machine_as_it_should_be_has_none_of_this() {
    if !can_run() {
        return;
    }
    let well = Stage::new().file("/proc/meminfo", &meminfo(500_000, 300_000, 0)).folder(
        "/sys/class",
        &[
            ("hwmon/hwmon0/name", "rpi_volt"),
            ("hwmon/hwmon0/in0_lcrit_alarm", "0"),
            ("thermal/thermal_zone0/temp", "50000"),
        ],
    );
    let (findings, _) = well.examined();
    for check in [
        "rights",
        "cgroups",
        "kernel",
        "supply",
        "temperature",
        "memory",
        "swap",
        "pids",
        "descriptors",
        "nft",
        "other-node",
        "forward",
    ] {
        let bad = findings.iter().find(|one| one["check"] == check && one["severity"] != "ok");
        assert!(bad.is_none(), "{bad:#?}");
    }
}

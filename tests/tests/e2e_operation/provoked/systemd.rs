//! How systemd runs the daemon, and what the journal contains: with the tests' own manager and journal, read by the
//! `systemctl` and `journalctl` of this host.

use std::path::Path;
use std::process::Command;

use sampan_tests::can_run;

use crate::assert_provoked;
use crate::stage::Stage;

const UNIT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/edge-runtime/edge-runtime.service");

fn has(program: &str) -> bool {
    let has = Path::new(program).exists();
    if !has {
        use std::io::Write;
        // There is nothing to do if stderr is closed.
        let _ = writeln!(std::io::stderr(), "skipped: {program} is not there");
    }
    has
}

/// A cgroup for one check, in each hierarchy that systemd may have; removed with all cgroups below it.
struct Cgroup(String);

impl Cgroup {
    const HIERARCHIES: [&str; 3] = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];

    fn new(name: &str) -> Self {
        Self(format!("doctor-{}-{name}.slice", std::process::id()))
    }

    /// Puts the shell of a stage into `path` below it.
    fn enter(&self, path: &str) -> String {
        let name = &self.0;
        format!(
            "for at in {}; do [ ! -e $at/cgroup.procs ] || {{ mkdir -p $at/{name}{path}; echo $BASHPID > $at/{name}{path}/cgroup.procs; }}; done",
            Self::HIERARCHIES.join(" ")
        )
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for at in Self::HIERARCHIES {
            let at = format!("{at}/{}", self.0);
            let _ = Command::new("find").args([&at, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"]).output();
        }
    }
}

/// Runs doctor on a machine whose systemd has the package's units with `change`, after the commands `then`.
fn unit(change: &str, then: &str) -> (Vec<serde_json::Value>, i32) {
    let cgroup = Cgroup::new("unit");
    let stage = Stage::new()
        .of_the_machine()
        .run(&cgroup.enter(""))
        .run("mkdir -p /run/systemd/system /run/user/0 /run/units/multi-user.target.wants; cd /run/units")
        .run("for name in default basic shutdown exit sockets timers paths; do echo '[Unit]' > $name.target; done")
        .run(&format!(
            "cp {UNIT} edge-runtime.service; ln -s ../edge-runtime.service multi-user.target.wants/; {change}"
        ))
        .run("export XDG_RUNTIME_DIR=/run/user/0 SYSTEMD_UNIT_PATH=/run/units; unset DBUS_SESSION_BUS_ADDRESS")
        .run("/lib/systemd/systemd --user > /run/manager.log 2>&1 &")
        .run("for i in {1..200}; do [ ! -S /run/user/0/systemd/private ] || break; sleep 0.05; done")
        // Root's systemctl connects to the machine's manager at this path.
        .run("ln -s /run/user/0/systemd/private /run/systemd/private")
        .run("systemctl is-system-running > /run/state || [ -s /run/state ] || { cat /run/manager.log; exit 1; }")
        .run(then);
    let examined = stage.examined();
    drop(cgroup);
    examined
}

#[test]
fn a_unit_that_is_not_as_the_package_has_it() {
    if !can_run() || !has("/lib/systemd/systemd") {
        return;
    }
    let (well, _) = unit("", "");
    let own = well.iter().find(|one| one["check"] == "unit").unwrap_or_else(|| panic!("{well:#?}"));
    assert_eq!(own["severity"], "ok", "{own:#}");
    let sed = |expression: &str| unit(&format!("sed -i '{expression}' edge-runtime.service"), "");
    assert_provoked(&sed("/^KillMode=/d"), "unit", "error", "KillMode=control-group", "[Service] KillMode=process");
    assert_provoked(&sed("s/^Delegate=.*/Delegate=no/"), "unit", "warning", "Delegate=no", "[Service] Delegate=yes");
    let off = unit("rm multi-user.target.wants/*", "");
    assert_provoked(&off, "unit", "warning", "is not enabled", "systemctl enable edge-runtime");
    let none = unit("rm edge-runtime.service multi-user.target.wants/*", "");
    assert_provoked(&none, "unit", "warning", "knows no edge-runtime.service", "docs/install.md");
    let ends = "sed -i -e /^Condition/d -e 's/^Type=.*/Type=exec/' -e 's!^ExecStart=.*!ExecStart=/bin/false!' -e /^ExecStop=/d \
                -e s/^RestartSec=.*/RestartSec=1ms/ edge-runtime.service";
    let again = "systemctl start edge-runtime || :; for i in {1..600}; do \
                 [ \"$(systemctl show -P NRestarts edge-runtime)\" -le 5 ] || break; sleep 0.05; done";
    let restarts = unit(ends, again);
    assert_provoked(&restarts, "unit", "warning", "times again (last end: ", "journalctl -u edge-runtime -e");
}

#[test]
fn errors_in_the_journal_of_the_daemon() {
    if !can_run() || !has("/lib/systemd/systemd-journald") {
        return;
    }
    let cgroup = Cgroup::new("journal");
    // The journal names the unit of the sender's cgroup.
    let line = "ERROR [edge_runtime::node::turn] pod 1: no rest after 100 rounds; trying again in a second";
    let say = format!(
        "( {}; exec systemd-cat sh -c \"echo '{line}'; sleep 1\" )",
        cgroup.enter("/system.slice/edge-runtime.service")
    );
    let found = Stage::new()
        .of_the_machine()
        .run("mkdir -p /run/systemd/journal \"/run/log/journal/$(cat /etc/machine-id)\"; mount -t tmpfs logs /var/log")
        .run("/lib/systemd/systemd-journald > /run/journald.log 2>&1 &")
        .run("for i in {1..200}; do [ ! -S /run/systemd/journal/stdout ] || break; sleep 0.05; done")
        .run(&say)
        .examined();
    assert_provoked(&found, "log", "warning", line, "journalctl -u edge-runtime --since -1d | grep ERROR");
}

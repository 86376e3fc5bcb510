//! OCI runtimes that are missing, broken or unsafe.

use sampan_tests::can_run;

use crate::assert_provoked;
use crate::stage::Stage;

#[test]
fn a_runtime_that_is_absent_broken_or_old() {
    if !can_run() {
        return;
    }
    let absent = Stage::new().configure("runtime: {command: /usr/bin/no-runc}\n").examined();
    assert_provoked(&absent, "oci-runtime", "error", "/usr/bin/no-runc is not there", "as runtime.command in");
    let stage = Stage::new();
    let (broken, old) = (
        stage.program("broken", "exit 1"),
        // The version in Debian 11 before its security update.
        stage.program("old", "[ \"$1\" = --version ] || exit 1\necho 'runc version 1.0.0~rc93+ds1'\necho 'commit: 1.0.0~rc93+ds1-5+deb11u2'"),
    );
    let bare = stage.program(
        "bare",
        "case \"$1\" in\n--version) echo 'runc version 1.2.4';;\nfeatures) echo '{\"ociVersionMin\": \"1.0.0\", \"ociVersionMax\": \"1.2.0\", \
         \"linux\": {\"seccomp\": {\"enabled\": false}}, \"annotations\": {\"org.opencontainers.runc.version\": \"1.2.4\"}}';;\nesac",
    );
    let text = format!(
        "runtime: {{command: {}}}\nruntimes: {{kata: {{command: {}}}, bare: {{command: {}}}}}\n",
        old.display(),
        broken.display(),
        bare.display()
    );
    let found = stage.configure(&text).examined();
    assert_provoked(&found, "oci-runtime", "error", "does not run, or does not say", "as runtimes.kata in");
    assert_provoked(&found, "oci-runtime", "warning", "CVE-2024-21626", "apt-get install --only-upgrade runc");
    assert_provoked(&found, "oci-runtime", "warning", "without seccomp", "apt-get install runc");
}

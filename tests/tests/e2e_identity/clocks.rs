//! A device whose wall clock is decades off: the daemon under a library that changes what it is told the time is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use sampan_tests::manifest::{pod, shell};
use sampan_tests::{Cluster, EdgeNode, can_run};
use serde_json::json;

use crate::{processes, wait_log, wait_running};

/// Adds the seconds in the file named by FAKE_CLOCK to CLOCK_REALTIME; every other clock stays.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *now) {
    if (syscall(SYS_clock_gettime, id, now) != 0) return -1;
    const char *name = getenv("FAKE_CLOCK");
    if (name == NULL || (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE)) return 0;
    char text[32] = {0};
    int file = open(name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    if (read(file, text, sizeof text - 1) > 0) now->tv_sec += atoll(text);
    close(file);
    return 0;
}
"#;

const TEN_YEARS: i64 = 10 * 365 * 86_400;

struct Clock {
    library: PathBuf,
    offset: PathBuf,
}

impl Clock {
    fn new(folder: &Path) -> Self {
        let (source, library) = (folder.join("clock.c"), folder.join("clock.so"));
        std::fs::write(&source, LIBRARY).expect("written");
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).status();
        assert!(built.expect("a C compiler, as SQLite needs").success());
        Self { library, offset: folder.join("clock.offset") }
    }

    /// Whole at every moment: the daemon reads it all the time.
    fn set(&self, offset: i64) {
        let partial = self.offset.with_extension("partial");
        std::fs::write(&partial, offset.to_string()).expect("written");
        std::fs::rename(&partial, &self.offset).expect("renamed");
    }

    fn set_1970(&self) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
        self.set(60 - i64::try_from(now).expect("a time"));
    }

    fn wind(&self, node: &mut EdgeNode) {
        let text = |path: &Path| path.display().to_string();
        node.env = vec![("LD_PRELOAD".into(), text(&self.library)), ("FAKE_CLOCK".into(), text(&self.offset))];
    }
}

fn static_pod(node: &EdgeNode, name: &str) {
    let folder = node.root().join("etc/edge-runtime/manifests");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut manifest = pod(name, &node.name, json!([shell("c", "exec sleep 1000")]));
    manifest["metadata"]["namespace"] = "default".into();
    manifest["spec"].as_object_mut().expect("an object").remove("nodeName");
    std::fs::write(folder.join(format!("{name}.json")), manifest.to_string()).expect("written");
}

#[test]
fn g25_pods_start_and_run_on_whatever_the_clock_says() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("clocks");
    let clock = Clock::new(cluster.folder());
    let mut node = EdgeNode::prepare(&cluster, &format!("clocks-{}", cluster.kubectl.namespace));
    clock.wind(&mut node);

    // The first boot, in 1970: local pods start, and so does the link.
    clock.set_1970();
    static_pod(&node, "local");
    node.start();
    node.wait_ready();
    cluster.kubectl.apply_all(&[pod("early", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("early");
    let two = wait_running(&node, 2);

    // Ten years ahead at once: nothing ends, nothing waits for years.
    clock.set(TEN_YEARS);
    cluster.kubectl.apply_all(&[pod("late", &node.name, json!([shell("c", "exec sleep 1000")]))]);
    cluster.kubectl.wait_ready("late");
    let three = wait_running(&node, 3);
    assert!(two.iter().all(|one| three.get(one.0) == Some(one.1)), "{two:?} {three:?}");

    // Booted so: no certificate is good by that clock, and pods start all the same.
    node.kill();
    let seen = node.log().len();
    static_pod(&node, "other");
    node.start();
    let four = wait_running(&node, 4);
    assert!(three.iter().all(|one| four.get(one.0) == Some(one.1)), "{three:?} {four:?}");
    wait_log(&node, seen, 20, "xpired");

    // Right again: the time that was wrong has left nothing behind.
    node.kill();
    clock.set(0);
    node.start();
    node.wait_connected(&cluster);
    assert_eq!(processes(&node), four);
    assert_eq!(cluster.kubectl.wait_ready("early")["status"]["containerStatuses"][0]["restartCount"], 0);
}

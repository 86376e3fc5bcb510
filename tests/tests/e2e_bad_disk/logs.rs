//! The failing disk has only the logs.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sampan_tests::{Cluster, EdgeNode, can_run, until};

use crate::disk::Disk;
use crate::lines::{all_accounted, drop_rotated, log_folder, losses, printing, text};
use crate::{bad_time, endure, processes, tell, wait_healthy};

struct Illness {
    name: &'static str,
    spoil: fn(&Disk),
    mend: fn(&mut Disk),
    /// Whether the file system is the same afterwards, with everything that was written.
    same: bool,
}

const ILLNESSES: [Illness; 3] = [
    Illness { name: "no inode", spoil: Disk::take_inodes, mend: |disk| disk.free(), same: true },
    Illness { name: "full", spoil: Disk::fill, mend: |disk| disk.free(), same: true },
    Illness { name: "read-only", spoil: Disk::abort, mend: Disk::replace, same: false },
];

#[test]
fn logs_are_dropped_and_counted_and_written_again() {
    if !can_run() {
        return;
    }
    let cluster = Cluster::start("logdisk");
    let name = format!("edge-{}", cluster.kubectl.namespace);
    let mut node = EdgeNode::prepare(&cluster, &name);
    let Some(mut disk) = Disk::mount(cluster.folder(), &node.root().join("var/log"), 64) else { return };
    node.configure("logs: {max-bytes: 65536, max-files: 100, bytes-per-second: 10000000}\n");
    node.start();
    node.wait_ready();
    let _away = disk.away_on_failure();
    let kubectl = &cluster.kubectl;
    kubectl.apply_all(&[printing("loud", &name, &["c"]), printing("louder", &name, &["c", "d"])]);
    let pods = ["loud", "louder"].map(|name| kubectl.wait_ready(name));
    let before = pods.each_ref().map(|pod| processes(&node, pod));
    let folders =
        [(0, "c"), (1, "c"), (1, "d")].map(|(pod, name): (usize, _)| log_folder(&node, kubectl, &pods[pod], name));

    let clock = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let seed = std::env::var("SAMPAN_SEED").ok().and_then(|text| text.parse().ok());
    let mut random: u64 = seed.unwrap_or(u64::from(clock.subsec_nanos()) | 1);
    tell(&format!("SAMPAN_SEED={random}"));
    let end = Instant::now() + bad_time() * 10;
    let mut rounds: Vec<&Illness> = ILLNESSES.iter().collect();
    while let Some(illness) = rounds.pop() {
        folders.iter().for_each(|folder| drop_rotated(folder));
        let said = folders.each_ref().map(|folder| losses(&text(folder).unwrap_or_default()).len());
        (illness.spoil)(&disk);
        tell(&format!("{}: {}", illness.name, wait_healthy(kubectl, &node, "False")));
        endure(&node, illness.name);
        assert_eq!(pods.each_ref().map(|pod| processes(&node, pod)), before, "{}: they run on", illness.name);
        (illness.mend)(&mut disk);
        for (folder, said) in folders.iter().zip(said) {
            let said = if illness.same { said } else { 0 };
            let told = until(Duration::from_secs(30), &format!("{}: all is there or counted", illness.name), || {
                let text = text(folder)?;
                let told = losses(&text).split_off(said);
                match told.len() {
                    0 => Err("nothing is said yet".to_owned()),
                    1.. if illness.same => all_accounted(&text).map(|_| told),
                    1 => Ok(told),
                    _ => Err(format!("told once: {told:?}")),
                }
            });
            tell(&format!("{}: {} dropped {told:?}", illness.name, folder.display()));
        }
        wait_healthy(kubectl, &node, "True");
        if rounds.is_empty() && bad_time() >= Duration::from_secs(60) && Instant::now() < end {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            rounds.extend(ILLNESSES.get(usize::try_from(random % 3).unwrap_or(0)));
        }
    }
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let now = kubectl.wait_ready(name);
        assert_eq!(now["status"]["containerStatuses"][0]["restartCount"], 0);
        let _ = kubectl.ok(&["logs", name, "-c", "c", "--tail=3"]);
    }
}

//! Looks by helpers that are scripts.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use smol::process::Command;

use super::*;
use crate::volume::look;

fn looks(paths: &[&str]) -> Vec<Look> {
    let touch = |path: &&str| Look::Volume(look::Look::Touch { volume: "v".into(), path: path.into() });
    paths.iter().map(touch).collect()
}

fn with(script: &str) -> Looks {
    let helper = ["/bin/sh", "-c", script].map(PathBuf::from).to_vec();
    Looks { helper: Rc::new(helper), patience: Duration::from_millis(2500), ..Looks::default() }
}

fn said(looks: &Looks, paths: &[&str]) -> String {
    match smol::block_on(looks.all(self::looks(paths))) {
        Ok(()) => "fine".to_owned(),
        Err(Trouble::Failed(why)) => why,
        Err(Trouble::Own(owning)) => format!("{owning:?}"),
    }
}

#[test]
fn answers_are_taken_in_their_order() {
    assert_eq!(said(&with("read looks; echo '\"Done\"'; echo '\"Done\"'"), &["/a", "/b"]), "fine");
    assert_eq!(said(&with("read looks; echo '\"Done\"'; echo '{\"Failed\":\"no\"}'"), &["/a", "/b"]), "no");
    assert!(said(&with("read looks; exit 3"), &["/a"]).contains("exit status: 3"));
    assert!(said(&with("read looks; echo nonsense"), &["/a"]).contains("the helper"));
    assert_eq!(said(&with("exit 3"), &[]), "fine", "nothing to look at");
}

#[test]
fn helper_serves_pod_after_pod_until_rest() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let helpers = || std::fs::read_to_string(&started).unwrap().lines().count();
    let looks = with(&format!(
        "echo >>{}; while read looks; do case $looks in *bad*) echo '{{\"Failed\":\"no\"}}';; *) echo '\"Done\"';; esac; done",
        started.display()
    ));
    assert_eq!([said(&looks, &["/a"]), said(&looks, &["/bad"]), said(&looks, &["/b"])], ["fine", "no", "fine"]);
    assert_eq!(helpers(), 1);
    looks.rest();
    assert_eq!((said(&looks, &["/a"]).as_str(), helpers()), ("fine", 2));
}

#[test]
fn burst_of_pods_shares_few_helpers() {
    let dir = tempfile::tempdir().unwrap();
    let started = dir.path().join("started");
    let helpers = || std::fs::read_to_string(&started).unwrap().lines().count();
    let looks = with(&format!(
        "echo >>{}; while read looks; do case $looks in *hangs*) sleep 1.5;; esac; echo '\"Done\"'; done",
        started.display()
    ));
    let tasks = smol::LocalExecutor::new();
    let all = |path: &'static str| {
        let looks = looks.clone();
        tasks.spawn(async move { looks.all(self::looks(&[path])).await })
    };
    let pods: Vec<_> = (0..20).map(|_| all("/a")).collect();
    smol::block_on(tasks.run(async {
        for pod in pods {
            assert_eq!(pod.await, Ok(()));
        }
        assert!(helpers() <= MOST, "{}", helpers());
        let hang = [all("/hangs"), all("/hangs")];
        assert_eq!(all("/a").await, Ok(()));
        assert!(hang.iter().all(|task| !task.is_finished()), "it waits for no path that hangs");
        for task in hang {
            assert_eq!(task.await, Ok(()));
        }
    }));
}

#[test]
fn kept_helper_that_has_ended_is_replaced() {
    let looks = with("read looks; echo '\"Done\"'");
    for _ in 0..3 {
        assert_eq!(said(&looks, &["/a"]), "fine");
    }
}

#[test]
fn a_path_that_hangs_is_named_and_not_waited_for_twice() {
    let dir = tempfile::tempdir().unwrap();
    let (pid, started) = (dir.path().join("pid"), dir.path().join("started"));
    let script = format!(
        "read looks; echo >>{}; echo '\"Done\"'; sleep 1000 & echo $! >{}; wait",
        started.display(),
        pid.display()
    );
    let looks = with(&script);
    let why = said(&looks, &["/fine", "/dead"]);
    assert!(why.contains("\"v\" : /dead did not answer within 2 s"), "{why}");
    let sleeper = || -> i32 { std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap() };
    let killed = sleeper();
    let gone = |_| {
        std::thread::sleep(Duration::from_millis(10));
        !crate::sys::host::is_alive(killed)
    };
    assert!((0..200).any(gone), "killed with its family");

    // A process that cannot be killed, as in a hung file system.
    let mut sleep = Command::new("sleep");
    sleep.arg("1000").kill_on_drop(true);
    looks.remember(Path::new("/dead"), sleep.spawn().unwrap());
    let before = std::fs::read_to_string(&started).unwrap();
    assert!(said(&looks, &["/fine", "/dead"]).contains("/dead did not answer"));
    assert_eq!(std::fs::read_to_string(&started).unwrap(), before, "no second helper");
    assert_eq!(said(&looks, &["/other"]), "fine", "others are tried");
    assert_ne!(std::fs::read_to_string(&started).unwrap(), before);
    // The last one's child outlives it.
    kill(Pid::from_raw(sleeper()), Signal::SIGKILL).unwrap();
}

//! Decisions about resources of plugins.

use serde_json::{Value, json};

use super::*;
use crate::launch::devices::kept::Allocation;
use crate::launch::devices::shortage::Shortage;
use crate::pod::record::{ContainerKind, ContainerRecord, ContainerState, PodRecord};

const GPU: &str = "example.com/gpu";
const LATE: Mono = Mono(1_000_000);

fn fresh() -> Plugins {
    Plugins::for_tests()
}

fn devices(all: &[(&str, bool)]) -> Vec<Device> {
    all.iter().map(|(id, healthy)| Device { id: (*id).to_owned(), healthy: *healthy, numa: Vec::new() }).collect()
}

fn two() -> Plugins {
    let mut plugins = fresh();
    assert!(plugins.listed(GPU, devices(&[("0", true), ("1", true)])));
    plugins
}

fn pod(uid: &str, count: u64) -> Pod {
    let container = json!({"name": "c", "resources": {"limits": {GPU: count.to_string(), "cpu": "1"}}});
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": {"containers": [container]}})).unwrap()
}

/// What container `c` of the pod has.
fn some(uid: &str, ids: &[&str]) -> Allocation {
    Allocation {
        uid: uid.to_owned(),
        container: "c".to_owned(),
        resource: GPU.to_owned(),
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
        ..Allocation::default()
    }
}

fn next(plugins: &Plugins, pod: &Pod, count: usize, now: Mono) -> Next {
    plugins.next((pod, "c"), (GPU, count), &[], now)
}

fn allocate(had: &[&str], free: &[&str]) -> Next {
    let texts = |all: &[&str]| all.iter().map(|id| (*id).to_owned()).collect();
    Next::Allocate { had: texts(had), free: texts(free) }
}

/// A record with a process in container `c`.
fn running() -> PodRecord {
    let state = ContainerState::Running {
        id: "id".to_owned(),
        pid: 1,
        started_at: jiff::Timestamp::UNIX_EPOCH,
        since: Mono(0),
    };
    let mut record = PodRecord { admitted: true, ..PodRecord::default() };
    record.containers.insert("c".to_owned(), ContainerRecord { state, ..ContainerRecord::new(ContainerKind::App) });
    record
}

#[test]
fn only_free_and_healthy_devices_are_allocated() {
    let (mut plugins, a, b) = (two(), pod("a", 1), pod("b", 1));
    assert_eq!(next(&plugins, &a, 1, LATE), allocate(&[], &["0", "1"]));
    plugins.kept.put(some("a", &["0"]));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Ready, "once for each container");
    assert_eq!(next(&plugins, &b, 1, LATE), allocate(&[], &["1"]));
    let short = Next::Wait(Shortage::TooFew { requested: 2, available: 1 });
    assert_eq!(next(&plugins, &b, 2, LATE), short);
    assert!(plugins.listed(GPU, devices(&[("0", true), ("1", false), ("2", true)])));
    assert_eq!(next(&plugins, &b, 1, LATE), allocate(&[], &["2"]));
    let changed = "container \"c\" changed request for resource \"example.com/gpu\" from 1 to 2";
    assert_eq!(next(&plugins, &a, 2, LATE), Next::Never(changed.to_owned()));
}

#[test]
fn container_keeps_its_devices_while_its_plugin_is_away() {
    let (mut plugins, a) = (two(), pod("a", 1));
    plugins.kept.put(some("a", &["0"]));
    assert!(plugins.gone(GPU, LATE) && !plugins.gone(GPU, LATE));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Ready);
    assert_eq!(next(&plugins, &pod("b", 1), 1, LATE), Next::Wait(Shortage::NoneHealthy));
    assert!(plugins.listed(GPU, devices(&[("0", false), ("1", true)])));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::OwnUnhealthy));

    let mut plugins = two();
    plugins.kept.put(Allocation { pre_start: true, ..some("a", &["0"]) });
    assert_eq!(next(&plugins, &a, 1, LATE), Next::PreStart(vec!["0".to_owned()]));
    plugins.down(LATE);
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::NoneHealthy), "nobody can be told of the start");
}

#[test]
fn after_a_restart_containers_wait_for_the_plugin() {
    let (mut plugins, a, b) = (fresh(), pod("a", 1), pod("b", 1));
    plugins.kept.put(some("a", &["0"]));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::Unregistered), "it may have to prepare the device");
    assert_eq!(next(&plugins, &b, 1, LATE), Next::Without, "an administrator may have put it into the Node");
    assert_eq!(next(&plugins, &b, 1, Mono(299_999)), Next::Wait(Shortage::Unregistered));
    plugins.told = false;
    assert_eq!(next(&plugins, &b, 1, LATE), Next::Wait(Shortage::Unregistered));
    // It has started without the resource, which a plugin has by now.
    plugins.kept.put(some("b", &[]));
    plugins.listed(GPU, devices(&[("0", true), ("1", true)]));
    assert_eq!(next(&plugins, &b, 1, LATE), allocate(&[], &["1"]));
}

#[test]
fn resource_has_no_devices_five_minutes_after_its_plugin() {
    let mut plugins = two();
    let capacity = |plugins: &Plugins, now| {
        plugins.capacity(now).map(|(name, all, healthy)| (name.clone(), all, healthy)).collect::<Vec<_>>()
    };
    let gpu = |all, healthy| [(GPU.to_owned(), all, healthy)];
    assert_eq!(capacity(&plugins, LATE), gpu(2, 2));
    plugins.listed(GPU, devices(&[("0", true), ("1", false)]));
    assert_eq!(capacity(&plugins, LATE), gpu(2, 1));
    plugins.gone(GPU, LATE);
    assert_eq!(capacity(&plugins, LATE), gpu(2, 0), "at once");
    let later = LATE.after(WITHOUT_PLUGIN);
    assert_eq!(capacity(&plugins, later), gpu(0, 0));
    assert_eq!(next(&plugins, &pod("a", 1), 1, later), Next::Wait(Shortage::Unregistered));
    plugins.listed(GPU, devices(&[("0", true)]));
    assert_eq!(capacity(&plugins, later), gpu(1, 1));
}

#[test]
fn resources_that_a_new_helper_does_not_name_are_gone() {
    let mut plugins = two();
    plugins.listed("example.com/tpu", devices(&[("t", true)]));
    plugins.begin();
    assert!(plugins.listed(GPU, devices(&[("0", true), ("1", true)])), "its pods may have waited for it");
    assert!(!plugins.listed(GPU, devices(&[("0", true), ("1", true)])));
    assert!(plugins.told(LATE) && !plugins.told(LATE));
    assert_eq!([plugins.health(GPU, "0"), plugins.health("example.com/tpu", "t")], ["Healthy", "Unknown"]);
    plugins.listed(GPU, devices(&[("0", false)]));
    let health = ["0", "1"].map(|id| plugins.health(GPU, id));
    assert_eq!(health, ["Unhealthy", "Unknown"]);
    assert_eq!(plugins.health("example.com/none", "0"), "Unknown");
}

#[test]
fn resource_of_the_configuration_is_no_plugins() {
    let mut plugins = Plugins { taken: BTreeSet::from([GPU.to_owned()]), ..fresh() };
    assert!(!plugins.listed(GPU, devices(&[("0", true)])) && !plugins.gone(GPU, LATE));
    assert_eq!(plugins.capacity(LATE).count(), 0);
    assert!(plugins.wanted(&pod("a", 1).spec.unwrap().containers[0]).is_empty());
    assert_eq!(plugins.refusal(&pod("a", 1), &[], &|_| true, LATE), None);
    let off = Plugins { is_on: false, ..two() };
    assert!(off.wanted(&pod("a", 1).spec.unwrap().containers[0]).is_empty());
    assert_eq!(off.refusal(&pod("a", 9), &[], &|_| true, LATE), None);
}

#[test]
fn names_are_bounded() {
    let mut plugins = fresh();
    for number in 0..2 * MOST {
        let name = format!("example.com/{number}");
        plugins.listed(&name, devices(&[("0", true)]));
        if number % 2 == 0 {
            plugins.gone(&name, LATE.after(Duration::from_secs(1)));
        }
    }
    assert_eq!(plugins.resources.len(), MOST);
    assert!(!plugins.gone("example.com/x", LATE) || plugins.resources.len() == MOST);
}

#[test]
fn pod_is_refused_for_devices_that_others_have_or_will_get() {
    let mut plugins = two();
    let refusal =
        |plugins: &Plugins, wanted: &Pod, others: &[Admitted<'_>], now| plugins.refusal(wanted, others, &|_| true, now);
    let (a, b, record) = (pod("a", 1), pod("b", 2), PodRecord::default());
    assert_eq!(refusal(&plugins, &b, &[], LATE), None);
    let text =
        |available| format!("requested number of devices unavailable for {GPU}. Requested: 2, Available: {available}");
    assert_eq!(refusal(&plugins, &b, &[(&a, &record)], LATE), Some((text(1), false)), "it is about to start");
    plugins.kept.put(some("a", &["0"]));
    assert_eq!(refusal(&plugins, &b, &[(&a, &record)], LATE), Some((text(1), false)), "counted once");
    // Pods that are ending do not keep theirs.
    assert_eq!(plugins.refusal(&b, &[(&a, &record)], &|uid| uid != "a", LATE), None);
    plugins.listed(GPU, devices(&[("0", false), ("1", true), ("2", true)]));
    assert_eq!(refusal(&plugins, &b, &[(&a, &record)], LATE), None, "one that is not healthy is in use");
    plugins.gone(GPU, LATE);
    let unhealthy = format!("no healthy devices present; cannot allocate unhealthy devices {GPU}");
    assert_eq!(refusal(&plugins, &b, &[], LATE), Some((unhealthy, false)));
    let unknown = fresh();
    assert_eq!(refusal(&unknown, &b, &[], LATE), None, "as one that an administrator has put into the Node");
    let unregistered = format!("cannot allocate unregistered device {GPU}");
    assert_eq!(refusal(&unknown, &b, &[], Mono(1000)), Some((unregistered.clone(), true)), "a boot");
    let untold = Plugins { told: false, ..fresh() };
    assert_eq!(refusal(&untold, &b, &[], LATE), Some((unregistered, true)));
}

#[test]
fn devices_of_a_damaged_file_are_not_given_away() {
    let (mut plugins, a, b, record) = (two(), pod("a", 1), pod("b", 1), running());
    let others: [Admitted<'_>; 1] = [(&a, &record)];
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    std::fs::create_dir_all(paths.pod("a")).unwrap();
    std::fs::write(paths.plugin_devices("a"), "{").unwrap();
    plugins.kept = Kept::load(&paths);
    let none = Shortage::TooFew { requested: 1, available: 0 };
    assert_eq!(plugins.next((&b, "c"), (GPU, 1), &others, LATE), Next::Wait(none));
    assert_eq!(plugins.refusal(&b, &others, &|_| true, LATE), Some((none.text(GPU), false)));
    let ended = PodRecord::default();
    assert_eq!(plugins.next((&b, "c"), (GPU, 1), &[(&a, &ended)], LATE), allocate(&[], &["0", "1"]));
    plugins.kept.put(some("a", &["1"]));
    assert_eq!(plugins.next((&b, "c"), (GPU, 1), &others, LATE), allocate(&[], &["0"]));
}

#[test]
fn pod_from_before_plugins_counts_with_what_it_requests() {
    let (mut plugins, old, record) = (two(), pod("old", 1), running());
    let others: [Admitted<'_>; 1] = [(&old, &record)];
    assert_eq!(plugins.next((&pod("b", 1), "c"), (GPU, 1), &others, LATE), allocate(&[], &["0", "1"]), "it has none");
    assert_eq!(plugins.refusal(&pod("b", 1), &others, &|_| true, LATE), None);
    let short = Shortage::TooFew { requested: 2, available: 1 };
    let refused = plugins.refusal(&pod("b", 2), &others, &|_| true, LATE);
    assert_eq!(refused, Some((short.text(GPU), false)), "it gets one when its container starts again");
    plugins.kept.put(some("b", &["0"]));
    assert_eq!(next(&plugins, &old, 1, LATE), allocate(&[], &["1"]));
}

#[test]
fn device_that_its_plugin_lists_no_more_is_replaced() {
    let (mut plugins, a) = (two(), pod("a", 1));
    plugins.kept.put(some("a", &["0"]));
    plugins.kept.put(some("b", &["2"]));
    plugins.listed(GPU, devices(&[("1", true), ("2", true)]));
    assert_eq!(next(&plugins, &a, 1, LATE), allocate(&[], &["1"]));
    plugins.listed(GPU, devices(&[("1", false), ("2", true)]));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::OwnUnhealthy), "no other one is free");
    plugins.listed(GPU, devices(&[("0", false), ("1", true), ("2", true)]));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::OwnUnhealthy), "it is there, and may recover");
    plugins.listed(GPU, devices(&[]));
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Wait(Shortage::NoneHealthy));
    plugins.gone(GPU, LATE);
    assert_eq!(next(&plugins, &a, 1, LATE), Next::Ready, "as long as its plugin is away");

    // One of two is gone: the other one stays.
    let (mut plugins, a) = (two(), pod("a", 2));
    plugins.kept.put(some("a", &["0", "1"]));
    plugins.listed(GPU, devices(&[("1", true), ("2", true)]));
    assert_eq!(next(&plugins, &a, 2, LATE), allocate(&["1"], &["2"]));
}

#[test]
fn resource_that_a_plugin_had_is_waited_for_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let paths = Paths::new(dir.path());
    std::fs::create_dir_all(paths.state()).unwrap();
    let mut before = two();
    before.save_names(&paths);
    let text = std::fs::read_to_string(paths.plugin_resources()).unwrap();
    assert_eq!(text, format!("{GPU}\n"));
    std::fs::remove_file(paths.plugin_resources()).unwrap();
    before.listed(GPU, devices(&[("0", true)]));
    before.save_names(&paths);
    assert!(!paths.plugin_resources().exists(), "it has this name");

    let restarted = |file: &str| {
        std::fs::write(paths.plugin_resources(), file).unwrap();
        let mut plugins = Plugins { taken: BTreeSet::from(["example.com/taken".to_owned()]), ..fresh() };
        plugins.load_names(&paths.plugin_resources());
        plugins
    };
    let mut plugins = restarted(&text);
    let wait = Next::Wait(Shortage::Unregistered);
    assert_eq!(next(&plugins, &pod("b", 1), 1, LATE), wait);
    let refused = plugins.refusal(&pod("b", 1), &[], &|_| true, LATE);
    assert_eq!(refused, Some((Shortage::Unregistered.text(GPU), true)));
    assert_eq!(plugins.capacity(LATE).collect::<Vec<_>>(), [(&GPU.to_owned(), 0, 0)]);
    plugins.told = false;
    assert_eq!(plugins.capacity(LATE).count(), 0, "its plugin may be connected");
    plugins.kept.put(some("a", &["0"]));
    assert_eq!(next(&plugins, &pod("a", 1), 1, LATE), wait, "the plugin may have to prepare the device");
    assert!(plugins.gone(GPU, LATE));
    assert_eq!(next(&plugins, &pod("a", 1), 1, LATE), Next::Ready);
    assert!(plugins.listed(GPU, devices(&[("0", true), ("1", true)])));
    assert_eq!(next(&plugins, &pod("b", 1), 1, LATE), allocate(&[], &["1"]));

    let others = restarted("example.com/taken\nno name\n\ncpu\n");
    assert_eq!(next(&others, &pod("b", 1), 1, LATE), Next::Without, "an administrator may have put it into the Node");
    assert_eq!(others.capacity(LATE).count(), 0);
    let many: String = (0..2 * MOST).map(|number| format!("example.com/{number}\n")).collect();
    assert_eq!(restarted(&many).resources.len(), MOST);
}

#[test]
fn devices_of_init_containers_come_first() {
    let limits: Value = json!({"limits": {GPU: "1"}});
    let spec = json!({"initContainers": [{"name": "i", "resources": limits}],
        "containers": [{"name": "c", "resources": limits}]});
    let pod: Pod = serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap();
    let mut plugins = two();
    plugins.kept.put(Allocation { container: "i".to_owned(), ..some("u", &["1"]) });
    assert_eq!(next(&plugins, &pod, 1, LATE), allocate(&["1"], &["0"]));
    plugins.listed(GPU, devices(&[("0", true), ("1", false)]));
    assert_eq!(next(&plugins, &pod, 1, LATE), allocate(&[], &["0"]));
}

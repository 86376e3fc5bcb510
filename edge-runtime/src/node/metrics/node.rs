//! Metrics of the daemon and its state: names of the kubelet and of client_golang where they exist, otherwise
//! `sampan_node_`.

use std::fs;

use nix::sys::resource::{UsageWho, getrusage};
use nix::unistd::{SysconfVar, sysconf};

use crate::counters::{self, Counter};
use crate::health::text::{Number, Text};
use crate::helper::programs;
use crate::node::Node;
use crate::node::streams::stats::plan::Plan;
use crate::pod::record::ContainerState;
use crate::sys::board::clock_synchronized;
use crate::sys::{descriptors, host};

/// `ru_oublock` counts these (getrusage(2)).
const BLOCK: u64 = 512;

pub(super) fn text(node: &Node, plan: &Plan) -> String {
    let mut text = Text::default();
    pods(node, &mut text);
    link(node, &mut text);
    kept(node, plan, &mut text);
    helpers(&mut text);
    plugins(node, &mut text);
    whole(node, &mut text);
    process(&mut text);
    text.finish()
}

/// K8s pkg/kubelet/metrics: names and the three states.
fn pods(node: &Node, text: &mut Text) {
    let config = &node.cx.config;
    text.family("kubelet_node_name", "gauge", "The name of the node.");
    text.sample(&[("node", &config.node_name)], Number::Whole(1));
    text.family("sampan_node_info", "gauge", "The version of the program.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], Number::Whole(1));
    let (mut running, mut states) = (0_u64, [0_u64; 3]);
    for (_, entry) in node.cx.pods.iter() {
        let mut runs = false;
        for container in entry.record.containers.values() {
            let state = match &container.state {
                state if state.process().is_some() => 0,
                ContainerState::Terminated(_) => 1,
                _ => 2,
            };
            runs |= state == 0;
            states[state] += 1;
        }
        running += u64::from(runs);
    }
    text.one("kubelet_running_pods", "gauge", "Pods of which a container runs.", running);
    text.family("kubelet_running_containers", "gauge", "Containers by their state.");
    for (state, count) in ["running", "exited", "created"].into_iter().zip(states) {
        text.sample(&[("container_state", state)], count.into());
    }
    text.one("sampan_node_pods", "gauge", "Pods of this node, running or not.", node.cx.pods.iter().count() as u64);
    text.family("sampan_node_container_restarts_total", "counter", "Starts of a container after its first.");
    for (_, entry) in node.cx.pods.iter() {
        let record = &entry.record;
        for (name, container) in &record.containers {
            let labels = [("container", name.as_str()), ("pod", &record.name), ("namespace", &record.namespace)];
            text.sample(&labels, u64::from(container.attempt).into());
        }
    }
    // K8s pkg/kubelet/prober/prober_manager.go has labels for each container, which would have to be remembered.
    text.family("prober_probe_total", "counter", "Probes by kind and result.");
    for (kind, results) in ["Startup", "Readiness", "Liveness"].into_iter().zip(&counters::PROBES) {
        for (result, count) in ["successful", "failed", "unknown"].into_iter().zip(results) {
            text.sample(&[("probe_type", kind), ("result", result)], count.get().into());
        }
    }
}

fn link(node: &Node, text: &mut Text) {
    let cx = &node.cx;
    text.one("sampan_node_link_up", "gauge", "Whether a bridge is connected.", cx.connection().is_some());
    count(text, "sampan_node_link_connections_total", "Connections that a bridge took.", &counters::LINK_WELCOMES);
    text.family("sampan_node_link_bytes_total", "counter", "Bytes of websocket messages, without TLS.");
    for (direction, class, bytes) in [
        ("sent", "message", &counters::LINK_SENT_MESSAGES),
        ("sent", "stream", &counters::LINK_SENT_STREAMS),
        ("received", "message", &counters::LINK_RECEIVED_MESSAGES),
        ("received", "stream", &counters::LINK_RECEIVED_STREAMS),
    ] {
        text.sample(&[("direction", direction), ("class", class)], bytes.get().into());
    }
    if let Some(end) = cx.link.as_ref().and_then(|link| link.certificate_end()) {
        let help = "When the certificate of this node ends, in seconds since 1970.";
        text.one("sampan_node_certificate_expiration_seconds", "gauge", help, end);
    }
    if let Ok((reports, bytes)) = cx.store.outbox_size() {
        text.one("sampan_node_reports_queued", "gauge", "Reports not acknowledged.", reports.unsigned_abs());
        text.one("sampan_node_reports_queued_bytes", "gauge", "Bytes of these reports.", bytes.unsigned_abs());
    }
}

fn kept(node: &Node, plan: &Plan, text: &mut Text) {
    let paths = &node.cx.paths;
    count(text, "sampan_node_store_commits_total", "Commits of the store.", &counters::COMMITS);
    count(text, "sampan_node_store_syncs_total", "Times that the medium was waited for.", &counters::SYNCS);
    let store = paths.store();
    let log = store.with_extension("db-wal");
    let size = [store, log].iter().filter_map(|path| fs::metadata(path).ok()).map(|meta| meta.len()).sum::<u64>();
    text.one("sampan_node_store_bytes", "gauge", "Size of the store and its log.", size);
    text.one("sampan_node_image_bytes", "gauge", "Compressed size of the images.", plan.image_bytes);
    count(text, "sampan_node_image_pulls_total", "Images fetched.", &counters::PULLS);
    count(text, "sampan_node_image_pull_errors_total", "Images that could not be fetched.", &counters::FAILED_PULLS);
    text.family("sampan_node_written_bytes_total", "counter", "Bytes for the medium by what wrote them.");
    if let Some(bytes) = written("self") {
        text.sample(&[("cause", "store")], bytes.into());
    }
    if let Some(bytes) =
        Some(counters::MONITOR_PID.get()).filter(|pid| *pid > 0).and_then(|pid| written(&pid.to_string()))
    {
        text.sample(&[("cause", "log")], bytes.into());
    }
    if let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) {
        let blocks = u64::try_from(usage.block_writes()).unwrap_or_default();
        text.sample(&[("cause", "image")], blocks.saturating_mul(BLOCK).into());
    }
    if let Some(space) = host::disk_space(&paths.state()) {
        text.one("sampan_node_filesystem_size_bytes", "gauge", "Size of the disk of the state.", space.total_bytes);
        text.one("sampan_node_filesystem_avail_bytes", "gauge", "Room that is left there.", space.available_bytes);
        text.one("sampan_node_filesystem_files_free", "gauge", "Inodes that are left there.", space.free_inodes);
    }
}

fn helpers(text: &mut Text) {
    text.family("sampan_node_helper_restarts_total", "counter", "How often a helper had ended unasked.");
    let own = [("monitor", &counters::LOST_MONITOR), ("dns", &counters::LOST_DNS)];
    let programs = programs::ALL.iter().map(|program| (program.label, program.lost));
    for (name, lost) in own.into_iter().chain(programs) {
        text.sample(&[("helper", name)], lost.get().into());
    }
    let help = "Requests of pods to the API that the link has taken.";
    count(text, "sampan_node_api_requests_total", help, &counters::API_REQUESTS);
    let help = "Requests of pods to the API that the link has not taken.";
    count(text, "sampan_node_api_request_errors_total", help, &counters::REFUSED_API_REQUESTS);
}

/// Devices of plugins.
fn plugins(node: &Node, text: &mut Text) {
    if !node.cx.config.plugins.is_on() {
        return;
    }
    let help = "Allocations of devices of plugins to containers.";
    count(text, "sampan_node_device_allocations_total", help, &counters::ALLOCATIONS);
    let help = "Allocations that plugins have refused.";
    count(text, "sampan_node_device_allocation_errors_total", help, &counters::FAILED_ALLOCATIONS);
}

/// The loop, and conditions of the Node object.
fn whole(node: &Node, text: &mut Text) {
    count(text, "sampan_node_loop_turns_total", "Turns of the daemon's loop.", &counters::TURNS);
    count(text, "sampan_node_loop_stalls_total", "Turns of more than a second.", &counters::STALLS);
    let longest = Number::Nanos(counters::LONGEST_TURN.get());
    text.one("sampan_node_loop_longest_turn_seconds", "gauge", "The longest turn since the start.", longest);
    if let Some(synchronized) = clock_synchronized() {
        text.one("sampan_node_clock_synchronized", "gauge", "Whether something keeps the clock right.", synchronized);
    }
    text.family("sampan_node_condition", "gauge", "Conditions of the Node object that are True.");
    for (kind, is_true) in node.node_status.conditions() {
        text.sample(&[("condition", kind)], is_true.into());
    }
}

/// The metrics of client_golang's process collector.
fn process(text: &mut Text) {
    let Ok(stat) = fs::read_to_string("/proc/self/stat") else { return };
    let fields = fields(&stat);
    let field = |number: usize| fields.get(number - 3).copied().unwrap_or_default();
    let known = |what| sysconf(what).ok().flatten().and_then(|value| u64::try_from(value).ok());
    let tick = known(SysconfVar::CLK_TCK).unwrap_or(100).max(1);
    let nanos = |ticks: u64| Number::Nanos(ticks.saturating_mul(1_000_000_000 / tick));
    text.one("process_cpu_seconds_total", "counter", "CPU time in seconds.", nanos(field(14) + field(15)));
    text.one("process_virtual_memory_bytes", "gauge", "Virtual memory in bytes.", field(23));
    let resident = field(24).saturating_mul(known(SysconfVar::PAGE_SIZE).unwrap_or(4096));
    text.one("process_resident_memory_bytes", "gauge", "Resident memory in bytes.", resident);
    if let Some((open, most)) = descriptors::used() {
        text.one("process_open_fds", "gauge", "Open file descriptors.", open);
        text.one("process_max_fds", "gauge", "Most file descriptors.", most);
    }
    // Field 22 counts from boot.
    let up = crate::clock::Clock::mono().as_duration();
    let booted = jiff::Timestamp::now().as_second().unsigned_abs().saturating_sub(up.as_secs());
    let started = booted.saturating_add(field(22) / tick);
    text.one("process_start_time_seconds", "gauge", "When it started, in seconds since 1970.", started);
}

/// Fields of proc_pid_stat(5) from the third on, 0 for text. The second, a name, may have blanks and brackets.
fn fields(stat: &str) -> Vec<u64> {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().map(|word| word.parse().unwrap_or_default()).collect()
}

fn count(text: &mut Text, name: &'static str, help: &str, counter: &Counter) {
    text.one(name, "counter", help, counter.get());
}

/// Bytes that a process has caused to be written to media, by proc_pid_io(5).
fn written(pid: &str) -> Option<u64> {
    write_bytes(&fs::read_to_string(format!("/proc/{pid}/io")).ok()?)
}

fn write_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::bench::{Bench, running};
    use crate::pod::clock::Mono;
    use crate::pod::record::{SignalState, StopReason};

    /// A container that is being stopped. Its pid is 0 while its start has not answered.
    fn stopping(pid: i32) -> ContainerState {
        ContainerState::Stopping {
            id: "i".to_owned(),
            pid,
            started_at: None,
            because: StopReason::Deleted,
            kill_at: Mono(0),
            spare_until: None,
            signal: SignalState::Stop,
        }
    }

    #[test]
    fn containers_are_counted_by_their_state() {
        let mut bench = Bench::new();
        ["a", "b", "d", "e"].iter().for_each(|uid| bench.add(uid));
        bench.container("a", running("a", 7));
        bench.container("b", ContainerState::waiting());
        bench.container("d", stopping(7));
        bench.container("e", stopping(0));
        let mut text = Text::default();
        pods(&bench.node, &mut text);
        let text = text.finish();
        for line in [
            "kubelet_running_pods 2",
            "sampan_node_pods 4",
            r#"kubelet_running_containers{container_state="running"} 2"#,
            r#"kubelet_running_containers{container_state="exited"} 0"#,
            r#"kubelet_running_containers{container_state="created"} 2"#,
            r#"sampan_node_container_restarts_total{container="c",pod="a",namespace="ns"} 0"#,
        ] {
            assert!(text.lines().any(|one| one == line), "{line}\n{text}");
        }
    }

    #[test]
    fn name_of_a_process_does_not_shift_its_numbers() {
        assert_eq!(fields("7 (a) R 9 (b) S 1 -1 20\n"), [0, 1, 0, 20]);
        assert!(fields("").is_empty() && fields("7 (a").is_empty());
    }

    #[test]
    fn written_bytes_include_what_was_cancelled() {
        let io = "rchar: 1\ncancelled_write_bytes: 4096\nwrite_bytes: 8192\n";
        assert_eq!(write_bytes(io), Some(8192));
        assert_eq!((write_bytes(""), write_bytes("write_bytes: many")), (None, None));
    }
}

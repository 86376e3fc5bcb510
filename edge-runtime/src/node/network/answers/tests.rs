//! What the answer of another process means for a pod.

use super::*;
use crate::launch::error::SandboxError;
use crate::launch::looking::Trouble;
use crate::launch::sandbox::SandboxDone;
use crate::node::bench::{Bench, pod};
use crate::pod::ports::{Forward, HostPort, Protocol};

/// A pod `u` with this sandbox that waits for this.
fn waiting(state: SandboxState, step: Connecting) -> Bench {
    let mut bench = Bench::new();
    bench.add("u");
    bench.sandbox("u", state);
    bench.node.connecting.insert("u".to_owned(), step);
    bench
}

fn done() -> SandboxDone {
    SandboxDone { ips: vec!["10.0.0.2".parse().unwrap()], warnings: Vec::new() }
}

fn no<T>(why: &str) -> Result<T, String> {
    Err(why.to_owned())
}

fn state(bench: &Bench) -> &SandboxState {
    &bench.record("u").sandbox.state
}

#[test]
fn pod_is_ready_when_its_rules_are_in_the_kernel() {
    for (step, answer) in
        [(Connecting::Rules(done()), Answer::Rules(Ok(()))), (Connecting::Policies(done()), Answer::Policies(Ok(())))]
    {
        let mut bench = waiting(SandboxState::Preparing, step);
        bench.node.connection_answered("u", answer);
        assert!(matches!(state(&bench), SandboxState::Ready { .. }), "{:?}", state(&bench));
        assert_eq!(bench.record("u").ips, done().ips);
        assert!(!bench.node.connecting.contains_key("u"));
    }
}

#[test]
fn failed_step_is_what_the_pod_shows() {
    let (mount, other) = ("FailedMount", "FailedCreatePodSandBox");
    for (step, answer, expected) in [
        (Connecting::Looking, Answer::Looked(Err(Trouble::Failed("x".to_owned()))), (mount, "x")),
        (Connecting::Rules(done()), Answer::Rules(no("x")), (other, "x")),
        (Connecting::Policies(done()), Answer::Policies(no("x")), (other, "x")),
        (Connecting::Attaching, Answer::Plugins(no("x")), (other, "failed to setup network for sandbox: x")),
        (Connecting::MakingCgroup, Answer::Cgroup(no("x")), (other, "failed to create cgroup for sandbox: x")),
        (Connecting::Undoing(SandboxError::Mount("y".to_owned())), Answer::Plugins(no("x")), (mount, "y")),
    ] {
        let mut bench = waiting(SandboxState::Preparing, step);
        bench.node.connection_answered("u", answer);
        let SandboxState::Failed { reason, message, .. } = state(&bench) else { panic!("{:?}", state(&bench)) };
        assert_eq!((reason.as_str(), message.as_str()), expected);
    }
}

#[test]
fn answer_to_another_step_changes_nothing() {
    let mut bench = waiting(SandboxState::Preparing, Connecting::Looking);
    bench.node.connection_answered("u", Answer::Policies(Ok(())));
    assert_eq!(*state(&bench), SandboxState::Preparing);
    assert!(matches!(bench.node.connecting.get("u"), Some(Connecting::Looking)));
    bench.node.connection_answered("unknown", Answer::Looked(Ok(())));
    assert!(!bench.node.connecting.contains_key("unknown"));
}

#[test]
fn pod_that_is_to_end_is_taken_down_instead_of_connected() {
    for (step, answer) in [
        (Connecting::Looking, Answer::Looked(Ok(()))),
        (Connecting::Rules(done()), Answer::Rules(Ok(()))),
        (Connecting::Rules(done()), Answer::Rules(no("x"))),
        (Connecting::Policies(done()), Answer::Policies(Ok(()))),
        (Connecting::Attaching, Answer::Plugins(Ok(done().ips))),
        (Connecting::MakingCgroup, Answer::Cgroup(Ok(()))),
    ] {
        let named = format!("{step:?}");
        let mut bench = waiting(SandboxState::TearingDown, step);
        bench.node.connection_answered("u", answer);
        assert_eq!(*state(&bench), SandboxState::Gone, "{named}");
    }
}

/// It was connected again after a change of `network.mode`.
#[test]
fn pod_that_plugins_have_let_go_leaves_no_host_ports() {
    let mut bench = waiting(SandboxState::TearingDown, Connecting::Detaching);
    let port = HostPort { ip: None, protocol: Protocol::Tcp, port: 80, container_port: 80 };
    bench.node.host_ports.hold("u", vec![Forward { port, to: "10.0.0.2".parse().unwrap() }]);
    bench.node.connection_answered("u", Answer::Plugins(Ok(Vec::new())));
    assert_eq!(*state(&bench), SandboxState::TearingDown, "they are still in the kernel");
    bench.node.rules_replaced(Ok(()));
    assert_eq!(*state(&bench), SandboxState::Gone);
    assert!(bench.node.host_ports.has("u", &[]));
}

#[test]
fn attachment_of_an_earlier_network_connects_no_pod_and_goes_with_it() {
    let mut bench = Bench::new();
    bench.add("u");
    bench.sandbox("u", SandboxState::Preparing);
    let file = bench.node.launch.sandboxes.teardown.attachment_file("u");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "{}").unwrap();
    assert!(bench.node.prepare_sandbox("u", &pod("u", "u")).is_some());
    let teardown = &bench.node.launch.sandboxes.teardown;
    assert!(!teardown.is_attached("u"), "policies, Services and DNS see a pod of the bridge");
    assert_eq!(teardown.attached(), ["u"]);
    bench.sandbox("u", SandboxState::TearingDown);
    assert_eq!(bench.node.disconnect("u"), None);
    assert!(matches!(bench.node.connecting.get("u"), Some(Connecting::Detaching)));
    let teardown = &bench.node.launch.sandboxes.teardown;
    teardown.take_attachment_back("u").unwrap();
    assert!(teardown.is_attached("u"), "plugins that connect it again release it first");
}

#[test]
fn teardown_ends_with_the_last_process_that_it_waits_for() {
    for (step, answer, is_gone) in [
        (Connecting::Detaching, Answer::Plugins(Ok(Vec::new())), true),
        (Connecting::Detaching, Answer::Plugins(no("x")), false),
        (Connecting::EndingCgroup, Answer::Cgroup(Ok(())), true),
        (Connecting::EndingCgroup, Answer::Cgroup(no("x")), false),
    ] {
        let mut bench = waiting(SandboxState::TearingDown, step);
        bench.node.connection_answered("u", answer);
        match state(&bench) {
            SandboxState::Gone => assert!(is_gone),
            SandboxState::Failed { reason, message, .. } => {
                assert_eq!((is_gone, reason.as_str(), message.as_str()), (false, "FailedKillPod", "x"));
            }
            other => panic!("{other:?}"),
        }
    }
}

//! `edge-runtime selftest`: does this build work on this machine? Opens a store, decides about one pod,
//! commits, reads it back. Starts nothing and needs no root: made for a new board, or an emulator.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::error::CliError;
use super::stdio::print;
use super::verb::{Given, Operands, ROOT, Verb};
use crate::clock::Clock;
use crate::pod::reconcile::{World, reconcile};
use crate::pod::record::{PodRecord, PodSource};
use crate::pod::refusal::Admission;
use crate::pod::step::Step;
use crate::store::Store;
use crate::sys::files::private_dir;

pub(super) const VERB: Verb = Verb {
    name: "selftest",
    about: "Test this program on this machine in an empty --root",
    operands: Operands::None,
    flags: &[],
    run,
};

fn run(given: Given) -> Result<(), CliError> {
    if !given.has(ROOT.long) {
        return Err(CliError::Usage("selftest needs --root, an empty folder".into()));
    }
    let paths = given.paths()?;
    if paths.store().exists() {
        return Err(CliError::Failed(format!("{} is a node's: give an empty folder", paths.store().display())));
    }
    private_dir(&paths.state())?;
    let (record, steps) = decide_and_store(&paths.store())?;
    let store = Store::open(&paths.store())?.store;
    let (pods, _) = store.pods()?;
    if pods.len() != 1 || pods[0].record != record {
        return Err(CliError::Failed("the pod read back is not the one stored".into()));
    }
    print(&format!("selftest passed: stored and read back one pod, next steps {steps:?}"))
}

fn decide_and_store(path: &std::path::Path) -> Result<(PodRecord, Vec<Step>), CliError> {
    let manifest = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "selftest", "namespace": "default", "uid": "selftest"},
        "spec": {"containers": [{"name": "c", "image": "docker.io/library/busybox:latest"}]},
    });
    let pod: Pod = serde_json::from_value(manifest.clone())?;
    let now = Clock::new()?.now();
    let record = PodRecord::new("selftest", "default", "selftest", PodSource::Static, &now);
    let world = World { image: &|_| None, admit: &|_| Admission::Admitted, resize: &|_| None, stop_locked: &|| false };
    let plan = reconcile(&pod, record, &world, &now);
    if !plan.steps.contains(&Step::PrepareSandbox) {
        return Err(CliError::Failed(format!("a new pod should be prepared first, but the plan is {:?}", plan.steps)));
    }
    let mut store = Store::open(path)?.store;
    store.write_durable(|writer| {
        writer.put_pod(&plan.record)?;
        writer.put_manifest("selftest", &manifest)
    })?;
    Ok((plan.record, plan.steps))
}

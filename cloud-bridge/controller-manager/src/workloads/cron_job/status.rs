//! The status of a CronJob: its Jobs that run, and when the last ones began and succeeded (K8s
//! pkg/controller/cronjob/cronjob_controllerv2.go `syncCronJob`).

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::CronJobStatus;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::context::Context;
use crate::workloads::batch::{Job, finished};
use crate::workloads::plan::Told;
use crate::workloads::store::uid;
use crate::workloads::world::Kind;

/// The desired status, and the events about it. `due` is the time that gets a Job now, and the Job's name.
pub(super) fn status(context: &Context<'_>, due: Option<(Timestamp, &str)>) -> (CronJobStatus, Vec<Told>) {
    let mut status = context.status.clone();
    let mut told = Vec::new();
    let mut active = status.active.take().unwrap_or_default();
    for job in &context.jobs {
        let listed = active.iter().any(|one| is_of(one, job));
        let name = job.metadata.name.as_deref().unwrap_or_default();
        match (finished(job.status.as_ref()), due) {
            // The Job was created, but the status was not written.
            (_, Some((due, wanted))) if wanted == name && !listed => {
                active.push(reference(job));
                status.last_schedule_time = Some(Time(due));
            }
            (Some(condition), _) => {
                if listed {
                    active.retain(|one| !is_of(one, job));
                    let message = format!("Saw completed job: {name}, condition: {}", condition.type_);
                    told.push(context.teller().normal("SawCompletedJob", message));
                }
                let done = job.status.as_ref().and_then(|status| status.completion_time.clone());
                if condition.type_ == "Complete" && done > status.last_successful_time {
                    status.last_successful_time = done;
                }
            }
            (None, _) if !listed => {
                let message = format!("Saw a job that the controller did not create or forgot: {name}");
                told.push(context.teller().warning("UnexpectedJob", message));
            }
            (None, _) => {}
        }
    }
    active.retain(|one| {
        let is_there = context.jobs.iter().any(|job| is_of(one, job));
        // One that was replaced is not missed.
        let is_replaced = context.is_policy("Replace") && due.is_some();
        if !is_there && !is_replaced {
            let name = one.name.as_deref().unwrap_or_default();
            told.push(context.teller().normal("MissingJob", format!("Active job went missing: {name}")));
        }
        is_there
    });
    status.active = (!active.is_empty()).then_some(active);
    (status, told)
}

fn is_of(reference: &ObjectReference, job: &Job) -> bool {
    reference.uid.as_deref() == Some(uid(&job.metadata))
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some(Kind::Job.api_version()),
        kind: Some(Kind::Job.name()),
        namespace: job.metadata.namespace.clone(),
        name: job.metadata.name.clone(),
        uid: job.metadata.uid.clone(),
        resource_version: job.metadata.resource_version.clone(),
        field_path: None,
    }
}

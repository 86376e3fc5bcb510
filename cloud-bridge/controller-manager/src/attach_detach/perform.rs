//! Executes the plan for a node, step by step. No decisions but one: a volume that the Node itself, read again, reports
//! as in use is not detached (K8s pkg/volume/util/operationexecutor, `verifyVolumeIsSafeToDetach`).
//!
//! A plan ends when it is known of each attachment whether it exists: an exclusive volume must not be attached to another
//! node because the API did not answer in time.

use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::storage::v1::{VolumeAttachment, VolumeAttachmentSource, VolumeAttachmentSpec};
use kube::api::{Api, DeleteParams, GetParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource as _};
use serde_json::{Value, json};

use super::object::{Attachment, Node};
use super::plan::{Create, Delete, Plan};

/// An API that does not answer is given up after this, and asked again later.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval of questions about an attachment that may exist.
const AGAIN: Duration = Duration::from_secs(1);

/// Result of a plan.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) node: String,
    pub(super) created: Vec<(String, Attachment)>,
    /// The names of all attachments that were to be created.
    pub(super) made: Vec<String>,
    /// The attachment that may exist: its creation was requested, and the answer does not tell.
    unsure: Option<String>,
    /// Attachments that did not exist.
    pub(super) gone: Vec<String>,
    /// Why the plan was not completed.
    pub(super) failure: Option<String>,
}

/// Executes a plan; `uid` is that of the Node, empty without one.
pub(super) async fn perform(client: Client, node: String, uid: String, plan: Plan) -> Done {
    let made = plan.create.iter().map(|one| one.name.clone()).collect();
    let mut done = Done { node, made, ..Done::default() };
    let steps = steps(&client, &uid, &plan, &mut done);
    done.failure = match tokio::time::timeout(PATIENCE, steps).await {
        Ok(result) => result.err(),
        Err(_) => Some(format!("the API did not answer within {} s", PATIENCE.as_secs())),
    };
    if let Some(name) = done.unsure.take() {
        let found = settled(&Api::all(client), &name).await;
        done.created.extend(found.map(|attachment| (name, attachment)));
    }
    done
}

/// The attachment, if it exists. Asks until the API answers.
async fn settled(attachments: &Api<VolumeAttachment>, name: &str) -> Option<Attachment> {
    loop {
        match tokio::time::timeout(PATIENCE, attachments.get_opt(name)).await {
            Ok(Ok(found)) => return found.and_then(|found| Attachment::read(&json!(found))),
            Ok(Err(error)) => log::info!("attachment {name}: {error}"),
            Err(_) => log::info!("attachment {name}: the API did not answer within {} s", PATIENCE.as_secs()),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn steps(client: &Client, uid: &str, plan: &Plan, done: &mut Done) -> Result<(), String> {
    let mut fresh = None;
    if let Some(report) = &plan.report {
        let attached: Vec<Value> = report.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
        let patch = json!({"metadata": {"uid": uid}, "status": {"volumesAttached": attached}});
        let request = nodes().patch_subresource("status", &done.node, &PatchParams::default(), &Patch::Merge(patch));
        fresh = ask(client, request).await?;
    } else if plan.delete.iter().any(|one| !one.forced) {
        fresh = ask(client, nodes().get(&done.node, &GetParams::default())).await?;
    }
    let fresh = fresh.map(|node| Node::read(&node));
    let attachments: Api<VolumeAttachment> = Api::all(client.clone());
    for one in &plan.delete {
        if one.forced || fresh.as_ref().is_none_or(|node| !node.in_use.contains(&one.unique_name)) {
            delete(&attachments, one, done).await?;
        }
    }
    for one in &plan.create {
        create(&attachments, one, done).await?;
    }
    Ok(())
}

fn nodes() -> Request {
    Request::new(core::Node::url_path(&(), None))
}

/// Sends a request about the Node; `None` if it does not exist.
async fn ask(
    client: &Client,
    request: Result<http::Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Option<Value>, String> {
    match client.request::<Value>(request.map_err(|error| error.to_string())?).await {
        Ok(node) => Ok(Some(node)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

async fn delete(attachments: &Api<VolumeAttachment>, one: &Delete, done: &mut Done) -> Result<(), String> {
    let same = Preconditions { uid: Some(one.uid.clone()), resource_version: None };
    match attachments.delete(&one.name, &DeleteParams::default().preconditions(same)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            done.gone.push(one.name.clone());
            Ok(())
        }
        Err(error) => Err(format!("detaching {}: {error}", one.unique_name)),
    }
}

async fn create(attachments: &Api<VolumeAttachment>, one: &Create, done: &mut Done) -> Result<(), String> {
    let source = VolumeAttachmentSource { persistent_volume_name: Some(one.volume.clone()), inline_volume_spec: None };
    let object = VolumeAttachment {
        metadata: ObjectMeta { name: Some(one.name.clone()), ..ObjectMeta::default() },
        spec: VolumeAttachmentSpec { attacher: one.driver.clone(), node_name: done.node.clone(), source },
        status: None,
    };
    done.unsure = Some(one.name.clone());
    match attachments.create(&PostParams::default(), &object).await {
        Ok(made) => {
            done.unsure = None;
            let made = Attachment {
                uid: made.metadata.uid.unwrap_or_default(),
                node: done.node.clone(),
                volume: one.volume.clone(),
                ..Attachment::default()
            };
            done.created.push((one.name.clone(), made));
            Ok(())
        }
        Err(error) => {
            let refused = matches!(&error, kube::Error::Api(status) if matches!(status.code, 400..=407 | 410..=499));
            if refused {
                done.unsure = None;
            }
            Err(format!("attaching {}: {error}", one.volume))
        }
    }
}

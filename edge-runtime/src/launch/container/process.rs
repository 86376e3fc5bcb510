//! The first process of a container: what runs, in which environment and where.

use std::cell::Cell;

use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::variables;
use crate::launch::base::Objects;
use crate::launch::error::ContainerError;
use crate::launch::sandbox::Sandbox;
use crate::pod::env::{self, Environment, Sources};
use crate::pod::hold;
use crate::pod::services;
use crate::pod::spec::namespace;
use crate::store::image_record::ImageRecord;
use crate::store::secrets;
use crate::volume::downward;

pub(super) struct Process {
    pub(super) argv: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: String,
    /// Reason and message of Warning events.
    pub(super) warnings: Vec<(&'static str, String)>,
}

/// `vars`: variables of device plugins, which the container's own replace.
pub(super) fn of(
    sandbox: &Sandbox,
    pod: &Pod,
    container: &Container,
    image: &ImageRecord,
    objects: Objects<'_>,
    mut vars: Vec<(String, String)>,
) -> Result<Process, ContainerError> {
    let environment = environment(sandbox, pod, container, objects)?;
    vars.retain(|(name, _)| environment.vars.iter().all(|(own, _)| own != name));
    vars.extend(environment.vars);
    let has_terminal = container.tty.unwrap_or(false);
    let mut env = variables::merged(&sandbox.host_name, has_terminal, &image.config.env, &vars);
    if hold::stop_lock(pod).is_some() && env.iter().all(|(name, _)| name != hold::LOCK_VARIABLE) {
        env.push((hold::LOCK_VARIABLE.to_owned(), hold::LOCK_FILE.to_owned()));
    }
    let argv = env::argv(container, &image.config.entrypoint, &image.config.cmd, &vars);
    if argv.is_empty() {
        return Err(ContainerError::create("no command specified"));
    }
    let mut warnings = Vec::new();
    if !environment.invalid.is_empty() {
        warnings.push(("InvalidEnvironmentVariableNames", environment.invalid.join("; ")));
    }
    if let Some(doubt) = &image.config.doubt {
        warnings.push(("ImagePlatform", format!("image {} {doubt}", container.image.as_deref().unwrap_or(&image.id))));
    }
    Ok(Process { argv, env, cwd: working_dir(container, image), warnings })
}

fn environment(
    sandbox: &Sandbox,
    pod: &Pod,
    container: &Container,
    objects: Objects<'_>,
) -> Result<Environment, ContainerError> {
    let facts = &sandbox.facts;
    let typed = |kind: &str, name: &str| objects(kind, namespace(pod), name);
    let all = pod.spec.as_ref().and_then(|spec| spec.enable_service_links).unwrap_or(true);
    let all = all.then(|| typed(services::KIND, services::ALL)).flatten();
    let api = objects(services::KIND, services::API_NAMESPACE, services::API);
    let services = services::variables(all, api, sandbox.local_api);
    let withheld = Cell::new(None);
    let sources = Sources {
        config_map: &|name| typed("ConfigMap", name).and_then(|value| serde_json::from_value(value).ok()),
        secret: &|name| {
            let found = typed("Secret", name)?;
            if secrets::is_withheld(&found) {
                withheld.set(Some(secrets::withheld(name)));
            }
            serde_json::from_value(found).ok()
        },
        field: &|path| downward::field_value(pod, path, facts).map_err(|error| error.to_string()),
        resource: &|name, resource, divisor| {
            let divisor = divisor.map(|text| Quantity(text.to_owned()));
            downward::resource_value(pod, name, resource, divisor.as_ref(), facts).map_err(|error| error.to_string())
        },
        services: &services,
    };
    let environment = env::environment(pod, container, &sources);
    // Optional or not: it exists, and the container would start without it.
    match withheld.take() {
        Some(reason) => Err(ContainerError::config(env::EnvError(reason))),
        None => environment.map_err(ContainerError::config),
    }
}

fn working_dir(container: &Container, image: &ImageRecord) -> String {
    let own = container.working_dir.as_deref().filter(|dir| !dir.is_empty());
    let dir = own.unwrap_or(&image.config.working_dir);
    if dir.is_empty() { "/".into() } else { dir.into() }
}

//! Environment, command and arguments of a container, resolved from the pod, ConfigMaps, Secrets and Services. Pure.

use std::convert::Infallible;

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVarSource, Pod, Secret};
use thiserror::Error;

/// A reference that cannot be resolved now. The text is the kubelet's: it becomes the message of
/// `CreateContainerConfigError`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct EnvError(pub String);

/// Answers a `resourceFieldRef`: container name, resource, divisor.
pub type ResourceValue<'a> = dyn Fn(&str, &str, Option<&str>) -> Result<String, String> + 'a;

/// Where referenced values come from; each asked by name in the pod's namespace.
pub struct Sources<'a> {
    pub config_map: &'a dyn Fn(&str) -> Option<ConfigMap>,
    pub secret: &'a dyn Fn(&str) -> Option<Secret>,
    /// Value of a `fieldRef` path (`metadata.name`, `status.podIP`, ...).
    pub field: &'a dyn Fn(&str) -> Result<String, String>,
    pub resource: &'a ResourceValue<'a>,
    /// Variables of Services, see [`services`](super::services): for references, and for names not set otherwise.
    pub services: &'a [(String, String)],
}

/// The resolved environment in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub vars: Vec<(String, String)>,
    /// Names that no process environment can hold and that were left out: for a Warning event
    /// `InvalidEnvironmentVariableNames`.
    pub invalid: Vec<String>,
}

/// `env` and `envFrom` of one container, in the kubelet's order and with `$(VAR)` expanded: first `envFrom`, then
/// `env`, a later name replacing an earlier one in its place; then the Services' variables whose names are free.
///
/// # Errors
/// A missing object or key that is not optional, or a field that cannot be had.
pub fn environment(pod: &Pod, container: &Container, sources: &Sources<'_>) -> Result<Environment, EnvError> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let mut env = Environment::default();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in whole_object(from, sources)? {
            set(&mut env, format!("{prefix}{key}"), value);
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(text), _) if !text.is_empty() => Some(expand_from(text, &[&env.vars, sources.services])),
            (_, Some(source)) => one_value(source, &container.name, namespace, sources)?,
            _ => Some(String::new()),
        };
        if let Some(value) = value {
            set(&mut env, var.name.clone(), value);
        }
    }
    for (name, value) in sources.services {
        if env.vars.iter().all(|(taken, _)| taken != name) {
            env.vars.push((name.clone(), value.clone()));
        }
    }
    Ok(env)
}

/// The process to run: `command` replaces the entrypoint and drops the image's cmd, `args` replaces the cmd;
/// `$(VAR)` is expanded from `vars` in the container's own words, never in the image's. `ENTRYPOINT [""]` counts as
/// empty, as for Docker (daemon/create.go, `mergeAndVerifyConfig`) and containerd (internal/cri/opts,
/// `WithProcessArgs`).
pub fn argv(container: &Container, entrypoint: &[String], cmd: &[String], vars: &[(String, String)]) -> Vec<String> {
    let words =
        |list: &Option<Vec<String>>| -> Vec<String> { list.iter().flatten().map(|word| expand(word, vars)).collect() };
    let (mut command, mut args) = (words(&container.command), words(&container.args));
    if command.is_empty() {
        command = if entrypoint == [""] { Vec::new() } else { entrypoint.to_vec() };
        if args.is_empty() {
            args = cmd.to_vec();
        }
    }
    command.append(&mut args);
    command
}

/// Replaces `$(NAME)` by the variable's value; `$$` stands for `$`, an unknown name stays as it is.
pub fn expand(text: &str, vars: &[(String, String)]) -> String {
    expand_from(text, &[vars])
}

/// The first list that has a name says its value.
fn expand_from(text: &str, lists: &[&[(String, String)]]) -> String {
    let Ok(expanded) = expand_with(text, |name| {
        let found = lists.iter().flat_map(|vars| vars.iter()).find(|(known, _)| known == name);
        Ok::<_, Infallible>(found.map_or_else(|| format!("$({name})"), |(_, value)| value.clone()))
    });
    expanded
}

/// Same as [`expand`], with the result of `value` for a name.
///
/// # Errors
/// Those of `value`.
pub fn expand_with<E>(text: &str, value: impl Fn(&str) -> Result<String, E>) -> Result<String, E> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            out.push_str(&value(name)?);
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn set(env: &mut Environment, name: String, value: String) {
    if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
        env.invalid.push(name);
        return;
    }
    match env.vars.iter_mut().find(|(n, _)| *n == name) {
        Some((_, old)) => *old = value,
        None => env.vars.push((name, value)),
    }
}

fn whole_object(
    from: &k8s_openapi::api::core::v1::EnvFromSource,
    sources: &Sources<'_>,
) -> Result<Vec<(String, String)>, EnvError> {
    if let Some(reference) = &from.config_map_ref {
        return Ok(match (sources.config_map)(&reference.name) {
            Some(map) => map.data.unwrap_or_default().into_iter().collect(),
            None if reference.optional == Some(true) => Vec::new(),
            None => return Err(not_found("configmap", &reference.name)),
        });
    }
    if let Some(reference) = &from.secret_ref {
        return Ok(match (sources.secret)(&reference.name) {
            Some(secret) => secret.data.unwrap_or_default().into_iter().map(|(k, v)| (k, text(&v.0))).collect(),
            None if reference.optional == Some(true) => Vec::new(),
            None => return Err(not_found("secret", &reference.name)),
        });
    }
    Ok(Vec::new())
}

/// Returns `None` for an optional reference without a target: the variable is not set.
fn one_value(
    source: &EnvVarSource,
    container: &str,
    namespace: &str,
    sources: &Sources<'_>,
) -> Result<Option<String>, EnvError> {
    if let Some(field) = &source.field_ref {
        return (sources.field)(&field.field_path).map(Some).map_err(EnvError);
    }
    if let Some(resource) = &source.resource_field_ref {
        let name = resource.container_name.as_deref().filter(|n| !n.is_empty()).unwrap_or(container);
        let divisor = resource.divisor.as_ref().map(|d| d.0.as_str());
        return (sources.resource)(name, &resource.resource, divisor).map(Some).map_err(EnvError);
    }
    if let Some(key) = &source.config_map_key_ref {
        let value = match (sources.config_map)(&key.name) {
            Some(map) => map.data.and_then(|mut data| data.remove(&key.key)),
            None if key.optional == Some(true) => None,
            None => return Err(not_found("configmap", &key.name)),
        };
        return required(value, key.optional, || format!("key {} in ConfigMap {namespace}/{}", key.key, key.name));
    }
    if let Some(key) = &source.secret_key_ref {
        let value = match (sources.secret)(&key.name) {
            Some(secret) => secret.data.and_then(|mut data| data.remove(&key.key)).map(|v| text(&v.0)),
            None if key.optional == Some(true) => None,
            None => return Err(not_found("secret", &key.name)),
        };
        return required(value, key.optional, || format!("key {} in Secret {namespace}/{}", key.key, key.name));
    }
    if source.file_key_ref.is_some() {
        return Err(EnvError("fileKeyRef is not supported by this node".to_owned()));
    }
    Ok(Some(String::new()))
}

fn required(
    value: Option<String>,
    optional: Option<bool>,
    what: impl Fn() -> String,
) -> Result<Option<String>, EnvError> {
    match value {
        None if optional != Some(true) => Err(EnvError(format!("couldn't find {}", what()))),
        found => Ok(found),
    }
}

fn not_found(kind: &str, name: &str) -> EnvError {
    EnvError(format!("{kind} {name:?} not found"))
}

/// The environment of a process is bytes, the OCI configuration text: what is not UTF-8 cannot be carried.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests;

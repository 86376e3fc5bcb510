//! Maximum length of names that a node sends. They are stored, looked up and displayed; a longer one breaks the
//! protocol. Callers check their content.

use serde::Deserialize;
use serde_json::Value;

use crate::SessionError;
use crate::message::{DeviceReport, MAX_DEVICES, ObjectKey, Report, TokenRequest};
use crate::version::MAX_INTERESTS;

/// Maximum length of an object's name and namespace (RFC 1123 subdomain), and of other words.
const LONGEST: usize = 253;
/// Maximum length of an audience, which is often a URL.
const LONGEST_AUDIENCE: usize = 1024;

pub(super) fn of_object(key: &ObjectKey, uid: &str) -> Result<(), SessionError> {
    [&*key.kind, &*key.namespace, &*key.name, uid].into_iter().try_for_each(|name| check(name, LONGEST))
}

pub(super) fn of_report(report: &Report) -> Result<(), SessionError> {
    let names = match report {
        Report::PodStatus { namespace, name, uid, .. } | Report::PodGone { namespace, name, uid } => {
            [namespace, name, uid]
        }
        Report::MirrorGone { namespace, name, static_uid } => [namespace, name, static_uid],
        Report::Order { job, .. } => return check(job, LONGEST),
        Report::Node { .. }
        | Report::Event { .. }
        | Report::MirrorPod { .. }
        | Report::CsiNode { .. }
        | Report::Unknown => return Ok(()),
    };
    names.into_iter().try_for_each(|name| check(name, LONGEST))
}

pub(super) fn of_token(request: &TokenRequest) -> Result<(), SessionError> {
    let TokenRequest { namespace, pod, uid, audience, .. } = request;
    check(audience, LONGEST_AUDIENCE)?;
    [namespace, pod, uid].into_iter().try_for_each(|name| check(name, LONGEST))
}

pub(super) fn of_interests(namespaces: &[String]) -> Result<(), SessionError> {
    if namespaces.len() > MAX_INTERESTS {
        return Err(SessionError::violation(format!("interests in {} namespaces", namespaces.len())));
    }
    namespaces.iter().try_for_each(|name| check(name, LONGEST))
}

pub(super) fn of_devices(devices: &[Value]) -> Result<Vec<DeviceReport>, SessionError> {
    if devices.len() > MAX_DEVICES {
        return Err(SessionError::violation(format!("news of {} devices at once", devices.len())));
    }
    let read = |value| DeviceReport::deserialize(value);
    let devices: Result<Vec<DeviceReport>, _> = devices.iter().map(read).collect();
    let devices = devices.map_err(|error| SessionError::violation(format!("news of a device: {error}")))?;
    for DeviceReport { namespace, name, uid, state, twins, .. } in &devices {
        let state = state.iter().flat_map(|state| [&state.state, &state.last_online]);
        let properties = twins.iter().map(|twin| &twin.property);
        [namespace, name, uid].into_iter().chain(state).chain(properties).try_for_each(|name| check(name, LONGEST))?;
    }
    Ok(devices)
}

fn check(name: &str, longest: usize) -> Result<(), SessionError> {
    if name.len() <= longest {
        return Ok(());
    }
    Err(SessionError::violation(format!("a name of {} bytes", name.len())))
}

//! Labels and annotations of slices and Endpoints, and the names of their writers.

use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::Value;

use crate::workloads::world::World;

/// Names of the controllers in labels and events.
pub(super) const SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";
pub(super) const MIRRORING_CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";
pub(super) const SLICE_COMPONENT: &str = "endpoint-slice-controller";
pub(super) const ENDPOINTS_CONTROLLER: &str = "endpoint-controller";
pub(super) const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
pub(super) const SLICE_MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";
pub(super) const TRIGGERED: &str = "endpoints.kubernetes.io/last-change-trigger-time";

/// The label of a slice that names its Service, if the controller of slices writes it.
pub(super) fn service_of(slice: &EndpointSlice) -> Option<&str> {
    named(slice, SLICE_CONTROLLER)
}

/// The Endpoints that a slice is a mirror of.
pub(super) fn mirror_of(slice: &EndpointSlice) -> Option<&str> {
    named(slice, MIRRORING_CONTROLLER)
}

fn named<'a>(slice: &'a EndpointSlice, writer: &str) -> Option<&'a str> {
    let labels = slice.metadata.labels.as_ref()?;
    labels.get(SLICE_MANAGED_BY).filter(|by| *by == writer)?;
    labels.get(SERVICE_NAME).map(String::as_str)
}

/// The slices that name a Service or Endpoints and may be written by this controller.
pub(super) fn slices_named<'a>(
    world: &'a World,
    namespace: &'a str,
    name: &str,
    writer: &str,
) -> impl Iterator<Item = &'a EndpointSlice> + use<'a> {
    let labels = [(SERVICE_NAME, name), (SLICE_MANAGED_BY, writer)];
    let labels = labels.map(|(label, value)| (label.to_owned(), value.to_owned())).into();
    // The rarer label has few objects; the caller checks both.
    world.endpoint_slices.labelled(namespace, Some(&labels)).collect::<Vec<_>>().into_iter()
}

/// A time in the format of annotations.
pub(super) fn stamp(time: Option<Timestamp>) -> Option<Value> {
    time.map(|time| time.to_string().into())
}

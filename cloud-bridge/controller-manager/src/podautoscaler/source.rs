//! What one metric of an autoscaler asks for (K8s horizontal.go `computeReplicasForMetric`). Decisions only.

use k8s_openapi::api::autoscaling::v2::{
    ContainerResourceMetricStatus, MetricIdentifier, MetricSpec, MetricStatus, MetricTarget, MetricValueStatus,
    ResourceMetricStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Amount;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::metrics::samples;
use super::replica_calculator::{Proposal, Question, Target, replicas};
use super::seen::Seen;
use apimachinery::quantity::Quantity;

/// Result of a metric.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) replicas: i32,
    /// The metric, in words.
    pub(crate) name: String,
    pub(crate) status: MetricStatus,
}

/// Reason why the result of a metric is unknown.
#[derive(Debug, Clone)]
pub(crate) struct Unknown {
    /// Reason of the condition and of the event.
    pub(crate) reason: &'static str,
    pub(crate) cause: String,
    /// The cause, with the metric it belongs to.
    pub(crate) error: String,
}

/// Computes a metric; `question` has the common input of all metrics of the autoscaler.
pub(crate) fn compute(metric: &MetricSpec, seen: &Seen, question: &Question<'_>) -> Result<Asked, Unknown> {
    let missing = |what: &str| format!("invalid metric: it says nothing of its {what} source");
    match metric.type_.as_str() {
        "Resource" => {
            let source = metric.resource.as_ref();
            let name = source.map(|source| source.name.as_str()).unwrap_or_default();
            let found = source.ok_or_else(|| missing("resource")).and_then(|source| {
                resource(&source.target, seen, &Question { resource: &source.name, container: "", ..*question })
            });
            let (proposal, words, current) = found.map_err(|cause| Unknown {
                reason: "FailedGetResourceMetric",
                error: format!("failed to get {name} resource metric value: {cause}"),
                cause,
            })?;
            let status = ResourceMetricStatus { name: name.to_owned(), current };
            let status =
                MetricStatus { type_: "Resource".to_owned(), resource: Some(status), ..MetricStatus::default() };
            Ok(Asked { replicas: proposal.replicas, name: words, status })
        }
        "ContainerResource" => {
            let source = metric.container_resource.as_ref();
            let container = source.map(|source| source.container.as_str()).unwrap_or_default();
            let found = source.ok_or_else(|| missing("container resource")).and_then(|source| {
                resource(&source.target, seen, &Question { resource: &source.name, container, ..*question })
            });
            let (proposal, words, current) = found.map_err(|cause| Unknown {
                reason: "FailedGetContainerResourceMetric",
                error: format!("failed to get {container} container metric value: {cause}"),
                cause,
            })?;
            let name = source.map(|source| source.name.clone()).unwrap_or_default();
            let status = ContainerResourceMetricStatus { name, container: container.to_owned(), current };
            let kind = "ContainerResource".to_owned();
            let status = MetricStatus { type_: kind, container_resource: Some(status), ..MetricStatus::default() };
            Ok(Asked { replicas: proposal.replicas, name: words, status })
        }
        _ => Err(unserved(metric, seen)),
    }
}

type Found = (Proposal, String, MetricValueStatus);

fn resource(target: &MetricTarget, seen: &Seen, question: &Question<'_>) -> Result<Found, String> {
    let Question { resource, container, .. } = *question;
    let average = target.average_value.as_ref().map(|amount| Quantity::parse(&amount.0).map_or(0, Quantity::millis));
    let (what, target) = match (average, target.average_utilization) {
        (Some(wanted), _) => ("usage", Target::Average(wanted)),
        (None, Some(percent)) => ("utilization", Target::Utilization(percent)),
        (None, None) => {
            return Err("invalid resource metric source: neither an average utilization target nor an average value \
                        (usage) target was set"
                .to_owned());
        }
    };
    let unmeasured = |why: String| format!("unable to get metrics for resource {resource}: {why}");
    let measured = seen.metrics.as_ref().map_err(Clone::clone);
    let found = measured.and_then(|metrics| samples(metrics, resource, container)).map_err(unmeasured);
    let proposal = found.and_then(|samples| replicas(&Question { target, ..*question }, samples));
    let proposal = proposal.map_err(|why| format!("failed to get {resource} {what}: {why}"))?;
    let words = match (target, container) {
        (Target::Average(_), _) => format!("{resource} resource"),
        (_, "") => format!("{resource} resource utilization (percentage of request)"),
        _ => format!("{resource} container resource utilization (percentage of request)"),
    };
    let current = MetricValueStatus {
        average_utilization: proposal.utilization,
        average_value: Some(amount(resource, proposal.average)),
        value: None,
    };
    Ok((proposal, words, current))
}

/// Thousandths, as metrics of the resource are written.
fn amount(resource: &str, millis: i64) -> Amount {
    if resource == "memory" && millis >= 1_024_000 {
        return Amount(binary(millis / 1000 + i64::from(millis % 1000 > 0)));
    }
    Amount(Quantity::from_millis(millis).to_string())
}

/// Formats a number with the largest binary unit of which it is a multiple.
fn binary(mut number: i64) -> String {
    const UNITS: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut unit = 0;
    while number % 1024 == 0 && unit + 1 < UNITS.len() {
        (number, unit) = (number / 1024, unit + 1);
    }
    format!("{number}{}", UNITS.get(unit).unwrap_or(&""))
}

/// The error for an unsupported metric: custom and external metrics are not supported.
fn unserved(metric: &MetricSpec, seen: &Seen) -> Unknown {
    const NO_CUSTOM: &str =
        "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";
    let identifier = |of: Option<&MetricIdentifier>| of.cloned().unwrap_or_default();
    match metric.type_.as_str() {
        "Pods" => {
            let metric = identifier(metric.pods.as_ref().map(|source| &source.metric));
            let cause = format!("unable to get metric {}: {NO_CUSTOM}", metric.name);
            let error = format!("failed to get pods metric value: {cause}");
            Unknown { reason: "FailedGetPodsMetric", cause, error }
        }
        "Object" => {
            let source = metric.object.clone().unwrap_or_default();
            let about = source.described_object;
            let name = &source.metric.name;
            let (kind, object) = (about.kind, about.name);
            let cause = format!("unable to get metric {name}: {kind} on {} {object}/{NO_CUSTOM}", seen.namespace);
            let error = if source.target.type_ == "AverageValue" {
                format!("failed to get object metric value: failed to get {name} object metric: {cause}")
            } else {
                format!("failed to get object metric value: {cause}")
            };
            Unknown { reason: "FailedGetObjectMetric", cause, error }
        }
        "External" => {
            let source = metric.external.clone().unwrap_or_default();
            let (name, selector) = (&source.metric.name, shown(source.metric.selector.as_ref()));
            let cause = format!(
                "unable to get external metric {}/{name}/{selector}: unable to fetch metrics from external metrics \
                 API: the server could not find the requested resource (get {name}.external.metrics.k8s.io)",
                seen.namespace
            );
            let error = match source.target.average_value {
                Some(_) => {
                    format!("failed to get {name} external metric value: failed to get {name} external metric: {cause}")
                }
                None => {
                    format!("failed to get {name} external metric value: failed to get external metric {name}: {cause}")
                }
            };
            Unknown { reason: "FailedGetExternalMetric", cause, error }
        }
        other => {
            let cause = format!("unknown metric source type {other:?}");
            Unknown { reason: "InvalidMetricSourceType", error: cause.clone(), cause }
        }
    }
}

/// A selector as Go shows one.
fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels: String =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    let expressions: String = expressions.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement\
         {{{expressions}}},}}"
    )
}

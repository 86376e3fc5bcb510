//! Number of replicas for a usage (K8s replica_calculator.go, metrics/utilization.go). A pod without metrics counts
//! with the value that changes least: unknown usage never causes scaling up or down. Decisions only.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::metrics::Sample;
use super::options::Options;
use super::pods::{Pod, group, requests};

/// How far from one a ratio may be that changes nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tolerances {
    pub(crate) up: f64,
    pub(crate) down: f64,
}

impl Tolerances {
    fn is_within(self, ratio: f64) -> bool {
        1.0 - self.down <= ratio && ratio <= 1.0 + self.up
    }
}

/// Target usage of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Percent of the pods' requests.
    Utilization(i32),
    /// Thousandths per pod.
    Average(i64),
}

/// Input of a calculation.
pub(crate) struct Question<'a> {
    pub(crate) current: i32,
    pub(crate) resource: &'a str,
    pub(crate) container: &'a str,
    pub(crate) target: Target,
    pub(crate) tolerances: Tolerances,
    pub(crate) pods: &'a [Pod],
    pub(crate) options: &'a Options,
    pub(crate) clock: Timestamp,
}

/// The number of replicas, and the usage that leads to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) replicas: i32,
    pub(crate) utilization: Option<i32>,
    pub(crate) average: i64,
}

/// The use of all samples, against the target.
struct Use {
    ratio: f64,
    utilization: Option<i32>,
    average: i64,
}

/// The replicas that these samples ask for.
pub(crate) fn replicas(question: &Question<'_>, mut samples: BTreeMap<String, Sample>) -> Result<Proposal, String> {
    let Question { current, resource, pods, tolerances, .. } = *question;
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(pods, &samples, resource, question.options, question.clock);
    samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let asked = match question.target {
        Target::Utilization(_) => requests(pods, resource, question.container)?,
        Target::Average(_) => BTreeMap::new(),
    };
    let mut values: BTreeMap<&str, i64> = samples.iter().map(|(name, sample)| (name.as_str(), sample.value)).collect();
    let first = usage(question.target, &values, &asked)?;
    let proposal = |replicas: i32| Proposal { replicas, utilization: first.utilization, average: first.average };
    let with_unready = !groups.unready.is_empty() && first.ratio > 1.0;
    if !with_unready && groups.missing.is_empty() {
        let changes = !tolerances.is_within(first.ratio);
        return Ok(proposal(if changes { times(first.ratio, groups.ready) } else { current }));
    }
    for name in &groups.missing {
        if first.ratio < 1.0 {
            values.insert(name, fallback(question.target, asked.get(name).copied().unwrap_or_default()));
        } else if first.ratio > 1.0 {
            values.insert(name, 0);
        }
    }
    if with_unready {
        values.extend(groups.unready.iter().map(|name| (name.as_str(), 0)));
    }
    let second = usage(question.target, &values, &asked)?.ratio;
    let turns = (first.ratio < 1.0 && second > 1.0) || (first.ratio > 1.0 && second < 1.0);
    if tolerances.is_within(second) || turns {
        return Ok(proposal(current));
    }
    let wanted = times(second, values.len());
    let against = (second < 1.0 && wanted > current) || (second > 1.0 && wanted < current);
    Ok(proposal(if against { current } else { wanted }))
}

/// Assumed usage of a pod without measurements if the others use too little: its request, or the target.
fn fallback(target: Target, request: i64) -> i64 {
    match target {
        Target::Utilization(percent) => request.saturating_mul(percent.max(100).into()) / 100,
        Target::Average(wanted) => wanted,
    }
}

fn usage(target: Target, values: &BTreeMap<&str, i64>, asked: &BTreeMap<String, i64>) -> Result<Use, String> {
    let counts = |name: &str| matches!(target, Target::Average(_)) || asked.contains_key(name);
    let known = || values.iter().filter(|(name, _)| counts(name));
    let total: i128 = known().map(|(_, value)| i128::from(*value)).sum();
    let count = i128::try_from(known().count()).unwrap_or(i128::MAX).max(1);
    let average = narrow(total / count);
    match target {
        Target::Average(wanted) => Ok(Use { ratio: ratio(average, wanted), utilization: None, average }),
        Target::Utilization(percent) => {
            let requested: i128 = known().filter_map(|(name, _)| asked.get(*name)).map(|one| i128::from(*one)).sum();
            if requested == 0 {
                return Err("no metrics returned matched known pods".to_owned());
            }
            let utilization = narrow(total * 100 / requested);
            let shown = i32::try_from(utilization).unwrap_or(i32::MAX);
            Ok(Use { ratio: ratio(shown.into(), percent.into()), utilization: Some(shown), average })
        }
    }
}

fn narrow(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Ratio in Kubernetes' type, so that it rounds alike.
fn ratio(is: i64, wanted: i64) -> f64 {
    is as f64 / wanted as f64
}

/// Number of pods times the ratio, rounded up.
fn times(ratio: f64, pods: usize) -> i32 {
    ceil(ratio * pods as f64)
}

/// Rounded up, and limited to the range of the type.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
pub(crate) fn ceil(number: f64) -> i32 {
    number.ceil() as i32
}

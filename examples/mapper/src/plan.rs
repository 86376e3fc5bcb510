//! What is to be done for a device, out of the Device and the model that a node gives: or why it cannot be done. Pure.

use std::time::Duration;

use sampan_dmi::{Device, DeviceModel, DeviceProperty, ModelProperty};

use crate::config_data::Config;
use crate::drivers::{Access, Driver};
use crate::value::{self, Kind, Range, Value};

/// Between two reads, where a Device does not say.
const COLLECT: Duration = Duration::from_secs(1);
const COLLECT_AT_LEAST: Duration = Duration::from_millis(50);
/// Longest cycle that is kept apart from a longer one: a month.
const CYCLE_AT_MOST: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Most properties of a device: what a node takes in one report.
const PROPERTIES: usize = 1_024;

/// Names a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Id {
    pub namespace: String,
    pub name: String,
}

impl std::fmt::Display for Id {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan<P> {
    pub id: Id,
    pub properties: Vec<Property<P>>,
    /// How often the state is reported; zero for its changes alone. None: never.
    pub state: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Property<P> {
    pub name: String,
    pub kind: Kind,
    pub point: P,
    pub collect: Duration,
    pub report: Duration,
    pub to_cloud: bool,
    /// Nothing is wanted where there is none.
    pub desired: Option<Desired>,
}

/// What is wanted of a property.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    pub text: String,
    pub value: Value,
}

fn cycle(millis: i64, unsaid: Duration, least: Duration) -> Duration {
    match u64::try_from(millis) {
        Ok(millis) if millis > 0 => Duration::from_millis(millis).clamp(least, CYCLE_AT_MOST),
        _ => unsaid,
    }
}

/// # Errors
/// Why this device cannot be driven as it stands, for people.
pub fn plan<D: Driver>(device: &Device, model: &DeviceModel) -> Result<Plan<D::Point>, String> {
    let spec = device.spec.as_ref().ok_or("the Device has no spec")?;
    if spec.properties.len() > PROPERTIES {
        return Err(format!("the Device has more than {PROPERTIES} properties"));
    }
    let protocol = spec.protocol.as_ref().and_then(|protocol| protocol.config_data.as_ref());
    let protocol = Config::read(protocol).map_err(|why| format!("protocol: {why}"))?;
    let modelled = model.spec.as_ref().map_or(&[][..], |spec| &spec.properties);
    let mut properties: Vec<Property<D::Point>> = Vec::new();
    for held in &spec.properties {
        let rules = modelled.iter().find(|rules| rules.name == held.name);
        let named = |why: String| format!("property {}: {why}", held.name);
        let rules = rules.ok_or_else(|| named(format!("model {} does not have it", model.name)))?;
        if properties.iter().all(|other| other.name != held.name) {
            properties.push(property::<D>(held, rules, &protocol).map_err(named)?);
        }
    }
    let status = device.status.as_ref().filter(|status| status.report_to_cloud);
    let state = status.map(|status| cycle(status.report_cycle, Duration::ZERO, COLLECT_AT_LEAST));
    let id = Id { namespace: device.namespace.clone(), name: device.name.clone() };
    Ok(Plan { id, properties, state })
}

fn property<D: Driver>(
    held: &DeviceProperty,
    rules: &ModelProperty,
    protocol: &Config,
) -> Result<Property<D::Point>, String> {
    let kind = Kind::parse(&rules.r#type)?;
    let access = if rules.access_mode == "ReadWrite" { Access::ReadWrite } else { Access::ReadOnly };
    let visitors = Config::read(held.visitors.as_ref().and_then(|visitors| visitors.config_data.as_ref()))?;
    let point = D::point(&visitors.over(protocol), access)?;
    let wanted = held.desired.as_ref().map(|desired| desired.value.as_str()).filter(|text| !text.is_empty());
    let desired = match (wanted, access) {
        (None, _) => None,
        (Some(_), Access::ReadOnly) => return Err("a value is desired, and the model has it as ReadOnly".to_owned()),
        (Some(text), Access::ReadWrite) => {
            let value = value::parse(text, kind).map_err(|why| format!("desired: {why}"))?;
            let range = Range::new(&rules.minimum, &rules.maximum);
            range.check(value).map_err(|why| format!("desired: {why}"))?;
            D::fits(&point, &value).map_err(|why| format!("desired: {why}"))?;
            Some(Desired { text: text.to_owned(), value })
        }
    };
    let collect = cycle(held.collect_cycle, COLLECT, COLLECT_AT_LEAST);
    let report = cycle(held.report_cycle, collect, COLLECT_AT_LEAST);
    Ok(Property { name: held.name.clone(), kind, point, collect, report, to_cloud: held.report_to_cloud, desired })
}

//! The work for a device, from the Device and the model of a node, or the reason why it is impossible. Pure.

use std::time::Duration;

use sampan_dmi::{Device, DeviceModel, DeviceProperty, ModelProperty};

use crate::config_data::Config;
use crate::drivers::{Access, Driver};
use crate::value::{self, Kind, Range, Value};

/// Default interval between two reads.
const COLLECT: Duration = Duration::from_secs(1);
const COLLECT_AT_LEAST: Duration = Duration::from_millis(50);
/// Longest cycle that is kept apart from a longer one: a month.
const CYCLE_AT_MOST: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Maximum number of properties of a device: the limit of the node for one report.
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
    /// Interval of state reports; zero means only changes. `None`: never.
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
    /// `None` without a desired value.
    pub desired: Option<Desired>,
}

/// Desired value of a property.
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
/// The reason why this device cannot be driven, as text for people.
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use sampan_dmi::{
        Any, CustomizedValue, DeviceModelSpec, DeviceSpec, DeviceStatus, ProtocolConfig, TwinProperty, VisitorConfig,
    };

    use super::*;
    use crate::drivers::modbus::Modbus;

    fn data(entries: &[(&str, Any)]) -> Option<CustomizedValue> {
        let data: BTreeMap<_, _> = entries.iter().map(|(key, any)| ((*key).to_owned(), any.clone())).collect();
        Some(CustomizedValue { data })
    }

    fn register(offset: f32) -> Option<VisitorConfig> {
        let entries = [("register", Any::string("holding".into())), ("offset", Any::float(offset))];
        Some(VisitorConfig { protocol_name: "modbus".into(), config_data: data(&entries) })
    }

    fn held(name: &str, desired: &str) -> DeviceProperty {
        DeviceProperty {
            name: name.into(),
            desired: Some(TwinProperty { value: desired.into(), ..TwinProperty::default() }),
            visitors: register(1.0),
            report_to_cloud: true,
            ..DeviceProperty::default()
        }
    }

    fn device(properties: Vec<DeviceProperty>) -> Device {
        let protocol = ProtocolConfig {
            protocol_name: "modbus".into(),
            config_data: data(&[("address", Any::string("127.0.0.1:502".into()))]),
        };
        Device {
            name: "t1".into(),
            namespace: "default".into(),
            spec: Some(DeviceSpec { protocol: Some(protocol), properties, ..DeviceSpec::default() }),
            status: None,
        }
    }

    fn model(access: &str, kind: &str) -> DeviceModel {
        let rules = ModelProperty {
            name: "level".into(),
            access_mode: access.into(),
            r#type: kind.into(),
            maximum: "80".into(),
            ..ModelProperty::default()
        };
        let spec = DeviceModelSpec { properties: vec![rules], ..DeviceModelSpec::default() };
        DeviceModel { name: "m".into(), spec: Some(spec), ..DeviceModel::default() }
    }

    fn error(device: &Device, model: &DeviceModel) -> String {
        plan::<Modbus>(device, model).expect_err("it cannot be driven")
    }

    #[test]
    fn cycles_have_defaults_and_bounds() {
        let with = |collect: i64, report: i64| {
            let property = DeviceProperty { collect_cycle: collect, report_cycle: report, ..held("level", "") };
            let plan = plan::<Modbus>(&device(vec![property]), &model("ReadWrite", "INT")).expect("a plan");
            plan.properties.first().map(|property| (property.collect.as_millis(), property.report.as_millis()))
        };
        assert_eq!(with(0, 0), Some((1_000, 1_000)));
        assert_eq!(with(5_000, 0), Some((5_000, 5_000)));
        assert_eq!(with(100, 60_000), Some((100, 60_000)));
        assert_eq!(with(1, -7), Some((50, 50)));
        assert_eq!(with(i64::MAX, i64::MAX).map(|(collect, _)| collect), Some(CYCLE_AT_MOST.as_millis()));
    }

    #[test]
    fn a_state_is_reported_where_it_is_asked_for() {
        let with = |report_to_cloud, report_cycle| {
            let status = Some(DeviceStatus { report_to_cloud, report_cycle, ..DeviceStatus::default() });
            plan::<Modbus>(&Device { status, ..device(Vec::new()) }, &model("", "")).expect("a plan").state
        };
        assert_eq!(with(false, 1_000), None);
        assert_eq!(with(true, 0), Some(Duration::ZERO));
        assert_eq!(with(true, 10_000), Some(Duration::from_secs(10)));
    }

    #[test]
    fn desired_value_must_fit_its_type() {
        let desired = |text: &str| plan::<Modbus>(&device(vec![held("level", text)]), &model("ReadWrite", "INT"));
        let held_desired = desired("60").expect("a plan").properties.into_iter().next().and_then(|one| one.desired);
        assert_eq!(held_desired, Some(Desired { text: "60".into(), value: Value::Whole(60) }));
        assert!(desired("").expect("a plan").properties.iter().all(|one| one.desired.is_none()));
        for (text, why) in [
            ("warm", "property level: desired: \"warm\" is not a whole number"),
            ("81", "property level: desired: 81 is more than the maximum, 80"),
            ("-1", "property level: desired: -1 does not fit the registers"),
        ] {
            assert_eq!(desired(text).expect_err("it does not fit"), why);
        }
        let read_only = error(&device(vec![held("level", "60")]), &model("ReadOnly", "INT"));
        assert_eq!(read_only, "property level: a value is desired, and the model has it as ReadOnly");
    }

    #[test]
    fn missing_key_is_named() {
        let whole = device(vec![held("level", "")]);
        assert_eq!(error(&Device::default(), &model("", "")), "the Device has no spec");
        assert_eq!(error(&whole, &DeviceModel::default()), "property level: model  does not have it");
        let stream = error(&whole, &model("ReadOnly", "STREAM"));
        assert!(stream.starts_with("property level: type \"STREAM\" cannot be read"), "{stream}");
        let bare = DeviceProperty { visitors: None, ..held("level", "") };
        assert_eq!(error(&device(vec![bare]), &model("", "INT")), "property level: configData register is missing");
        let many = error(&device(vec![held("level", ""); PROPERTIES + 1]), &model("", "INT"));
        assert_eq!(many, "the Device has more than 1024 properties");
    }

    #[test]
    fn first_of_two_equal_names_counts() {
        let twice = device(vec![held("level", "1"), held("level", "2")]);
        let plan = plan::<Modbus>(&twice, &model("ReadWrite", "INT")).expect("a plan");
        assert_eq!(plan.properties.len(), 1);
        assert_eq!(plan.properties[0].desired.as_ref().map(|desired| desired.text.as_str()), Some("1"));
    }

    proptest! {
        #[test]
        fn any_text_is_planned_or_named(
            desired in ".*", kind in "INT|FLOAT|STRING|BOOLEAN|.*", key in ".*", text in ".*", offset in any::<f32>()
        ) {
            let mut odd = held("level", &desired);
            odd.visitors = register(offset);
            if let Some(config) = odd.visitors.as_mut().and_then(|visitors| visitors.config_data.as_mut()) {
                config.data.insert(key, Any::string(text));
            }
            match plan::<Modbus>(&device(vec![odd]), &model("ReadWrite", &kind)) {
                Ok(plan) => {
                    prop_assert_eq!(plan.properties.len(), 1);
                }
                Err(why) => {
                    prop_assert!(why.starts_with("property level: "), "{why}");
                }
            }
        }
    }
}

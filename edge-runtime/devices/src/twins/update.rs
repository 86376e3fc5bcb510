//! Checks and applies a `twin/update`: all of it or nothing.

use std::collections::BTreeMap;

use sampan_devices_control::Text;

use super::body::Model;
use super::device::Device;
use super::documents::{Step, Twin, TwinMap};
use super::now::Stamped;
use super::request::Change;

/// Most bytes of one value.
pub(super) const LONGEST_VALUE: usize = 4 << 10;
/// Most bytes of the name of a property that the Device object does not have.
const LONGEST_NAME: usize = 128;
/// Maximum size of all values of a device, in bytes: its report must fit a frame of the link.
const MOST: usize = 128 << 10;
/// Most properties of one device that its object does not have.
const MOST_EXTRAS: usize = 64;
/// Most bytes of such properties, all devices together.
const MOST_OF_EXTRAS: usize = 256 << 10;

/// Why nothing of it is done, by KubeEdge's numbers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) reason: String,
}

fn refused<T>(code: u16, reason: String) -> Result<T, Refused> {
    Err(Refused { code, reason })
}

/// Limits of the check.
pub(super) struct Limits<'a> {
    pub(super) model: Option<&'a Model>,
    /// Values must fit the model.
    pub(super) check: bool,
    /// Bytes of extra properties of all devices.
    pub(super) extras: usize,
}

/// A value for this property.
///
/// # Errors
/// It does not fit.
pub(super) fn check_value(limits: &Limits<'_>, name: &str, value: &str) -> Result<(), Refused> {
    if value.len() > LONGEST_VALUE {
        return refused(413, format!("the value of {name:?} is longer than {LONGEST_VALUE} bytes"));
    }
    match limits.model.and_then(|model| model.rules.get(name)).filter(|_| limits.check).map(|rule| rule.check(value)) {
        Some(Err(why)) => refused(400, format!("property {name:?}: {why}")),
        _ => Ok(()),
    }
}

/// # Errors
/// Something of it is not allowed.
pub(super) fn check(
    device: &Device,
    twin: &BTreeMap<Text, Option<Change>>,
    limits: &Limits<'_>,
) -> Result<(), Refused> {
    let mut held = device.properties.values().map(|property| property.held()).sum::<usize>();
    let mut extras = device.properties.values().filter(|property| !property.in_spec).count();
    let (mut extra_bytes, mut strange) = (limits.extras, false);
    for (name, change) in twin {
        let property = device.properties.get(name);
        let in_spec = property.is_some_and(|property| property.in_spec);
        let Some(Change { expected, actual, observed, .. }) = change else {
            match in_spec {
                true => {
                    return refused(400, format!("property {name:?} belongs to the device and cannot be taken away"));
                }
                false => continue,
            }
        };
        if observed.as_ref().is_some_and(|value| value.len() > LONGEST_VALUE) {
            return refused(413, format!("what {name:?} is said to be wanted is longer than {LONGEST_VALUE} bytes"));
        }
        held += observed.as_ref().map_or(0, Text::len);
        for value in [actual, expected].into_iter().flatten() {
            // Wanting nothing takes back what was wanted here.
            if !(value.is_empty() && Some(value) == expected.as_ref()) {
                check_value(limits, name, value)?;
            }
            held += value.len();
        }
        if !in_spec {
            if name.is_empty() || name.len() > LONGEST_NAME || name.contains(char::is_control) {
                return refused(
                    400,
                    format!("the name of a property has 1 to {LONGEST_NAME} bytes that can be printed"),
                );
            }
            strange = true;
            extras += usize::from(property.is_none());
            let values = [actual, expected].into_iter().flatten().map(Text::len).sum::<usize>();
            extra_bytes += values + if property.is_none() { name.len() + 64 } else { 0 };
        }
    }
    if held > MOST {
        return refused(413, format!("a device may hold {MOST} bytes"));
    }
    if strange && (extras > MOST_EXTRAS || extra_bytes > MOST_OF_EXTRAS) {
        return refused(413, "there is no room for more properties that the device does not have".to_owned());
    }
    Ok(())
}

/// Result of an update.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) result: TwinMap,
    pub(super) steps: BTreeMap<Text, Step>,
    /// Reported values, and those of them that replaced a pending one.
    pub(super) reports: u64,
    pub(super) coalesced: u64,
    /// The update has changes for the bridge, or only repeated values.
    pub(super) news: bool,
    pub(super) again: bool,
    /// A desired value changed, or the device has observed it.
    pub(super) wishes: bool,
    /// A property outside of the Device object has a value, or was removed.
    pub(super) extra: Option<Text>,
    pub(super) cleared: bool,
}

/// Applies a [`check`]ed update.
pub(super) fn apply(
    device: &mut Device,
    twin: BTreeMap<Text, Option<Change>>,
    model: Option<&Model>,
    stamp: impl Fn(Text) -> Stamped,
) -> Done {
    let mut done = Done::default();
    for (name, change) in twin {
        let kind = super::device::kind_in(model, &name);
        let last = device.properties.get(&name).map(|property| property.twin(kind)).filter(said);
        let Some(Change { expected, actual, observed, kind: hint }) = change else {
            done.cleared |= device.properties.remove(&name).is_some();
            done.result.insert(name.clone(), None);
            done.steps.insert(name, Step { last, current: None });
            continue;
        };
        let property = device.properties.entry(name.clone()).or_default();
        if let Some(hint) = hint.filter(|_| !property.in_spec || property.hint.is_empty()) {
            property.hint = hint;
        }
        let (has_expected, has_actual) = (expected.is_some(), actual.is_some());
        if let Some(value) = expected {
            property.want(stamp(value.clone()));
            done.wishes = true;
            if !value.is_empty() && property.observe(stamp(value)) {
                done.news |= property.in_spec;
            }
        }
        if let Some(value) = actual {
            done.reports += 1;
            let waits = property.told.is_due();
            if property.report(stamp(value)) {
                done.news |= property.in_spec;
                done.coalesced += u64::from(waits);
            } else {
                done.again |= property.in_spec;
            }
            if let (true, Some(history), Some(reported)) = (property.in_spec, &mut device.history, &property.reported) {
                history.push(&name, reported);
            }
        }
        let heard = match observed {
            Some(value) => !value.is_empty() && property.observe(stamp(value)),
            None => property.observe_echo(&stamp),
        };
        if heard {
            done.wishes = true;
            done.news |= property.in_spec;
        }
        if !property.in_spec {
            done.extra = Some(name.clone());
        }
        let current = property.twin(kind);
        let answered = Twin {
            expected: current.expected.clone().filter(|_| has_expected),
            actual: current.actual.clone().filter(|_| has_actual),
            ..current.clone()
        };
        done.result.insert(name.clone(), Some(answered));
        done.steps.insert(name, Step { last, current: Some(current) });
    }
    device.extras = device.extra_bytes();
    done
}

/// Whether a value exists: a property that only the Device object names does not have one.
const fn said(twin: &Twin) -> bool {
    twin.expected.is_some() || twin.actual.is_some()
}

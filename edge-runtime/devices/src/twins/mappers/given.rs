//! The data of a Device for a mapper: the merged device and its model in DMI's form, and a hash that distinguishes
//! their states. Knows no mapper.

use std::collections::BTreeMap;
use std::rc::Rc;

use sampan_devices_control::Named;
use sampan_dmi::Message;
use serde::Serialize;
use serde_json::{Value, json};

use super::super::body::{Model, model_of};
use super::super::device::Device;
use super::super::merge::merged;
use super::convert::{self, Notes};

/// Maximum length of the JSON of a spec that is kept for mappers, in bytes. It must fit a message.
const LONGEST: usize = 256 << 10;

/// The parts of a Device's spec for mappers; desired values are with the twins.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(skip_serializing_if = "Value::is_null")]
    protocol: &'a Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    properties: &'a Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    methods: &'a Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    state_report: &'a Value,
}

fn short(text: &impl Serialize) -> Option<Box<str>> {
    let text = serde_json::to_string(text).ok()?;
    (text.len() <= LONGEST).then(|| text.into_boxed_str())
}

/// The part of a Device to keep; `None` if it is too long.
pub(in super::super) fn of_device(body: &Value) -> Option<Box<str>> {
    let [protocol, properties, methods, state_report] =
        ["protocol", "properties", "methods", "stateReport"].map(|key| &body["spec"][key]);
    short(&Spec { protocol, properties, methods, state_report })
}

/// The part of a DeviceModel to keep.
pub(in super::super) fn of_model(body: &Value) -> Option<Box<str>> {
    short(&body["spec"])
}

/// Which state of a device a mapper should have.
pub(super) enum Wanted {
    /// Nothing: it is not here, or for no mapper.
    Gone,
    /// The state it has, until the model is known.
    Later,
    Is(Given),
}

/// A device for a mapper.
#[derive(Debug)]
pub(super) struct Given {
    /// The mapper's.
    pub(super) protocol: String,
    /// An encoded [`Device`](sampan_dmi::Device).
    pub(super) device: Vec<u8>,
    /// Hash of everything that matters to a driver.
    pub(super) hash: u64,
    pub(super) model: Rc<GivenModel>,
    pub(super) notes: Notes,
}

#[derive(Debug)]
pub(super) struct GivenModel {
    pub(super) id: Named,
    body: Value,
    /// An encoded [`DeviceModel`](sampan_dmi::DeviceModel).
    pub(super) message: Vec<u8>,
    /// Without descriptions.
    pub(super) hash: u64,
}

/// Devices and models as they are now, each model read once.
pub(super) struct Source<'a> {
    devices: &'a BTreeMap<Named, Box<Device>>,
    models: &'a BTreeMap<Named, Model>,
    read: BTreeMap<Named, Option<Rc<GivenModel>>>,
}

impl<'a> Source<'a> {
    pub(super) const fn new(devices: &'a BTreeMap<Named, Box<Device>>, models: &'a BTreeMap<Named, Model>) -> Self {
        Self { devices, models, read: BTreeMap::new() }
    }

    pub(super) fn wanted(&mut self, id: &Named) -> Wanted {
        let Some(device) = self.devices.get(id) else { return Wanted::Gone };
        let spec = device.spec.as_ref().and_then(|spec| serde_json::from_str::<Value>(&spec.text()?).ok());
        let Some(spec) = spec else { return Wanted::Gone };
        match self.model(&model_of(id, &device.model)) {
            Some(model) => Self::given(id, device, spec, model, self.models),
            None => Wanted::Later,
        }
    }

    fn given(
        id: &Named,
        device: &Device,
        spec: Value,
        model: Rc<GivenModel>,
        models: &BTreeMap<Named, Model>,
    ) -> Wanted {
        let merged = merged(spec, &model.body);
        let protocol = convert::text(&merged["protocol"], "protocolName");
        if protocol.is_empty() {
            return Wanted::Gone;
        }
        let known = |name: &str| models.get(&model.id).is_some_and(|held| held.rules.contains_key(name));
        let wanted = |name: &str| {
            let wanted = device.properties.get(name).and_then(|property| property.wanted());
            wanted.map(|wanted| wanted.value.to_string()).unwrap_or_default()
        };
        let mut notes = Notes::default();
        let message = convert::device(id, &device.model, &merged, known, wanted, &mut notes).encode_to_vec();
        let hash = fnv(fnv(fnv(OFFSET, &message), &model.hash.to_le_bytes()), device.uid.to_string().as_bytes());
        Wanted::Is(Given { protocol, device: message, hash, model, notes })
    }

    fn model(&mut self, id: &Named) -> Option<Rc<GivenModel>> {
        if let Some(read) = self.read.get(id) {
            return read.clone();
        }
        let read = self.models.get(id).and_then(|model| {
            let spec: Value = serde_json::from_str(model.spec.as_deref()?).ok()?;
            let mut whole = convert::model(id, &spec);
            let message = whole.encode_to_vec();
            whole.spec.iter_mut().flat_map(|spec| &mut spec.properties).for_each(|one| one.description.clear());
            let hash = fnv(OFFSET, &whole.encode_to_vec());
            Some(Rc::new(GivenModel { id: id.clone(), body: json!({ "spec": spec }), message, hash }))
        });
        self.read.insert(id.clone(), read.clone());
        read
    }
}

/// FNV-1a, <http://www.isthe.com/chongo/tech/comp/fnv/>: the same in every build, because it is kept.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_the_reference() {
        assert_eq!(fnv(OFFSET, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(OFFSET, b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_spec_that_fits_no_message_is_not_kept() {
        let body = |text: &str| json!({"spec": {"properties": [{"name": text}]}});
        assert!(of_device(&body("a")).is_some() && of_model(&body("a")).is_some());
        let long = "x".repeat(LONGEST);
        assert!(of_device(&body(&long)).is_none() && of_model(&body(&long)).is_none());
    }
}

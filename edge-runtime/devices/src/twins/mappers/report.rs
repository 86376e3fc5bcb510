//! Reports of mappers, processed as if the devices had sent them.

use std::collections::BTreeMap;

use sampan_devices_control::{Named, Text};
use sampan_dmi::{ReportDeviceStatesRequest, ReportDeviceStatusRequest, Twin, TwinProperty};
use sampan_grpc::{Code, Status};

use super::super::Twins;
use super::super::body::model_of;
use super::super::now::{Now, stamper};
use super::super::request::{Change, STATES};
use super::super::update::{self, Limits, Refused};

fn refused(Refused { code, reason }: Refused) -> Status {
    let code = if code == 413 { Code::OutOfRange } else { Code::InvalidArgument };
    Status::new(code, reason)
}

fn not_here(Named { namespace, name }: &Named) -> Status {
    let shown = |text: &str| text.chars().take(253).collect::<String>();
    Status::new(Code::NotFound, format!("no device {}/{} is bound to this node", shown(namespace), shown(name)))
}

impl Twins {
    /// Omits values that do not fit. Fails if none fits.
    pub(super) fn twins_reported(&mut self, now: Now, request: ReportDeviceStatusRequest) -> Result<(), Status> {
        let id = Named { namespace: request.device_namespace.into(), name: request.device_name.into() };
        let reported = request.reported_device.ok_or_else(|| invalid("the request has no reportedDevice"))?;
        let device = self.devices.get_mut(&id).ok_or_else(|| not_here(&id))?;
        self.mappers.all.iter_mut().for_each(|mapper| mapper.is_heard(now.mono, &id));
        let model = self.models.get(&model_of(&id, &device.model));
        let limits = Limits { model, check: self.check, extras: 0 };
        let (mut changes, mut first) = (BTreeMap::new(), None);
        for Twin { property_name: name, observed_desired, reported } in reported.twins {
            let value = |held: TwinProperty| Text::from(held.value);
            // The last of two entries counts; an entry without a value is ignored.
            let change =
                Change { actual: reported.map(value), observed: observed_desired.map(value), ..Change::default() };
            let in_spec = device.properties.get(&*name).is_some_and(|property| property.in_spec);
            let checked = match (in_spec, &change.actual, &change.observed) {
                (false, ..) => {
                    let shown: String = name.chars().take(64).collect();
                    Err(invalid(format!("property {shown:?} is not in spec.properties")))
                }
                (true, None, None) => Err(invalid(format!("nothing is reported of {name:?}"))),
                (true, ..) => {
                    let one = BTreeMap::from([(name.into(), Some(change))]);
                    update::check(device, &one, &limits).map(|()| one).map_err(refused)
                }
            };
            match checked {
                Ok(one) => changes.extend(one),
                Err(status) => {
                    self.counters.refused += u64::from(first.is_some() || !changes.is_empty());
                    first.get_or_insert(status);
                }
            }
        }
        if changes.is_empty() {
            return first.map_or(Ok(()), Err);
        }
        // Each fits; all of them may be too much.
        update::check(device, &changes, &limits).map_err(refused)?;
        let done = update::apply(device, changes, model, stamper(now, self.clock_set));
        let event_id = self.ids.next();
        self.updated(now, &id, &event_id, done, None);
        Ok(())
    }

    pub(super) fn state_reported(&mut self, now: Now, request: ReportDeviceStatesRequest) -> Result<(), Status> {
        let id = Named { namespace: request.device_namespace.into(), name: request.device_name.into() };
        let state = Text::from(request.state.to_lowercase());
        if !STATES.contains(&state.as_str()) {
            return Err(invalid(format!("state is none of {}", STATES.join(", "))));
        }
        if !self.devices.contains_key(&id) {
            return Err(not_here(&id));
        }
        self.mappers.all.iter_mut().for_each(|mapper| mapper.is_heard(now.mono, &id));
        self.state(now, &id, state);
        Ok(())
    }
}

fn invalid(why: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, why)
}
